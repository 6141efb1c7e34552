#include "core/ranks/processes/frames.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace quire {

namespace {

// The layout needs no conversion: all ranks run the same program on the same kind of machine.
struct Header {
  uint32_t type;
  uint32_t unused;
  uint64_t number;
  uint64_t size;
};

}  // namespace

FrameSocket::FrameSocket(int descriptor) : descriptor_(descriptor) {
  ::fcntl(descriptor_, F_SETFL, ::fcntl(descriptor_, F_GETFL) | O_NONBLOCK);
}

FrameSocket::~FrameSocket() {
  ::close(descriptor_);
}

void FrameSocket::send(const Frame& frame) {
  const Header header{static_cast<uint32_t>(frame.type), 0, frame.number, frame.text.size()};
  unsent_.append(reinterpret_cast<const char*>(&header), sizeof(header));
  unsent_ += frame.text;
  flush();
}

void FrameSocket::flush() {
  while (has_unsent()) {
    const ssize_t wrote = ::send(descriptor_, unsent_.data() + sent_, unsent_.size() - sent_, MSG_NOSIGNAL);
    if (wrote >= 0) {
      sent_ += static_cast<size_t>(wrote);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    } else if (errno != EINTR) {
      // Bytes that the other side sent before it closed can still be received; then the end is seen.
      break;
    }
  }
  unsent_.clear();
  sent_ = 0;
}

void FrameSocket::receive(std::vector<Frame>& frames, size_t max_frames) {
  std::array<char, 1 << 16> block;
  while (!closed_ && arrived_.size() <= max_text_bytes_ + sizeof(Header)) {
    const ssize_t got = ::recv(descriptor_, block.data(), block.size(), 0);
    if (got > 0) {
      arrived_.append(block.data(), static_cast<size_t>(got));
    } else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      break;
    } else if (got == 0 || errno != EINTR) {
      closed_ = true;
    }
  }
  size_t at = 0;
  for (; max_frames > 0 && arrived_.size() - at >= sizeof(Header); --max_frames) {
    Header header;
    std::memcpy(&header, arrived_.data() + at, sizeof(header));
    if (header.type > static_cast<uint32_t>(FrameType::ended) || header.size > max_text_bytes_) {
      closed_ = true;
      break;
    }
    if (arrived_.size() - at - sizeof(header) < header.size) break;
    frames.push_back({static_cast<FrameType>(header.type), header.number,
                      arrived_.substr(at + sizeof(header), static_cast<size_t>(header.size))});
    at += sizeof(header) + static_cast<size_t>(header.size);
  }
  arrived_.erase(0, at);
}

}  // namespace quire
