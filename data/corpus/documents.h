// Documents in the form in which rows read them: a corpus split, generated documents, or a mixture of both.
#pragma once

#include <cstdint>
#include <string>

namespace quire {

// The bits of a target's mark.
inline constexpr uint8_t kCounted = 1;   // it counts for the loss
inline constexpr uint8_t kRecalled = 2;  // the target repeats an earlier part of the document

class Documents {
 public:
  virtual ~Documents() = default;
  virtual int64_t length(int64_t document) const = 0;  // in stored tokens: without BOS and EOS
  // Copies tokens [begin, begin + count) of a document.
  virtual void tokens(int64_t document, int64_t begin, int64_t count, int32_t* out) const = 0;
  // Copies the marks of targets [begin, begin + count): target k is token k, target length() is EOS.
  virtual void marks(int64_t document, int64_t begin, int64_t count, uint8_t* out) const = 0;
  // Returns false when every target counts and none is recalled.
  virtual bool marked() const = 0;
  // Returns the name in the corpus; empty for generated documents.
  virtual std::string name([[maybe_unused]] int64_t document) const { return {}; }
};

// The documents to read, with their order and lengths. Every rank deals all of them, and so knows what other ranks
// read.
class ReadingList {
 public:
  virtual ~ReadingList() = default;
  virtual int64_t documents() const = 0;              // documents of an epoch
  virtual int64_t document(int64_t place) const = 0;  // the document at a place of the endless order
  virtual int64_t tokens_with_bos(int64_t document) const = 0;
};

}  // namespace quire
