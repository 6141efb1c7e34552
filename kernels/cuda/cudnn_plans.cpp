#include "kernels/cuda/cudnn_plans.h"

#include <cudnn_frontend.h>

#include <optional>

#include "core/check.h"
#include "kernels/cuda/cudnn_library.h"

// cuDNN's headers call its library through this handle.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace quire::cuda {

namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using GraphTensor = std::shared_ptr<Tensor_attributes>;

// Operands by number, in both graphs.
enum Operand : int64_t { kQ = 1, kK, kV, kOut, kDout, kLse, kDq, kDk, kDv, kQueryLengths, kKeyLengths, kScale };

// The first line says what, and a paragraph for each engine that it has asked, why. The first reason is enough.
std::string short_message(const std::string& message) {
  constexpr std::string_view kReason = "Reason: ";
  std::string text = message.substr(0, message.find('\n'));
  const size_t reason = message.find(kReason);
  if (reason == std::string::npos || reason < text.size()) return text;
  const size_t begin = reason + kReason.size();
  return text + " (" + message.substr(begin, message.find('\n', begin) - begin) + ")";
}

void require(fe::error_object error, const char* step) {
  if (error.is_bad()) fail(ErrorKind::config, "cuDNN's attention, {}: {}", step, short_message(error.get_message()));
}

fe::DataType_t data_type(DType type) {
  if (type == DType::bf16) return fe::DataType_t::BFLOAT16;
  fail(ErrorKind::config, "cuDNN's attention has no {}", name_of(type));
}

// [R, length, heads, features] in the order that cuDNN counts in: [R, heads, length, features].
void set_layout(Tensor_attributes& tensor, Operand operand, int64_t rows, int64_t length, int64_t heads,
                int64_t features) {
  tensor.set_uid(operand)
      .set_dim({rows, heads, length, features})
      .set_stride({length * heads * features, features, heads * features, 1});
}

// Builds one of the two graphs.
class Builder {
 public:
  Builder(const CudnnShape& shape, const CudnnTarget& target, cudnnHandle_t handle,
          const std::shared_ptr<fe::DeviceProperties>& properties)
      : shape_(shape), handle_(handle), graph_(std::make_unique<Graph>()) {
    graph_->set_io_data_type(data_type(shape.type))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(target.chip);
    if (properties) graph_->set_device_properties(properties);
  }

  std::unique_ptr<Graph> forward() {
    const CudnnShape& s = shape_;
    auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    describe(attributes);
    const auto [out, lse] = graph_->sdpa(query(kQ, s.size), key(kK, s.size), key(kV, s.value_size), attributes);
    out->set_output(true);
    set_layout(*out, kOut, s.rows, s.queries, s.heads, s.value_size);
    lse->set_output(true).set_data_type(fe::DataType_t::FLOAT).set_uid(kLse);
    return build("forward pass");
  }

  std::unique_ptr<Graph> backward() {
    const CudnnShape& s = shape_;
    auto attributes =
        fe::graph::SDPA_backward_attributes().set_name("attention_backward").set_deterministic_algorithm(true);
    describe(attributes);
    const GraphTensor lse = graph_->tensor(Tensor_attributes()
                                               .set_uid(kLse)
                                               .set_data_type(fe::DataType_t::FLOAT)
                                               .set_dim({s.rows, s.heads, s.queries, 1})
                                               .set_stride({s.heads * s.queries, s.queries, 1, 1}));
    const auto [dq, dk, dv] =
        graph_->sdpa_backward(query(kQ, s.size), key(kK, s.size), key(kV, s.value_size), query(kOut, s.value_size),
                              query(kDout, s.value_size), lse, attributes);
    for (const GraphTensor& gradient : {dq, dk, dv}) gradient->set_output(true);
    set_layout(*dq, kDq, s.rows, s.queries, s.heads, s.size);
    set_layout(*dk, kDk, s.rows, s.keys, s.kv_heads, s.size);
    set_layout(*dv, kDv, s.rows, s.keys, s.kv_heads, s.value_size);
    return build("backward pass");
  }

 private:
  GraphTensor query(Operand operand, int64_t features) {
    Tensor_attributes tensor;
    set_layout(tensor, operand, shape_.rows, shape_.queries, shape_.heads, features);
    return graph_->tensor(tensor);
  }
  GraphTensor key(Operand operand, int64_t features) {
    Tensor_attributes tensor;
    set_layout(tensor, operand, shape_.rows, shape_.keys, shape_.kv_heads, features);
    return graph_->tensor(tensor);
  }
  GraphTensor lengths(Operand operand) {
    return graph_->tensor(Tensor_attributes()
                              .set_uid(operand)
                              .set_data_type(fe::DataType_t::INT32)
                              .set_dim({shape_.rows, 1, 1, 1})
                              .set_stride({1, 1, 1, 1}));
  }

  // The mask and the scale, which is handed over at each call. cuDNN's left bound is the first distance that is not
  // seen. Aligned to the bottom right, the last query of a row stands at its last key.
  template <typename Attributes>
  void describe(Attributes& attributes) {
    attributes.set_attn_scale(graph_->tensor(Tensor_attributes()
                                                 .set_uid(kScale)
                                                 .set_data_type(fe::DataType_t::FLOAT)
                                                 .set_dim({1, 1, 1, 1})
                                                 .set_stride({1, 1, 1, 1})
                                                 .set_is_pass_by_value(true)));
    attributes.set_diagonal_alignment(shape_.lengths ? fe::DiagonalAlignment_t::BOTTOM_RIGHT
                                                     : fe::DiagonalAlignment_t::TOP_LEFT);
    attributes.set_diagonal_band_right_bound(0);
    if (shape_.window >= 0) attributes.set_diagonal_band_left_bound(static_cast<int>(shape_.window) + 1);
    if (shape_.lengths) {
      attributes.set_padding_mask(true).set_seq_len_q(lengths(kQueryLengths)).set_seq_len_kv(lengths(kKeyLengths));
    }
  }

  std::unique_ptr<Graph> build(const char* pass) {
    require(graph_->validate(), pass);
    require(handle_ != nullptr ? graph_->build_operation_graph(handle_) : graph_->build_operation_graph(), pass);
    require(graph_->create_execution_plans({fe::HeurMode_t::A}), pass);
    graph_->deselect_workspace_greater_than(kCudnnWorkspaceBytes);
    fe::error_object left = graph_->check_support();
    if (left.is_bad()) {
      fail(ErrorKind::config, "cuDNN's attention, {}: no plan needs at most {} MiB of workspace ({})", pass,
           kCudnnWorkspaceBytes >> 20, short_message(left.get_message()));
    }
    require(graph_->build_plans(), pass);
    return std::move(graph_);
  }

  const CudnnShape& shape_;
  cudnnHandle_t handle_;
  std::unique_ptr<Graph> graph_;
};

int64_t workspace_of(const Graph& graph) {
  int64_t bytes = 0;
  require(graph.get_workspace_size(bytes), "workspace");
  return bytes;
}

void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) {
    throw DeviceError(fmt::format("cuDNN: {}: {}", call, fe::detail::get_error_string(status)));
  }
}

// One for all plans, made with the first.
cudnnHandle_t handle_on(void* stream) {
  static cudnnHandle_t handle = nullptr;
  if (handle == nullptr) {
    check(fe::detail::create_handle(&handle), "cudnnCreate");
    check(fe::detail::set_stream(handle, static_cast<cudaStream_t>(stream)), "cudnnSetStream");
  }
  return handle;
}

class GraphPlans final : public CudnnPlans {
 public:
  GraphPlans(const CudnnShape& shape, const CudnnTarget& target)
      : handle_(target.properties.empty() ? handle_on(target.stream) : nullptr) {
    std::shared_ptr<fe::DeviceProperties> properties;
    if (handle_ == nullptr) {
      properties = std::make_shared<fe::DeviceProperties>();
      require(properties->deserialize({target.properties.begin(), target.properties.end()}), "device properties");
    }
    forward_ = Builder(shape, target, handle_, properties).forward();
    backward_ = Builder(shape, target, handle_, properties).backward();
  }

  int64_t forward_workspace() const override { return workspace_of(*forward_); }
  int64_t backward_workspace() const override { return workspace_of(*backward_); }

  void forward(const CudnnForward& x, void* workspace) override {
    float scale = x.scale;
    Operands operands{{kQ, pointer(x.q)}, {kK, pointer(x.k)}, {kV, pointer(x.v)},
                      {kOut, x.out},      {kLse, x.lse},      {kScale, &scale}};
    add_lengths(operands, x.query_lengths, x.key_lengths);
    execute(*forward_, operands, workspace);
  }

  void backward(const CudnnBackward& x, void* workspace) override {
    float scale = x.scale;
    Operands operands{{kQ, pointer(x.q)},
                      {kK, pointer(x.k)},
                      {kV, pointer(x.v)},
                      {kOut, pointer(x.out)},
                      {kDout, pointer(x.dout)},
                      {kLse, pointer(x.lse)},
                      {kDq, x.dq},
                      {kDk, x.dk},
                      {kDv, x.dv},
                      {kScale, &scale}};
    add_lengths(operands, x.query_lengths, x.key_lengths);
    execute(*backward_, operands, workspace);
  }

 private:
  using Operands = std::unordered_map<int64_t, void*>;

  // cuDNN takes what it only reads as void*, too.
  static void* pointer(const void* read) { return const_cast<void*>(read); }

  static void add_lengths(Operands& operands, const void* query_lengths, const void* key_lengths) {
    if (key_lengths == nullptr) return;
    operands[kQueryLengths] = pointer(query_lengths);
    operands[kKeyLengths] = pointer(key_lengths);
  }

  void execute(const Graph& graph, Operands& operands, void* workspace) const {
    QUIRE_CHECK(handle_ != nullptr, "cuDNN's attention: plans for a GPU that is not at hand cannot run");
    fe::error_object error = graph.execute(handle_, operands, workspace);
    if (error.is_bad()) throw DeviceError("cuDNN: " + error.get_message());
  }

  cudnnHandle_t handle_;
  std::unique_ptr<Graph> forward_, backward_;
};

}  // namespace

std::unique_ptr<CudnnPlans> build_cudnn_plans(const CudnnShape& shape, const CudnnTarget& target) {
  fe::cudnn_dlhandle = load_cudnn();
  try {
    return std::make_unique<GraphPlans>(shape, target);
  } catch (const std::runtime_error& error) {
    // Its headers throw when a library lacks a function that they call.
    if (dynamic_cast<const Error*>(&error) != nullptr || dynamic_cast<const DeviceError*>(&error) != nullptr) throw;
    fail(ErrorKind::config, "cuDNN's attention: {}", error.what());
  }
}

std::string cudnn_library_version() {
  try {
    return cudnn_version_text(cudnn_version_number());
  } catch (const Error&) {
    return "";
  }
}

}  // namespace quire::cuda
