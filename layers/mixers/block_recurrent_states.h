// The state vectors of a block-recurrent layer (Hutchins et al. 2022, "Block-Recurrent Transformers"), apart from what
// rows carry. At the end of each window of a document the states read each other and the keys of the last two windows,
// and a gate takes up what they read:
//
//   rn = rms(r) g + P            a = [softmax(q_s k_s) v_s ; softmax(q_t K) V]      K, V: of the tokens, not rotated
//   skip:   r' = G(r, W a; a)    dual:  t = G(r, W a; a), u = relu(W1 rms(t) g2), r' = G(t, W2 u; u)
//   single: u = relu(W1 a), r' = G(r, tanh(W2 u); u)
//
// Tokens read k_s, v_s of the states before their window's end.
#pragma once

#include <vector>

#include "autograd/tape.h"
#include "layers/mixers/block_recurrent_config.h"

namespace quire {

// Number that is added to the squared length of queries and keys that are normalised.
inline constexpr double kRecurrentKeyEps = 1e-6;

// A gate G(c, z; h): c + z, or shares of both. c, z wide [R, N, E], h [R, N, F].
template <typename V>
struct RecurrentGateOf {
  V bias;    // wide [E]; lstm: [2, E], the share that is kept first
  V weight;  // full: [E, F]; lstm: [2 E, F]
};
Variable recurrent_gate(Tape& tape, RecurrentGate kind, const RecurrentGateOf<Variable>& gate, const Variable& c,
                        const Variable& z, const Variable& h);

// Weights [out, in] for width E, N states, H heads of D. What the options leave out is undefined.
template <typename V>
struct RecurrentWeightsOf {
  V norm, position, initial;         // wide [E], [N, E], [N, E]
  V query, key, value, token_query;  // [H D, E]
  V self_scale, token_scale;         // [H]: qk_norm
  V out;                             // [E, 2 H D]: skip, dual
  V mlp_norm, up, down;              // [E], [F, E] or [F, 2 H D], [E, F]: dual, single
  RecurrentGateOf<V> attention_gate, mlp_gate;
};
using RecurrentWeights = RecurrentWeightsOf<Variable>;

// Tokens of one window of a document in a row. Keys count from the first key of the row, which may lie before the pass.
struct RecurrentPiece {
  int64_t row = 0;
  int64_t first_query = 0, queries = 0;
  int64_t known = 0;                // tokens of the document before the piece whose keys are known
  int64_t first_key = 0, keys = 0;  // of the last two windows; no keys: the window goes on behind the pass
  bool begins = false;              // the states are the initial ones
  bool cut = false;                 // the states before it are constant in the backward pass
};

// Lists the pieces of all rows as tables. The pieces of a row follow each other in steps.
struct RecurrentTables {
  struct Step {
    Tensor begins, cut, updates;  // u8 [R, 1, 1]; undefined where no row does
    Tensor key;                   // i32 [R, keys]: places among the S keys of a row, the newest last, -1: none
    std::vector<int32_t> keys;    // [R]: how many the states see
  };
  std::vector<Step> steps;
  Tensor step_of;  // i32 [R, T]: the step whose states a token reads; -1: none
};
// keys: those that an update reads at most, and without mask_empty always: those that a document does not have are
// zero.
RecurrentTables recurrent_tables(const std::vector<RecurrentPiece>& pieces, int64_t rows, int64_t tokens, int64_t keys,
                                 bool mask_empty, Device device);

struct RecurrentShape {
  int64_t heads;
  double norm_eps;
};

// The states before the tokens of a step, and what these tokens read of them.
struct RecurrentSight {
  Variable states;        // wide [R, N, E]
  Variable normed;        // [R, N, E]: rn
  Variable keys, values;  // [R, N, H, D]
};

// The formulas above on a tape. type: that of tokens.
class RecurrentRule {
 public:
  RecurrentRule(Tape& tape, const BlockRecurrentConfig& config, const RecurrentShape& shape,
                const RecurrentWeights& weights, DType type);

  // states wide [R, N, E]: those that the step before left.
  RecurrentSight before(Variable states, const RecurrentTables::Step& step) const;
  // Returns the states after the step. keys, values [R, S, H, D]: of tokens; keys are normalised.
  Variable after(const RecurrentSight& sight, const RecurrentTables::Step& step, const Variable& keys,
                 const Variable& values) const;

 private:
  Variable unit_heads(const Variable& x, const Variable& weight, const Variable& factor) const;
  Variable read(const RecurrentSight& sight, const RecurrentTables::Step& step, const Variable& keys,
                const Variable& values) const;

  Tape& tape_;
  const BlockRecurrentConfig& config_;
  RecurrentShape shape_;
  RecurrentWeights w_;
  DType type_;
};

// Returns what tokens read, [R, T, H, D]: token (r, t) reads the keys and values of sights[step_of[r, t]], or nothing
// where that is -1. queries [R, T, H, D] are normalised and scaled; i32 step_of [R, T].
Variable read_states(Tape& tape, const BlockRecurrentConfig& config, const Variable& queries,
                     const std::vector<RecurrentSight>& sights, const Tensor& step_of);

struct RecurrentResult {
  Variable read;                // [R, T, H, D]: what tokens read of the states
  std::vector<Variable> after;  // wide [R, N, E] after each step
};
// token_queries [R, T, H, D], normalised and scaled; keys, values [R, S, H, D], keys normalised; states wide [R, N, E].
RecurrentResult recurrent_states(Tape& tape, const BlockRecurrentConfig& config, const RecurrentShape& shape,
                                 const RecurrentWeights& weights, const Variable& token_queries, const Variable& keys,
                                 const Variable& values, Variable states, const RecurrentTables& tables);

}  // namespace quire
