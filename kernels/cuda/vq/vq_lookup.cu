#include "kernels/cuda/runtime.h"
#include "kernels/vq_sizes.h"

namespace quire::cuda {

namespace {

template <typename T>
__global__ void lookup_codes_kernel(T* out, const int32_t* codes, const Wide<T>* codebook, int64_t count, int64_t heads,
                                    int64_t words, int64_t size) {
  for (int64_t i = first_element(); i < count * size; i += element_stride()) {
    const int64_t vector = i / size;
    const int64_t code = codes[vector];
    const bool known = code >= 0 && code < words;
    const int64_t from = (vector % heads * words + (known ? code : 0)) * size + i % size;
    out[i] = narrow<T>(known ? codebook[from] : Wide<T>{0});
  }
}

void lookup_codes(const Tensor& quantized, const Tensor& codes, const Tensor& codebook) {
  const CodeSizes s = check_lookup_codes(quantized, codes, codebook);
  dispatch(quantized.dtype(), [&](auto type) {
    using T = decltype(type);
    launch(lookup_codes_kernel<T>, blocks_for(quantized.numel()), kBlock, 0, quantized.data<T>(), codes.data<int32_t>(),
           codebook.data<Wide<T>>(), s.vectors * s.kv_heads, s.kv_heads, s.codes, s.size);
  });
}

}  // namespace

void bind_vq_lookup() {
  ops::lookup_codes.bind(DeviceKind::cuda, lookup_codes);
}

}  // namespace quire::cuda
