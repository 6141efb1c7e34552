// The header is read event by event: a tree of 100 MB of JSON would take a gigabyte, and it would hide keys that occur
// twice.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/check.h"
#include "trainers/exchange/safetensors.h"

namespace quire {

namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 16;

// The place in the header that the reader has come to.
enum class At {
  start,
  names,
  tensor,
  type,
  shape_begin,
  shape,
  offsets_begin,
  offsets,
  metadata_begin,
  metadata,
  other,
  end
};

class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& file) : header_(header), file_(file) {}

  bool null() override {
    if (at_ == At::metadata_begin) return close(At::names);
    return other("null");
  }
  bool boolean(bool /*value*/) override { return other("true or false"); }
  bool number_integer(int64_t value) override { return other(fmt::format("{}", value)); }
  bool number_unsigned(uint64_t value) override {
    if (at_ != At::shape && at_ != At::offsets) return other(fmt::format("{}", value));
    if (value > static_cast<uint64_t>(INT64_MAX)) refuse(fmt::format("the number {} is too large", value));
    add(static_cast<int64_t>(value));
    return true;
  }
  bool number_float(double /*value*/, const std::string& text) override { return other(text); }
  bool binary(Json::binary_t& /*value*/) override { return other("bytes"); }
  bool string(std::string& text) override {
    if (at_ == At::type) {
      type_ = stored_type_named(text);
      if (!type_) refuse(fmt::format("the type {} is unknown; weights are F64, F32, F16 or BF16", shortened(text)));
      return close(At::tensor);
    }
    if (at_ == At::metadata) {
      header_.metadata[key_] = text;
      return true;
    }
    return other("a text");
  }
  bool start_object(size_t /*size*/) override {
    switch (at_) {
      case At::start:
        return close(At::names);
      case At::metadata_begin:
        return close(At::metadata);
      case At::names:
        return begin_tensor();
      default:
        return deeper("an object");
    }
  }
  bool key(std::string& text) override {
    switch (at_) {
      case At::names:
        key_ = text;
        if (text != "__metadata__") return true;
        if (std::exchange(has_metadata_, true)) refuse_twice("__metadata__");
        at_ = At::metadata_begin;
        return true;
      case At::metadata:
        if (header_.metadata.contains(text)) refuse_twice("__metadata__." + text);
        key_ = text;
        return true;
      case At::tensor:
        return begin_field(text);
      default:
        return true;
    }
  }
  bool end_object() override {
    if (depth_ > 0) return shallower();
    if (at_ == At::tensor) return end_tensor();
    return close(at_ == At::metadata ? At::names : At::end);
  }
  bool start_array(size_t /*size*/) override {
    if (at_ == At::shape_begin) return close(At::shape);
    if (at_ == At::offsets_begin) return close(At::offsets);
    return deeper("a list");
  }
  bool end_array() override {
    if (depth_ > 0) return shallower();
    return close(At::tensor);
  }
  bool parse_error(size_t /*position*/, const std::string& /*token*/, const Json::exception& error) override {
    fail(ErrorKind::data, "{}: the header is not JSON: {}", file_, shortened(error.what()));
  }

 private:
  bool close(At next) {
    at_ = next;
    return true;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    const bool inside = at_ != At::start && at_ != At::end;
    fail(ErrorKind::data, "{}: {}{}", file_, inside ? fmt::format("tensor {}: ", shortened(key_)) : std::string(),
         what);
  }
  [[noreturn]] void refuse_twice(const std::string& key) const {
    fail(ErrorKind::data, "{}: the key {} occurs twice in the header", file_, key);
  }
  // A value that only fields of other programs may have.
  bool other(const std::string& what) {
    if (depth_ > 0) return true;
    if (at_ == At::other) return close(At::tensor);
    if (at_ == At::metadata || at_ == At::metadata_begin) {
      fail(ErrorKind::data, "{}: __metadata__ holds {}, and its values are texts", file_, what);
    }
    if (at_ == At::start) refuse(fmt::format("the header is {}, not an object", what));
    if (at_ == At::names) refuse(fmt::format("{} stands in place of its type, shape and data_offsets", what));
    refuse(fmt::format("{} is {}, which it cannot be", field_, what));
  }
  bool deeper(const char* what) {
    if (depth_ == 0 && at_ != At::other) return other(what);
    if (++depth_ > kMaxDepth) refuse(fmt::format("{} is nested more than {} deep", field_, kMaxDepth));
    return true;
  }
  bool shallower() {
    if (--depth_ == 0) at_ = At::tensor;
    return true;
  }
  bool begin_tensor() {
    if (header_.tensors.size() == kMaxStoredTensors) {
      fail(ErrorKind::data, "{}: has more than {} tensors", file_, kMaxStoredTensors);
    }
    type_.reset();
    shape_.reset();
    offsets_.reset();
    fields_.clear();
    at_ = At::tensor;
    return true;
  }
  bool begin_field(const std::string& text) {
    if (fields_.size() > 64) refuse("has more than 64 fields");
    if (std::find(fields_.begin(), fields_.end(), text) != fields_.end()) {
      refuse(fmt::format("the key {} occurs twice", shortened(text)));
    }
    fields_.push_back(text);
    field_ = text.size() > kLongestQuote ? shortened(text) : text;
    at_ = At::other;
    if (text == "dtype") at_ = At::type;
    if (text == "shape") {
      at_ = At::shape_begin;
      shape_.emplace();
    }
    if (text == "data_offsets") {
      at_ = At::offsets_begin;
      offsets_.emplace();
    }
    return true;
  }
  void add(int64_t value) {
    std::vector<int64_t>& list = at_ == At::shape ? *shape_ : *offsets_;
    if (list.size() == (at_ == At::shape ? kMaxStoredAxes : 2)) {
      refuse(at_ == At::shape ? fmt::format("has more than {} axes", kMaxStoredAxes)
                              : std::string("data_offsets has more than two numbers"));
    }
    list.push_back(value);
  }
  bool end_tensor() {
    for (const auto& [name, there] : {std::pair{"dtype", type_.has_value()}, std::pair{"shape", shape_.has_value()},
                                      std::pair{"data_offsets", offsets_.has_value()}}) {
      if (!there) refuse(fmt::format("has no {}", name));
    }
    if (offsets_->size() != 2) refuse(fmt::format("data_offsets has {} numbers, not two", offsets_->size()));
    int64_t bytes = size_of(*type_);
    for (const int64_t size : *shape_) {
      if (__builtin_mul_overflow(bytes, size, &bytes)) refuse("its size does not fit 64 bits");
    }
    const int64_t begin = (*offsets_)[0], end = (*offsets_)[1];
    if (end < begin || end - begin != bytes) {
      refuse(fmt::format("data_offsets [{}, {}] do not fit {} [{}], which has {} bytes", begin, end, name_of(*type_),
                         fmt::join(*shape_, ", "), bytes));
    }
    shape_->shrink_to_fit();
    header_.tensors.push_back({key_, *type_, std::move(*shape_), begin, end});
    at_ = At::names;
    return true;
  }

  SafetensorsHeader& header_;
  const std::string& file_;
  At at_ = At::start;
  int depth_ = 0;  // below a field of another program
  bool has_metadata_ = false;
  std::string key_;  // of the tensor
  std::string field_ = "it";
  std::vector<std::string> fields_;
  std::optional<StoredType> type_;
  std::optional<std::vector<int64_t>> shape_;
  std::optional<std::vector<int64_t>> offsets_;
};

// Every byte belongs to one tensor.
void require_covered(SafetensorsHeader& header, int64_t data_bytes, const std::string& file) {
  std::vector<StoredTensor>& tensors = header.tensors;
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t next = 0;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.end > data_bytes) {
      fail(ErrorKind::data, "{}: tensor {} ends at byte {} of {}; the file is cut off or damaged", file, tensor.name,
           tensor.end, data_bytes);
    }
    if (tensor.begin != next) {
      fail(ErrorKind::data, "{}: tensor {} begins at byte {} and the one before ends at {}; tensors {}", file,
           tensor.name, tensor.begin, next, tensor.begin < next ? "must not overlap" : "must leave no gap");
    }
    next = tensor.end;
  }
  if (next != data_bytes) {
    fail(ErrorKind::data, "{}: has {} bytes of tensors but {} behind the header", file, next, data_bytes);
  }
}

}  // namespace

SafetensorsHeader read_safetensors_header(std::string_view json, int64_t data_bytes, const std::string& file) {
  // The parser would skip a byte order mark and stop at a NUL.
  if (json.find('\0') != std::string_view::npos) fail(ErrorKind::data, "{}: the header holds a NUL character", file);
  if (json.starts_with("\xEF\xBB\xBF")) fail(ErrorKind::data, "{}: the header begins with a byte order mark", file);
  SafetensorsHeader header;
  HeaderReader reader(header, file);
  if (!Json::sax_parse(json.begin(), json.end(), &reader)) fail(ErrorKind::data, "{}: the header is not JSON", file);
  require_covered(header, data_bytes, file);
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  const auto twice = std::adjacent_find(header.tensors.begin(), header.tensors.end(),
                                        [](const StoredTensor& a, const StoredTensor& b) { return a.name == b.name; });
  if (twice != header.tensors.end()) fail(ErrorKind::data, "{}: tensor {} occurs twice", file, twice->name);
  return header;
}

}  // namespace quire
