// Messages between two processes over a stream socket that does not block.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

enum class FrameType : uint32_t {
  hello,     // to root: the token of the run; number: the rank
  welcome,   // root's answer: the token
  activity,  // the rank's activity (packed_activity), as a sign of life; number: milliseconds since it last reported
             // progress (core/progress.h), or kNoProgress
  call,      // to root: a call of Control; number: which
  result,    // from root: the result of that call
  fail,      // to root: an error of this rank; number: its kind
  verdict,   // from root; number: 1 when this rank is to report its error
  failed,    // from root: the run has failed; number: the kind
  told,      // the failure has been reported; to root also by a rank that has given root up
  overdue,   // to root: others do not come to a collective; number: how many this rank has begun, or 0: they have come
  ended,     // to root: this rank's program is over
};

inline constexpr uint64_t kNoProgress = UINT64_MAX;
inline constexpr uint64_t kLargestText = uint64_t{1} << 32;

struct Frame {
  FrameType type = FrameType::hello;
  uint64_t number = 0;
  std::string text = {};
};

class FrameSocket {
 public:
  explicit FrameSocket(int descriptor);  // takes ownership of it
  ~FrameSocket();
  FrameSocket(const FrameSocket&) = delete;
  FrameSocket& operator=(const FrameSocket&) = delete;

  int descriptor() const { return descriptor_; }
  // Limits the text of a frame, because a stranger that connects must not be able to claim more memory than this.
  void set_max_text_bytes(uint64_t text_bytes) { max_text_bytes_ = text_bytes; }
  // Writes as much as the socket takes at once; flush() sends the rest.
  void send(const Frame& frame);
  void flush();
  bool has_unsent() const { return !closed_ && sent_ < unsent_.size(); }
  // Appends the frames that have arrived, at most `max_frames`; the others stay here, and poll() does not report them.
  void receive(std::vector<Frame>& frames, size_t max_frames = SIZE_MAX);
  // Returns true when bytes have arrived that no frame was made of yet.
  bool has_arrived() const { return !arrived_.empty(); }
  // Returns true when the other side is gone, or sent something that is no frame. Everything that arrived before has
  // been received.
  bool closed() const { return closed_; }

 private:
  int descriptor_;
  uint64_t max_text_bytes_ = kLargestText;
  bool closed_ = false;
  std::string unsent_;
  size_t sent_ = 0;  // bytes of unsent_ that were sent
  std::string arrived_;
};

}  // namespace quire
