// Reads golden files (README.md) and compares with them.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "autograd/variable.h"
#include "core/files/hdf5_file.h"

namespace quire::test {

inline constexpr int64_t kGoldenSchema = 1;

// QUIRE_GOLDEN_DIR, or the folder in the source tree.
std::filesystem::path golden_folder();
// The mechanisms of a folder, sorted.
std::vector<std::string> golden_mechanisms(const std::filesystem::path& folder);

// One case run in one element type.
class GoldenCase {
 public:
  GoldenCase(const Hdf5Reader& file, std::string path, DType dtype)
      : file_(file), path_(std::move(path)), dtype_(dtype) {}

  int64_t number(const std::string& attribute) const { return file_.attribute_int(path_, read(attribute)); }
  bool flag(const std::string& attribute) const { return number(attribute) != 0; }
  double real(const std::string& attribute) const { return file_.attribute_double(path_, read(attribute)); }
  std::string text(const std::string& attribute) const { return file_.attribute_text(path_, read(attribute)); }
  // For an attribute of which the test computes one value: a failure where the case has another one.
  void expect_only(const std::string& attribute, double value) const;
  // For attributes and datasets that change nothing in this case.
  void unused(const std::vector<std::string>& names) const { read_.insert(names.begin(), names.end()); }
  DType dtype() const { return dtype_; }

  std::vector<std::string> names(const std::string& group) const { return file_.list(path_ + "/" + group); }
  bool has(const std::string& dataset) const { return file_.has(path_ + "/" + dataset); }
  // A dataset such as "in/q": reals in the case's element type, integers as i32.
  Tensor get(const std::string& dataset) const;
  // A leaf per dataset in in/ that holds reals.
  std::map<std::string, Variable> leaves() const;

  // Compares with a dataset; failures are test failures.
  void expect(const std::string& dataset, const Tensor& got);
  // Compares grad/ of all leaves that have one; a leaf without a gradient has a zero one.
  void expect_gradients(const std::map<std::string, Variable>& leaves);
  // Fails for every dataset of out/ and grad/ that nothing was compared with, and for every attribute and dataset of
  // in/ that the test did not ask for, as it would pass whatever they say; prints the worst error.
  void finish(const std::string& mechanism) const;

 private:
  // Expects that the datasets in a group and in those inside it were compared.
  void expect_compared(const std::string& group) const;
  void expect_all_read() const;
  const std::string& read(const std::string& attribute) const { return *read_.insert(attribute).first; }

  const Hdf5Reader& file_;
  std::string path_;
  DType dtype_;
  std::set<std::string> compared_;
  mutable std::set<std::string> read_;  // attributes and datasets
  double worst_ = 0;
  std::string worst_at_ = "all equal";
};

class GoldenFile {
 public:
  // Throws Error(data) when the file is not that mechanism's or has an unknown schema.
  GoldenFile(const std::filesystem::path& folder, const std::string& mechanism);

  // Runs the cases of a kind in f64 and f32 and finishes them.
  void for_each_case(const std::string& kind, const std::function<void(GoldenCase&)>& run) const;
  // Runs the cases of a file without kinds.
  void for_each_case(const std::function<void(GoldenCase&)>& run) const { for_each_case("", run); }

 private:
  std::string mechanism_;
  Hdf5Reader file_;
};

}  // namespace quire::test
