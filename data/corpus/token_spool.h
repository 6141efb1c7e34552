// Scratch files for the tokens and marks of a corpus while its documents are read: a contiguous dataset cannot grow,
// and the split of a document is known only at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/files/file.h"

namespace quire {

class TokenSpool {
 public:
  // Makes scratch files in `folder`, which needs room for them. Ids are below content_size, which decides the width of
  // stored ids.
  TokenSpool(std::filesystem::path folder, int64_t content_size);

  void append(std::span<const int32_t> ids);
  void append_marks(std::span<const uint8_t> marks);
  int64_t tokens() const { return tokens_; }  // number of tokens appended so far
  int64_t marks() const { return marks_; }

  DType dtype() const { return dtype_; }
  // Makes everything appended so far readable.
  void flush();
  // Reads bytes of the stored tokens from byte `begin` on.
  void read(int64_t begin, std::span<std::byte> into) const;
  void read_marks(int64_t first, std::span<std::byte> into) const;

 private:
  std::filesystem::path folder_;
  int64_t content_size_;
  DType dtype_;
  File tokens_file_;
  std::optional<File> marks_file_;  // made with the first marks
  std::vector<std::byte> buffer_;
  int64_t tokens_ = 0;
  int64_t marks_ = 0;
};

}  // namespace quire
