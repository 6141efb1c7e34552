// Products in plain loops, where cuBLASLt would be. Matrices are column-major, as there.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "core/bfloat16.h"

// NOLINTBEGIN: CUDA's own words
struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute;
  int32_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N, epilogue = CUBLASLT_EPILOGUE_DEFAULT, bias_type = -1;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_stride = 0;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  int64_t rows, columns, stride;
  int32_t count = 1;
  int64_t step = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  std::array<uint32_t, 4> alignments{256, 256, 256, 256};
};
// NOLINTEND

namespace quire::shim {

namespace {

int g_refusals = 0;
std::map<int, int> g_epilogues;

constexpr int kBias = 4, kAux = 128;
constexpr uint64_t kOwn = 0x9117;  // in the words of an algorithm of this library
constexpr uint64_t kAuxAlignment = 16;

struct Product {
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, c, d;

  int64_t rows() const { return d->rows; }
  int64_t columns() const { return d->columns; }
  int64_t inner() const { return desc->transpose_a == CUBLAS_OP_T ? a->rows : a->columns; }
  bool has(int part) const { return (desc->epilogue & part) != 0; }
};

uint64_t alignment_of(const void* pointer) {
  uint64_t alignment = 256;
  while (reinterpret_cast<uintptr_t>(pointer) % alignment != 0) alignment /= 2;
  return alignment;
}

// Checks the requirements of the documentation, and that a descriptor sets nothing that its epilogue does not use.
cublasStatus_t judge(const Product& p) {
  const bool a_transposed = p.desc->transpose_a == CUBLAS_OP_T;
  const bool b_transposed = p.desc->transpose_b == CUBLAS_OP_T;
  if ((a_transposed ? p.a->columns : p.a->rows) != p.rows() || (b_transposed ? p.b->columns : p.b->rows) != p.inner() ||
      (b_transposed ? p.b->rows : p.b->columns) != p.columns() || p.a->count != p.d->count ||
      p.b->count != p.d->count) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (p.c->type != p.d->type || p.c->rows != p.d->rows || p.c->columns != p.d->columns || p.c->count != p.d->count) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const cublasLtMatrixLayout_t matrix : {p.a, p.b, p.c, p.d}) {
    if (matrix->stride < matrix->rows) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool wide = p.a->type == CUDA_R_64F;
  if (p.a->type != p.b->type || wide != (p.desc->compute == CUBLAS_COMPUTE_64F)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.d->type != p.a->type && (p.a->type != CUDA_R_16BF || p.d->type != CUDA_R_32F)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (p.desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT && (wide || p.d->count > 1)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.has(kBias) != (p.desc->bias != nullptr) || p.has(kAux) != (p.desc->aux != nullptr)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (p.has(kBias) && p.desc->bias_type != -1 && p.desc->bias_type != p.d->type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.has(kAux) &&
      (p.desc->aux_stride % 8 != 0 || p.desc->aux_stride < p.rows() || alignment_of(p.desc->aux) < kAuxAlignment)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Sum>
Sum gelu(Sum x) {
  const Sum inner = std::sqrt(Sum{2} / static_cast<Sum>(M_PI)) * (x + static_cast<Sum>(0.044715) * x * x * x);
  return x / 2 * (1 + std::tanh(inner));
}

template <typename Sum>
Sum gelu_derivative(Sum x) {
  const Sum c = std::sqrt(Sum{2} / static_cast<Sum>(M_PI));
  const Sum t = std::tanh(c * (x + static_cast<Sum>(0.044715) * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * c * (1 + static_cast<Sum>(3 * 0.044715) * x * x);
}

template <typename Sum>
__attribute__((no_sanitize("address", "undefined", "thread"))) Sum add_products(const Sum* x, const Sum* y,
                                                                                int64_t count) {
  Sum sum{0};
  for (int64_t k = 0; k < count; ++k) sum += x[k] * y[k];
  return sum;
}

template <typename To, typename From, typename Sum>
void multiply(const Product& p, const void* a, const void* b, const void* c, void* d, Sum alpha, Sum beta) {
  const bool a_transposed = p.desc->transpose_a == CUBLAS_OP_T;
  const bool b_transposed = p.desc->transpose_b == CUBLAS_OP_T;
  const int64_t a_row = a_transposed ? p.a->stride : 1;
  const int64_t a_inner = a_transposed ? 1 : p.a->stride;
  const int64_t b_inner = b_transposed ? p.b->stride : 1;
  const int64_t b_column = b_transposed ? 1 : p.b->stride;
  const int64_t inner = p.inner();
  const int activation = p.desc->epilogue & ~(kBias | kAux);
  const bool is_gradient = p.desc->epilogue == CUBLASLT_EPILOGUE_DGELU;
  for (int64_t product = 0; product < p.d->count; ++product) {
    const From* x = static_cast<const From*>(a) + product * p.a->step;
    const From* y = static_cast<const From*>(b) + product * p.b->step;
    const To* added_to = static_cast<const To*>(c) + product * p.c->step;
    To* z = static_cast<To*>(d) + product * p.d->step;
    // Every operand is read here, and by nothing else: sanitizers need not watch all products of their elements.
    std::vector<Sum> left, right;
    for (int64_t i = 0; i < p.rows(); ++i) {
      for (int64_t k = 0; k < inner; ++k) left.push_back(static_cast<Sum>(x[i * a_row + k * a_inner]));
    }
    for (int64_t j = 0; j < p.columns(); ++j) {
      for (int64_t k = 0; k < inner; ++k) right.push_back(static_cast<Sum>(y[k * b_inner + j * b_column]));
    }
    for (int64_t j = 0; j < p.columns(); ++j) {
      for (int64_t i = 0; i < p.rows(); ++i) {
        const Sum* row = left.data() + i * inner;
        const Sum* column = right.data() + j * inner;
        Sum sum = add_products(row, column, inner);
        To& to = z[i + j * p.d->stride];
        sum *= alpha;
        if (beta != 0) sum += beta * static_cast<Sum>(added_to[i + j * p.c->stride]);
        if (p.has(kBias)) sum += static_cast<Sum>(static_cast<const To*>(p.desc->bias)[i]);
        To* const aux = p.has(kAux) ? static_cast<To*>(p.desc->aux) + i + j * p.desc->aux_stride : nullptr;
        if (aux != nullptr && !is_gradient) *aux = static_cast<To>(sum);
        if (is_gradient) sum *= gelu_derivative(static_cast<Sum>(*aux));
        if (activation == CUBLASLT_EPILOGUE_RELU) sum = std::max(sum, Sum{0});
        if (activation == CUBLASLT_EPILOGUE_GELU) sum = gelu(sum);
        to = static_cast<To>(sum);
      }
    }
  }
}

template <typename T>
cublasStatus_t take(T& field, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

void refuse_epilogues(int count) {
  g_refusals = count;
}

int epilogues_run(int epilogue) {
  return g_epilogues[epilogue];
}

}  // namespace quire::shim

using quire::shim::Product;

// NOLINTBEGIN: CUDA's own words
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "invalid value";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  static int one;
  *handle = &one;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  if ((compute == CUBLAS_COMPUTE_64F) != (scale == CUDA_R_64F)) return CUBLAS_STATUS_INVALID_VALUE;
  *desc = new cublasLtMatmulDescOpaque_t{compute};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  using quire::shim::take;
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(desc->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(desc->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(desc->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(desc->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return take(desc->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(desc->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(desc->aux_stride, value, bytes);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows,
                                          uint64_t columns, int64_t stride) {
  *layout = new cublasLtMatrixLayoutOpaque_t{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), stride};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                                                size_t bytes) {
  return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? quire::shim::take(layout->count, value, bytes)
                                                         : quire::shim::take(layout->step, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t bytes) {
  if (attribute < CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) return CUBLAS_STATUS_SUCCESS;
  const auto which = static_cast<size_t>(attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  return quire::shim::take(preference->alignments[which], value, bytes);
}

// The words of an algorithm: what marks it, and the alignments that it counts on.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int requested, cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  const cublasStatus_t status = quire::shim::judge({desc, a, b, c, d});
  if (status != CUBLAS_STATUS_SUCCESS || requested < 1) return status;
  *found = 1;
  *results = {};
  uint64_t* const words = results->algo.data;
  words[0] = quire::shim::kOwn;
  std::copy(preference->alignments.begin(), preference->alignments.end(), words + 1);
  words[5] = quire::shim::alignment_of(desc->bias);
  words[6] = quire::shim::alignment_of(desc->aux);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
                              cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
                              const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void*, size_t,
                              cudaStream_t stream) {
  using quire::shim::alignment_of;
  using quire::shim::multiply;
  const Product product{desc, a_layout, b_layout, c_layout, d_layout};
  const cublasStatus_t status = quire::shim::judge(product);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const uint64_t* const words = algorithm->data;
  if (words[0] != quire::shim::kOwn || alignment_of(a) < words[1] || alignment_of(b) < words[2] ||
      alignment_of(c) < words[3] || alignment_of(d) < words[4] || alignment_of(desc->bias) < words[5] ||
      alignment_of(desc->aux) < words[6]) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (desc->epilogue != CUBLASLT_EPILOGUE_DEFAULT && quire::shim::g_refusals > 0) {
    --quire::shim::g_refusals;
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  ++quire::shim::g_epilogues[desc->epilogue];
  const bool in_f64 = a_layout->type == CUDA_R_64F;
  const double factor = in_f64 ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
  const double kept = in_f64 ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  // Descriptors may be gone when the stream comes to it.
  quire::shim::on_stream(stream, [=, desc = *desc, layouts = std::array{*a_layout, *b_layout, *c_layout, *d_layout}] {
    const quire::shim::DeviceMemoryOpen open;
    auto [of_a, of_b, of_c, of_d] = layouts;
    auto own = desc;
    const Product given{&own, &of_a, &of_b, &of_c, &of_d};
    if (of_a.type == CUDA_R_64F) {
      multiply<double, double>(given, a, b, c, d, factor, kept);
    } else if (of_a.type == CUDA_R_32F) {
      multiply<float, float>(given, a, b, c, d, static_cast<float>(factor), static_cast<float>(kept));
    } else if (of_d.type == CUDA_R_32F) {
      multiply<float, quire::bfloat16>(given, a, b, c, d, static_cast<float>(factor), static_cast<float>(kept));
    } else {
      multiply<quire::bfloat16, quire::bfloat16>(given, a, b, c, d, static_cast<float>(factor),
                                                 static_cast<float>(kept));
    }
  });
  return status;
}
// NOLINTEND
