#include "core/files/output_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
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

void require_output_folder(const fs::path& file, std::string_view option) {
  const fs::path folder = fs::absolute(file).parent_path();
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) {
    fail(ErrorKind::disk, "{} {}: there is no folder {}; make it first", option, file.string(), folder.string());
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    fail(ErrorKind::disk, "{} {}: {} cannot be written: {}; choose another folder", option, file.string(),
         folder.string(), std::strerror(errno));
  }
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
