#include "core/control_groups.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/cores.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

// A file system with control groups, as /proc and the mounts show them.
class ControlGroups : public ::testing::Test {
 protected:
  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }
  std::optional<double> quota() const { return cpu_quota(folder_.path()); }
  test::TemporaryDirectory folder_;
};

constexpr const char* kSecond = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kFirst =
    "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n";

TEST_F(ControlGroups, AMachineWithoutThemHasNoQuota) {
  EXPECT_EQ(quota(), std::nullopt);
  write("proc/self/mountinfo", "23 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(ControlGroups, OfVersionTwoTheSmallestQuotaOfAllAroundHolds) {
  write("proc/self/mountinfo", kSecond);
  write("proc/self/cgroup", "0::/user.slice/job\n");
  write("sys/fs/cgroup/user.slice/job/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/user.slice/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota(), 0.5);
  write("sys/fs/cgroup/user.slice/job/cpu.max", "20000 100000\n");
  EXPECT_EQ(quota(), 0.2);
  write("sys/fs/cgroup/cpu.max", "10000 100000\n");
  EXPECT_EQ(quota(), 0.1);
}

TEST_F(ControlGroups, OfVersionOneTheHierarchyOfTheControllerCounts) {
  write("proc/self/mountinfo", kFirst);
  write("proc/self/cgroup", "5:cpuset:/other\n3:cpu,cpuacct:/batch/7\n0::/\n");
  write("sys/fs/cgroup/cpu,cpuacct/batch/7/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu,cpuacct/batch/7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("sys/fs/cgroup/cpu,cpuacct/batch/7/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(quota(), 2.5);
  const std::vector<ControlGroup> groups = control_groups("cpu", folder_.path());
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups.back().folder, folder_ / "sys/fs/cgroup/cpu,cpuacct/batch/7");
  EXPECT_EQ(groups.back().version, 1);
}

// A container sees its own group as the top, under the name that it has outside or under another one.
TEST_F(ControlGroups, AContainerSeesItsOwnGroupAtTheTop) {
  write("proc/self/mountinfo", "33 31 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  for (const char* own : {"1:cpu:/docker/abc\n", "1:cpu:/../elsewhere\n", "1:cpu:/\n", "1:cpu:/docker/abcd\n"}) {
    write("proc/self/cgroup", own);
    EXPECT_EQ(quota(), 1.5) << own;
  }
}

TEST_F(ControlGroups, ThreadsAreNoMoreThanTheQuotaGivesTimeFor) {
  const auto cores = static_cast<int>(allowed_core_list().size());
  const std::optional<double> here = cpu_quota();
  EXPECT_EQ(allowed_cores(), here ? std::min(cores, static_cast<int>(std::ceil(*here))) : cores);
  EXPECT_LE(cores, cores_of_machine());
}

}  // namespace
}  // namespace quire
