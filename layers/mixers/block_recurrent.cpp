#include "layers/mixers/block_recurrent.h"

#include "layers/pass/host_values.h"

namespace quire {

BlockRecurrent::BlockRecurrent(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables)
    : name_(scope.path()),
      config_(place.options.get<BlockRecurrentConfig>()),
      tokens_(scope, place, std::move(tables), RecurrentVectors::carried_tokens(config_)),
      vectors_(scope, place) {}

Variable BlockRecurrent::operator()(const Forward& f, const PartInput& input) const {
  Tape& tape = f.tape;
  const RecurrentTokens::Heads heads = tokens_.heads(tape, input.normalised(tape));
  const int64_t rows = heads.q.dim(0), length = heads.q.dim(1);
  const CarriedTokens carried = tokens_.carried(f);
  const Variable own = tokens_.attend(f, carried, heads);
  if (f.write_state) tokens_.keep(f, heads.k, heads.v);

  const std::vector<RecurrentPiece> pieces = vectors_.pieces(f, carried);
  const int64_t read = (config_.previous_window ? 2 : 1) * config_.window;
  const RecurrentTables tables = recurrent_tables(pieces, rows, length, read, config_.mask_empty, f.state.device());
  const auto with_carried = [&](const Variable& before, const Variable& x) {
    return carried.before > 0 ? concatenate(tape, std::vector{before, x}, 1) : x;
  };
  const Variable before = vectors_.carried(f);
  const RecurrentResult result =
      recurrent_states(tape, config_, vectors_.shape(), vectors_.weights(), heads.q_states,
                       with_carried(carried.k, heads.k), with_carried(carried.v, heads.v), before, tables);
  const Variable& after = result.after.empty() ? before : result.after.back();
  if (f.write_state) vectors_.put(f, pieces, after);
  if (f.wants_telemetry()) {
    report(f, pieces, own, result.read);
    vectors_.report(f, before, after);
  }
  return tokens_.out(tape, own, result.read, input.residual);
}

// share: that of the states in the length of what the two attentions put out.
void BlockRecurrent::report(const Forward& f, const std::vector<RecurrentPiece>& pieces, const Variable& own,
                            const Variable& read) const {
  const std::vector<double> of_tokens = values_on_host(own.value()), of_states = values_on_host(read.value());
  const auto size = static_cast<size_t>(own.dim(3)), heads = static_cast<size_t>(own.dim(2));
  double a = 0, b = 0;
  for (const RecurrentPiece& piece : pieces) {
    const auto first = static_cast<size_t>(f.batch.at(piece.row, piece.first_query)) * heads;
    for (size_t n = first; n < first + static_cast<size_t>(piece.queries) * heads; ++n) {
      a += length_of(of_tokens, n * size, size);
      b += length_of(of_states, n * size, size);
    }
  }
  f.add_telemetry(name_ + ".share", a + b > 0 ? b / (a + b) : 0);
}

}  // namespace quire
