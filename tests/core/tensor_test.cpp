// Tests shapes and tensors: views see the right elements of a shared storage, and every wrong view is refused.
#include "core/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/check.h"
#include "tests/support/expect_error.h"

namespace quire {
namespace {

Tensor counted(const Shape& shape) {
  std::vector<int32_t> values(static_cast<size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), 0);
  return Tensor::from(values, shape);
}

// The elements of any view, in the order of its axes.
std::vector<int32_t> elements(const Tensor& view) {
  std::vector<int32_t> all;
  for (int64_t i = 0; i < view.numel(); ++i) {
    int64_t left = i;
    int64_t at = 0;
    for (int axis = view.rank() - 1; axis >= 0; --axis) {
      at += left % view.dim(axis) * view.stride(axis);
      left /= view.dim(axis);
    }
    all.push_back(view.data<int32_t>()[at]);
  }
  return all;
}

using Values = std::vector<int32_t>;

TEST(Shape, CountsComparesAndPrints) {
  const Shape shape{4, 1, 3};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.numel(), 12);
  EXPECT_EQ(shape[-1], 3);
  EXPECT_EQ(shape.to_string(), "[4, 1, 3]");
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ((Shape{2, 0, 5}.numel()), 0);
  EXPECT_EQ(shape, (Shape{4, 1, 3}));
  EXPECT_FALSE(shape == (Shape{4, 1}));
  EXPECT_FALSE(shape == (Shape{4, 3, 1}));
  EXPECT_ERROR((Shape{1, 1, 1, 1, 1, 1, 1}), ErrorKind::internal, "rank 7 is above 6");
}

TEST(Tensor, KeepsItsValues) {
  const Tensor tensor = counted({2, 3});
  EXPECT_EQ(tensor.to_vector<int32_t>(), (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(tensor.bytes(), 24);
  EXPECT_TRUE(tensor.is_contiguous());
  EXPECT_EQ(Tensor::zeros({2, 2}, DType::f64).to_vector<double>(), std::vector<double>(4, 0.0));
  EXPECT_EQ(counted({0, 3}).to_vector<int32_t>(), Values{});
  EXPECT_FALSE(Tensor().defined());
  EXPECT_ERROR(Tensor().raw(), ErrorKind::internal, "undefined");
  EXPECT_ERROR(tensor.data<float>(), ErrorKind::internal, "elements are i32, not f32");
  EXPECT_ERROR(Tensor::from(Values{1, 2}, {3}), ErrorKind::internal, "2 values for [3]");
  EXPECT_ERROR(Tensor::empty({2, -1}, DType::f32), ErrorKind::internal, "negative size in [2, -1]");
}

TEST(Tensor, ViewsShareTheStorage) {
  const Tensor tensor = counted({2, 3});
  EXPECT_EQ(tensor.use_count(), 1);
  const Tensor row = tensor.select(0, 1);
  EXPECT_EQ(tensor.use_count(), 2);
  row.data<int32_t>()[0] = 30;
  EXPECT_EQ(tensor.to_vector<int32_t>(), (Values{0, 1, 2, 30, 4, 5}));
  const Tensor copy = Tensor::empty_like(tensor);
  copy.copy_from(tensor);
  copy.zero();
  EXPECT_EQ(tensor.data<int32_t>()[3], 30);
}

TEST(Tensor, ViewsSeeTheirElements) {
  const Tensor tensor = counted({2, 3, 4});
  EXPECT_EQ(elements(tensor.slice(1, 1, 3).select(2, 0)), (Values{4, 8, 16, 20}));
  EXPECT_EQ(elements(tensor.slice(-1, 3, 4)), (Values{3, 7, 11, 15, 19, 23}));
  EXPECT_EQ(elements(tensor.slice(0, 1, 1)), Values{});
  EXPECT_EQ(elements(tensor.select(0, 1).transpose(0, 1)), (Values{12, 16, 20, 13, 17, 21, 14, 18, 22, 15, 19, 23}));
  const std::vector<int> axes{2, 0, 1};
  const Tensor permuted = tensor.permute(axes);
  EXPECT_EQ(permuted.shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(elements(permuted.select(0, 1)), (Values{1, 5, 9, 13, 17, 21}));
  EXPECT_EQ(elements(tensor.reshape({6, 4}).select(0, 5)), (Values{20, 21, 22, 23}));
  EXPECT_EQ(elements(counted({2, 1}).broadcast({2, 2, 3})), (Values{0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1}));
  // Every second element from behind the first.
  EXPECT_EQ(elements(tensor.strided({3}, {2}, 1)), (Values{1, 3, 5}));
  EXPECT_EQ(elements(tensor.slice(0, 1, 2).strided({2}, {1}, -12)), (Values{0, 1}));
}

TEST(Tensor, KnowsWhetherAViewIsContiguous) {
  const Tensor tensor = counted({2, 3, 4});
  EXPECT_TRUE(tensor.slice(0, 1, 2).is_contiguous());
  EXPECT_TRUE(tensor.select(0, 1).is_contiguous());
  EXPECT_FALSE(tensor.slice(1, 0, 2).is_contiguous());
  EXPECT_FALSE(tensor.transpose(1, 2).is_contiguous());
  EXPECT_TRUE(counted({3, 1}).transpose(0, 1).is_contiguous()) << "an axis of size 1 may have any stride";
  EXPECT_FALSE(counted({1}).broadcast({2}).is_contiguous());
  const Tensor apart = tensor.slice(1, 0, 2);
  EXPECT_ERROR(apart.reshape({16}), ErrorKind::internal, "not contiguous");
  EXPECT_ERROR(apart.zero(), ErrorKind::internal, "not contiguous");
  EXPECT_ERROR(apart.to_vector<int32_t>(), ErrorKind::internal, "not contiguous");
  EXPECT_ERROR(apart.copy_from(counted({2, 2, 4})), ErrorKind::internal, "must be contiguous");
}

TEST(Tensor, RefusesViewsThatDoNotFit) {
  const Tensor tensor = counted({2, 3});
  EXPECT_ERROR(tensor.slice(0, 1, 3), ErrorKind::internal, "1..3 of axis 0 in [2, 3]");
  EXPECT_ERROR(tensor.slice(0, -1, 1), ErrorKind::internal, "slice");
  EXPECT_ERROR(tensor.slice(0, 2, 1), ErrorKind::internal, "slice");
  EXPECT_ERROR(tensor.select(1, 3), ErrorKind::internal, "3..4 of axis 1");
  EXPECT_ERROR(tensor.reshape({4}), ErrorKind::internal, "has not the size");
  const std::vector<int> twice{0, 0};
  const std::vector<int> one{0};
  EXPECT_ERROR(tensor.permute(twice), ErrorKind::internal, "axis 0 twice");
  EXPECT_ERROR(tensor.permute(one), ErrorKind::internal, "1 axes");
  EXPECT_ERROR(tensor.broadcast({3}), ErrorKind::internal, "more axes");
  EXPECT_ERROR(tensor.broadcast({3, 3}), ErrorKind::internal, "does not fit");
  EXPECT_ERROR(tensor.strided({4}, {2}, 0), ErrorKind::internal, "does not lie in a storage of 6");
  EXPECT_ERROR(tensor.strided({2}, {1}, -1), ErrorKind::internal, "strided");
  EXPECT_ERROR(tensor.copy_from(counted({5})), ErrorKind::internal, "copy");
  EXPECT_ERROR(tensor.copy_from(Tensor::zeros({2, 3}, DType::f32)), ErrorKind::internal, "i32 [2, 3] from f32 [2, 3]");
  EXPECT_ERROR(tensor.upload(nullptr, 5), ErrorKind::internal, "5 values into [2, 3]");
}

TEST(Tensor, LiesOverMemoryThatAnotherOwns) {
  const auto memory = std::make_shared<std::array<int32_t, 4>>(std::array<int32_t, 4>{1, 2, 3, 4});
  Tensor tensor = Tensor::over(memory, {2, 2}, DType::i32, kCpu);
  EXPECT_EQ(memory.use_count(), 2);
  EXPECT_EQ(elements(tensor.transpose(0, 1)), (Values{1, 3, 2, 4}));
  tensor = Tensor();
  EXPECT_EQ(memory.use_count(), 1);
}

}  // namespace
}  // namespace quire
