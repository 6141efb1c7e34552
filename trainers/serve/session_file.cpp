#include "trainers/serve/session_file.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/json.h"

namespace quire {

namespace {

using Json = nlohmann::json;

constexpr const char* kForm = "quire session 2";
constexpr size_t kChecksumBytes = 16;

// The types that counts of rows have.
template <typename Use>
void with_type(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::u8:
      return use(uint8_t{});
    case DType::i32:
      return use(int32_t{});
    case DType::i64:
      return use(int64_t{});
    default:
      fail(ErrorKind::checkpoint, "a session has no counts of type {}", name_of(dtype));
  }
}

Json counts_json(const std::vector<NamedTensor>& counts) {
  Json list = Json::array();
  for (const NamedTensor& count : counts) {
    with_type(count.tensor.dtype(), [&](auto zero) {
      const auto values = count.tensor.to_vector<decltype(zero)>();
      list.push_back({count.name, static_cast<int>(count.tensor.dtype()), static_cast<int64_t>(values.at(0))});
    });
  }
  return list;
}

std::vector<NamedTensor> counts_of(const Json& list) {
  std::vector<NamedTensor> counts;
  for (const Json& one : list) {
    const auto dtype = static_cast<DType>(json_integer(one.at(1)));
    with_type(dtype, [&](auto zero) {
      const std::vector<decltype(zero)> value{static_cast<decltype(zero)>(one.at(2).get_ref<const int64_t&>())};
      counts.push_back({one.at(0).get_ref<const std::string&>(), Tensor::from(value, {1})});
    });
  }
  return counts;
}

Session session_of(const Json& head, std::span<const std::byte> bytes, const SessionModel& model) {
  Session session;
  session.position = json_integer(head.at("position"));
  session.tokens = json_integer(head.at("tokens"));
  for (const Json& id : head.at("tail")) {
    const int64_t value = json_integer(id);
    if (value >= model.vocabulary) fail(ErrorKind::checkpoint, "token id {} is outside the vocabulary", value);
    session.tail.push_back(static_cast<int32_t>(value));
  }
  session.state.counts = counts_of(head.at("counts"));
  session.state.bytes.assign(bytes.begin(), bytes.end());
  const int64_t expected = session.position > 0 ? model.state_bytes(session.state.counts) : 0;
  if (static_cast<int64_t>(bytes.size()) != expected || session.position % model.subsequence != 0) {
    fail(ErrorKind::checkpoint, "{} bytes of state after {} positions do not fit this model", bytes.size(),
         session.position);
  }
  return session;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

void write_session(const std::filesystem::path& file, const Session& session, const SessionModel& model) {
  const Json head{{"form", kForm},
                  {"model", model.fingerprint},
                  {"position", session.position},
                  {"tokens", session.tokens},
                  {"tail", session.tail},
                  {"counts", counts_json(session.state.counts)}};
  const std::string line = head.dump() + "\n";
  std::vector<std::byte> bytes;
  bytes.reserve(line.size() + session.state.bytes.size() + kChecksumBytes);
  const auto add = [&](std::span<const std::byte> more) { bytes.insert(bytes.end(), more.begin(), more.end()); };
  add(std::as_bytes(std::span(line)));
  add(session.state.bytes);
  const std::string checksum = checksum_of(bytes);
  add(std::as_bytes(std::span(checksum)));
  replace_file_atomically(file, bytes);
}

std::shared_ptr<const Session> read_session(const std::filesystem::path& file, const SessionModel& model) {
  const std::vector<std::byte> all = read_file(file);
  const std::string name = file.filename().string();
  const auto damaged = [&](const std::string& why) {
    fail(ErrorKind::checkpoint, "{}: the stored session is damaged ({}); delete it and send the text again", name, why);
  };
  if (all.size() < kChecksumBytes) damaged("it is too short");
  const std::span<const std::byte> bytes = std::span(all).first(all.size() - kChecksumBytes);
  if (checksum_of(bytes) != as_text(std::span(all).last(kChecksumBytes))) damaged("its checksum differs");
  const auto end = std::find(bytes.begin(), bytes.end(), std::byte{'\n'});
  const auto length = static_cast<size_t>(end - bytes.begin());
  try {
    const Json head = parse_json(as_text(bytes.first(length)));
    if (head.at("form") != kForm) {
      fail(ErrorKind::checkpoint, "{}: the session was stored by another version; send the text again", name);
    }
    if (head.at("model") != model.fingerprint) {
      fail(ErrorKind::checkpoint, "{}: the stored session is of another model or configuration; send the text again",
           name);
    }
    return std::make_shared<const Session>(session_of(head, bytes.subspan(std::min(length + 1, bytes.size())), model));
  } catch (const Json::exception& error) {
    damaged(shortened(error.what()));
    throw;
  }
}

}  // namespace quire
