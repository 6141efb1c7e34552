// Control of one rank without others: every call returns as if the others gave the same values.
#pragma once

#include "core/ranks/control.h"

namespace quire::test {

class LoneControl : public Control {
 public:
  LoneControl(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string host() const override { return "here"; }
  std::vector<std::string> gather(const std::string& mine) override {
    return std::vector<std::string>(static_cast<size_t>(size_), mine);
  }
  std::string broadcast(const std::string& text, int) override { return text; }
  void barrier() override {}
  void set_deadline(std::chrono::milliseconds) override {}
  std::chrono::milliseconds deadline() const override { return std::chrono::milliseconds::max(); }
  void set_activity(const RankActivity&) override {}
  bool fail(ErrorKind, const std::string&) override { return false; }
  void check() const override {}
  void overdue(int64_t) override {}

 private:
  int rank_;
  int size_;
};

}  // namespace quire::test
