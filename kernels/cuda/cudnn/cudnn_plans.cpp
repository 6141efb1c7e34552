#include "kernels/cuda/cudnn/cudnn_plans.h"

#include <cudnn_frontend.h>

#include <map>

#include "core/check.h"
#include "kernels/cuda/cudnn/cudnn_library.h"

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

// Numbers the operands, alike in both graphs.
enum Operand : int64_t {
  kQ = 1,
  kK,
  kV,
  kOut,
  kDout,
  kLse,
  kDq,
  kDk,
  kDv,
  kQueryLengths,
  kKeyLengths,
  kScale,
  kQOffsets,
  kKOffsets,
  kVOffsets,
  kOutOffsets,
  kLseOffsets
};

// Returns the first line of a message and the first reason after it. The first line says what failed; then comes a
// paragraph for each engine that was asked.
std::string short_message(const std::string& message) {
  constexpr std::string_view kReason = "Reason: ";
  std::string text = message.substr(0, message.find('\n'));
  const size_t reason = message.find(kReason);
  if (reason == std::string::npos || reason < text.size()) return text;
  const size_t begin = reason + kReason.size();
  return text + " (" + message.substr(begin, message.find('\n', begin) - begin) + ")";
}

void require(fe::error_object error, const char* step) {
  if (error.is_bad()) {
    fail(ErrorKind::config, "cuDNN's attention, {}: {}{}", step, short_message(error.get_message()),
         missing_compiler());
  }
}

fe::DataType_t data_type(DType type) {
  if (type == DType::bf16) return fe::DataType_t::BFLOAT16;
  fail(ErrorKind::config, "cuDNN's attention has no {}", name_of(type));
}

// Sets the layout of [R, length, heads, features] in the order of cuDNN's axes: [R, heads, length, features]. With
// offsets of sequences cuDNN ignores the first stride.
void set_layout(Tensor_attributes& tensor, Operand operand, int64_t rows, int64_t length, int64_t heads,
                int64_t features, const GraphTensor& offsets) {
  tensor.set_uid(operand)
      .set_dim({rows, heads, length, features})
      .set_stride({length * heads * features, features, heads * features, 1});
  if (offsets) tensor.set_ragged_offset(offsets);
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
    auto attributes = fe::graph::SDPA_attributes().set_name("attention").set_generate_stats(true);
    describe(attributes);
    const auto [out, lse] = graph_->sdpa(input(kQ), input(kK), input(kV), attributes);
    set_output(out, kOut);
    lse->set_output(true);
    set_lse_layout(*lse);
    return build("forward pass");
  }

  std::unique_ptr<Graph> backward() {
    auto attributes =
        fe::graph::SDPA_backward_attributes().set_name("attention_backward").set_deterministic_algorithm(true);
    describe(attributes);
    if (shape_.ragged) {
      attributes.set_max_total_seq_len_q(shape_.rows * shape_.queries)
          .set_max_total_seq_len_kv(shape_.rows * shape_.keys);
    }
    Tensor_attributes lse;
    set_lse_layout(lse);
    const auto [dq, dk, dv] = graph_->sdpa_backward(input(kQ), input(kK), input(kV), input(kOut), input(kDout),
                                                    graph_->tensor(lse), attributes);
    set_output(dq, kDq);
    set_output(dk, kDk);
    set_output(dv, kDv);
    return build("backward pass");
  }

 private:
  void set_layout_of(Tensor_attributes& tensor, Operand operand) {
    const CudnnShape& s = shape_;
    switch (operand) {
      case kQ:
      case kDq:
        return set_layout(tensor, operand, s.rows, s.queries, s.heads, s.size, offsets(kQOffsets));
      case kK:
      case kDk:
        return set_layout(tensor, operand, s.rows, s.keys, s.kv_heads, s.size, offsets(kKOffsets));
      case kV:
      case kDv:
        return set_layout(tensor, operand, s.rows, s.keys, s.kv_heads, s.value_size, offsets(kVOffsets));
      default:  // kOut, kDout
        return set_layout(tensor, operand, s.rows, s.queries, s.heads, s.value_size, offsets(kOutOffsets));
    }
  }
  // When ragged, lse is ordered by token, as the other tensors are.
  void set_lse_layout(Tensor_attributes& tensor) {
    const CudnnShape& s = shape_;
    tensor.set_uid(kLse).set_data_type(fe::DataType_t::FLOAT).set_dim({s.rows, s.heads, s.queries, 1});
    if (s.ragged) {
      tensor.set_stride({s.queries * s.heads, 1, s.heads, 1}).set_ragged_offset(offsets(kLseOffsets));
    } else {
      tensor.set_stride({s.heads * s.queries, s.queries, 1, 1});
    }
  }
  GraphTensor input(Operand operand) {
    Tensor_attributes tensor;
    set_layout_of(tensor, operand);
    return graph_->tensor(tensor);
  }
  void set_output(const GraphTensor& tensor, Operand operand) {
    tensor->set_output(true);
    set_layout_of(*tensor, operand);
  }
  GraphTensor numbers(Operand operand, int64_t count, fe::DataType_t type) {
    return graph_->tensor(
        Tensor_attributes().set_uid(operand).set_data_type(type).set_dim({count, 1, 1, 1}).set_stride({1, 1, 1, 1}));
  }
  GraphTensor lengths(Operand operand) { return numbers(operand, shape_.rows, fe::DataType_t::INT32); }
  // Returns the tensor of offsets that all operands of a kind share; null where there are no sequences.
  GraphTensor offsets(Operand operand) {
    if (!shape_.ragged) return nullptr;
    GraphTensor& shared = offsets_[operand];
    if (!shared) shared = numbers(operand, shape_.rows + 1, fe::DataType_t::INT64);
    return shared;
  }

  // Sets the mask and the scale, whose value is passed at each call. cuDNN's left bound is the first distance that is
  // not seen. Aligned to the bottom right, the last query of a row is at its last key.
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
    require_built(graph_->validate(), pass);
    require_built(handle_ != nullptr ? graph_->build_operation_graph(handle_) : graph_->build_operation_graph(), pass);
    require_built(graph_->create_execution_plans({fe::HeurMode_t::A}), pass);
    graph_->deselect_workspace_greater_than(kCudnnWorkspaceBytes);
    fe::error_object left = graph_->check_support();
    if (left.is_bad()) {
      fail(ErrorKind::config, "cuDNN's attention, {}: no plan needs at most {} MiB of workspace ({}){}", pass,
           kCudnnWorkspaceBytes >> 20, short_message(left.get_message()), missing_compiler());
    }
    require_built(graph_->build_plans(), pass);
    return std::move(graph_);
  }

  // cuDNN's message about ragged tensors does not name their cause.
  void require_built(fe::error_object error, const char* pass) const {
    if (error.is_bad() && shape_.ragged) {
      fail(ErrorKind::config, "cuDNN's attention with several documents in a row (data.pack: concat), {}: {}", pass,
           short_message(error.get_message()));
    }
    require(std::move(error), pass);
  }

  const CudnnShape& shape_;
  cudnnHandle_t handle_;
  std::unique_ptr<Graph> graph_;
  std::map<Operand, GraphTensor> offsets_;
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

// Returns the handle of all plans, which the first call makes.
cudnnHandle_t handle_on(void* stream) {
  static const cudnnHandle_t made = [&] {
    cudnnHandle_t handle = nullptr;
    check(fe::detail::create_handle(&handle), "cudnnCreate");
    check(fe::detail::set_stream(handle, static_cast<cudaStream_t>(stream)), "cudnnSetStream");
    return handle;
  }();
  return made;
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
    add_sequences(operands, x.sequences);
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
    add_sequences(operands, x.sequences);
    execute(*backward_, operands, workspace);
  }

 private:
  using Operands = std::unordered_map<int64_t, void*>;

  // cuDNN takes what it only reads as void*, too.
  static void* pointer(const void* read) { return const_cast<void*>(read); }

  static void add_sequences(Operands& operands, const CudnnSequences& x) {
    for (const auto& [operand, table] : {std::pair{kQueryLengths, x.query_lengths},
                                         {kKeyLengths, x.key_lengths},
                                         {kQOffsets, x.q},
                                         {kKOffsets, x.k},
                                         {kVOffsets, x.v},
                                         {kOutOffsets, x.out},
                                         {kLseOffsets, x.lse}}) {
      if (table != nullptr) operands[operand] = pointer(table);
    }
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
