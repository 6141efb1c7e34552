#include "layers/stacks/drt_reader.h"

#include <cmath>

#include "autograd/functions/basic.h"
#include "autograd/functions/listed_attention.h"
#include "layers/carried/fetched_entries.h"

namespace quire {

ChunkReader::ChunkReader(const Scope& scope, const ModelConfig& model, const DrtConfig& config,
                         const std::string& stack, int64_t group)
    : residual_(config.residual),
      softmax_one_(config.softmax_one),
      heads_(model.heads),
      head_size_(model.size_of_head()),
      chunks_{scope.reads_value(stack + ".keys"), scope.reads_value(stack + ".values"),
              scope.reads_value(stack + ".list")},
      query_(scope.child("query"), model.width, heads_ * head_size_, Initialization(model).matrix(model.width)),
      mlp_(scope, model) {
  const std::string of_group = stack + ".groups." + std::to_string(group);
  lists_ = {scope.reads_value(of_group + ".own"),        scope.reads_value(of_group + ".weight"),
            scope.reads_value(of_group + ".slot"),       scope.reads_value(of_group + ".keys"),
            scope.reads_value(of_group + ".values"),     scope.reads_value(of_group + ".key_scale"),
            scope.reads_value(of_group + ".value_scale")};
  if (config.query_norm) norm_.emplace(scope.child("query_norm"), model);
  if (config.out_projection) {
    const int64_t inner = heads_ * head_size_;
    out_.emplace(scope.child("out"), inner, model.width, Initialization(model).residual(inner));
  }
}

namespace {

// Lists [R, L, K] of chunks that all heads read.
Tensor of_all_heads(const Tensor& lists) {
  return lists.reshape({lists.dim(0), lists.dim(1), 1, lists.dim(2)});
}

}  // namespace

Variable ChunkReader::read(const Forward& f, const Variable& x) const {
  Tape& tape = f.tape;
  const Variable keys = f.value(chunks_.keys);
  const Variable slot = f.value(lists_.slot);
  if (!keys.defined() && !slot.defined()) return {};
  const int64_t rows = x.dim(0), tokens = x.dim(1);
  const Variable z = norm_ ? (*norm_)(tape, x) : x;
  const Variable q = reshape(tape, query_(tape, z), {rows, tokens, heads_, head_size_});
  ops::ListedAttentionInputs settings;
  settings.list = f.value(chunks_.list).value();
  settings.scale = 1 / std::sqrt(static_cast<double>(head_size_));
  settings.softmax_one = softmax_one_;
  const Variable weight = f.value(lists_.weight);
  Variable mixed;
  if (keys.defined()) {
    settings.blocks = of_all_heads(f.value(lists_.own).value());
    mixed = listed_attention(tape, q, keys, f.value(chunks_.values), weight, settings);
  }
  if (slot.defined()) {
    await_fetched(f.state.device());
    settings.blocks = of_all_heads(slot.value());
    settings.key_scale = f.value(lists_.key_scale).value();
    settings.value_scale = f.value(lists_.value_scale).value();
    const Variable of_stored =
        listed_attention(tape, q, f.value(lists_.keys), f.value(lists_.values), weight, settings);
    mixed = mixed.defined() ? add(tape, mixed, of_stored) : of_stored;
  }
  mixed = reshape(tape, mixed, {rows, tokens, heads_ * head_size_});
  return out_ ? (*out_)(tape, mixed) : mixed;
}

Variable ChunkReader::operator()(const Forward& f, const PartInput& input) const {
  Tape& tape = f.tape;
  const Variable o = read(f, input.x);
  const Variable x = o.defined() ? add(tape, input.x, o) : input.x;
  if (residual_ == ReaderResidual::normed) {
    const Variable y = (*input.norm)(tape, x);
    return subtract(tape, add(tape, y, mlp_(f, {y, nullptr})), input.x);
  }
  const Variable further = mlp_(f, {x, input.norm});
  return residual_ == ReaderResidual::add && o.defined() ? add(tape, further, o) : further;
}

}  // namespace quire
