#include "tests/golden/golden_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "core/check.h"
#include "tests/support/compare.h"
#include "tests/support/test_device.h"

namespace quire::test {

std::filesystem::path golden_folder() {
  const char* chosen = std::getenv("QUIRE_GOLDEN_DIR");
  if (chosen != nullptr && *chosen != '\0') return chosen;
  return std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/golden/data";
}

std::vector<std::string> golden_mechanisms(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".h5") names.push_back(entry.path().stem());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Tensor GoldenCase::get(const std::string& dataset) const {
  const Tensor tensor = file_.get(path_ + "/" + read(dataset)).to(test_device());
  return is_floating(tensor.dtype()) ? converted(tensor, dtype_) : tensor;
}

std::map<std::string, Variable> GoldenCase::leaves() const {
  std::map<std::string, Variable> found;
  for (const std::string& name : names("in")) {
    const Tensor value = get("in/" + name);
    if (is_floating(value.dtype())) found[name] = Variable::leaf(value);
  }
  return found;
}

void GoldenCase::expect(const std::string& dataset, const Tensor& got) {
  const Tensor expected = get(dataset);
  compared_.insert(dataset);
  if (!is_floating(expected.dtype())) {
    EXPECT_TRUE(same_bits(got, expected)) << dataset;
    return;
  }
  EXPECT_EQ(got.dtype(), dtype_) << dataset;
  const double error = relative_error(got, expected);
  EXPECT_LE(error, real("rtol")) << dataset;
  if (!(error <= worst_)) {
    worst_ = error;
    worst_at_ = dataset;
  }
}

void GoldenCase::expect_gradients(const std::map<std::string, Variable>& leaves) {
  for (const auto& [name, leaf] : leaves) {
    if (!has("grad/" + name)) continue;
    const Gradient& gradient = *leaf.gradient();
    expect("grad/" + name, gradient.has_value() ? gradient.value() : zeros(leaf.shape(), dtype_));
  }
}

void GoldenCase::expect_compared(const std::string& group) const {
  for (const std::string& name : names(group)) {
    const std::string path = fmt::format("{}/{}", group, name);
    const auto inside = compared_.lower_bound(path + "/");
    if (inside != compared_.end() && inside->starts_with(path + "/")) {
      expect_compared(path);
    } else {
      EXPECT_TRUE(compared_.contains(path)) << path << " was not compared";
    }
  }
}

void GoldenCase::expect_only(const std::string& attribute, double value) const {
  EXPECT_NEAR(real(attribute), value, 1e-12) << "this test computes no other " << attribute;
}

void GoldenCase::expect_all_read() const {
  // Sizes that the shapes of datasets have too, and what only describes a case.
  static const std::set<std::string> told_otherwise{
      "batch", "d_head",   "d_model", "d_v",  "has_ties", "head_type",     "heads",    "k_len",
      "kind",  "mem_size", "n_code",  "rtol", "seg_len",  "select_margin", "state_in", "vocab"};
  for (const std::string& attribute : file_.attributes(path_)) {
    EXPECT_TRUE(read_.contains(attribute) || told_otherwise.contains(attribute))
        << "the test did not ask for the attribute " << attribute;
  }
  for (const std::string& name : names("in")) {
    const auto inside = read_.lower_bound("in/" + name);
    EXPECT_TRUE(inside != read_.end() && inside->starts_with("in/" + name)) << "the test did not read in/" << name;
  }
}

void GoldenCase::finish(const std::string& mechanism) const {
  for (const char* group : {"out", "grad"}) {
    if (has(group)) expect_compared(group);
  }
  expect_all_read();
  fmt::print("golden {} {} {}: worst relative error {:.1e} ({}), allowed {:.0e}\n", mechanism, path_, name_of(dtype_),
             worst_, worst_at_, real("rtol"));
}

GoldenFile::GoldenFile(const std::filesystem::path& folder, const std::string& mechanism)
    : mechanism_(mechanism), file_(Hdf5Reader::open_file(folder / (mechanism + ".h5"))) {
  const std::string found = file_.attribute_text("/", "mechanism");
  if (found != mechanism) fail(ErrorKind::data, "golden {}: the file is about {}", mechanism, found);
  const int64_t schema = file_.attribute_int("/", "schema_version");
  if (schema != kGoldenSchema) {
    fail(ErrorKind::data, "golden {}: schema version {}, only {} is known", mechanism, schema, kGoldenSchema);
  }
}

void GoldenFile::for_each_case(const std::string& kind, const std::function<void(GoldenCase&)>& run) const {
  int64_t count = 0;
  for (const std::string& name : file_.list("/")) {
    if (!kind.empty() && file_.attribute_text(name, "kind") != kind) continue;
    ++count;
    for (const DType dtype : {DType::f64, DType::f32}) {
      SCOPED_TRACE(fmt::format("{} {} {} in {}", mechanism_, name, kind, name_of(dtype)));
      GoldenCase golden(file_, name, dtype);
      run(golden);
      golden.finish(mechanism_);
    }
  }
  EXPECT_GT(count, 0) << mechanism_ << " has no case of kind " << kind;
}

}  // namespace quire::test
