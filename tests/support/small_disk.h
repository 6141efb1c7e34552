// A file system of a few kilobytes, for tests of full disks. Mounting needs root: where it is not permitted the test
// skips and says so.
#pragma once

#include <sys/mount.h>

#include <string>

#include "tests/support/temporary_directory.h"

namespace quire::test {

class SmallDisk {
 public:
  explicit SmallDisk(int kilobytes) {
    const std::string options = "size=" + std::to_string(kilobytes) + "k";
    mounted_ = ::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(folder_.path().c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  bool mounted() const { return mounted_; }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryDirectory folder_;
  bool mounted_ = false;
};

}  // namespace quire::test
