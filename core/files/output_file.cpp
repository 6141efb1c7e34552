#include "core/files/output_file.h"

#include <string>
#include <system_error>

#include "core/check.h"
#include "core/files/file.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

const char* name_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::symlink:
      return "a link";
    case fs::file_type::directory:
      return "a folder";
    case fs::file_type::fifo:
      return "a FIFO";
    case fs::file_type::socket:
      return "a socket";
    default:
      return "a device";
  }
}

}  // namespace

bool is_replaceable(const fs::path& path, std::string_view what, const IsOurs& is_ours) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (status.type() == fs::file_type::not_found) return false;
  if (error) fail(ErrorKind::config, "{}: cannot be looked at: {}", path.string(), error.message());
  if (status.type() != fs::file_type::regular) {
    fail(ErrorKind::config, "{}: is {}, which is not replaced; give the name of a file", path.string(),
         name_of(status.type()));
  }
  if (is_ours(path)) return true;
  fail(ErrorKind::config, "{}: exists already and is not {}, so it is not replaced; choose another name, or remove it",
       path.string(), what);
}

std::string first_bytes(const fs::path& path, size_t count) {
  try {
    std::string text(count, '\0');
    text.resize(File::open(path).read(std::as_writable_bytes(std::span(text.data(), text.size()))));
    return text;
  } catch (const Error&) {
    return {};
  }
}

}  // namespace quire
