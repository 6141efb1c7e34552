// Token shift: features of a mixer's input that come from the token before (Peng et al. 2023, RWKV, section 3.1, with
// fixed shares instead of learned ones). A key then says what stood before it, so that a single layer can look up what
// followed an earlier occurrence of a token; without it two layers have to find each other (Olsson et al. 2022,
// "smeared keys").
#pragma once

#include <memory>
#include <vector>

#include "layers/parameters/scope.h"
#include "layers/parts/part.h"

namespace quire {

// Says which rows of a table of the carried token and the tokens of a row are read: 0 is the carried token, 1 + t token
// t, -1 zeros. Inserted tokens are nobody's token before.
struct ShiftRows {
  std::vector<int32_t> before;   // [R * T]: of the token before each; -1 at the beginning of a document
  std::vector<int32_t> last;     // [R]: of the last token, which the row carries on
  std::vector<uint8_t> written;  // [R]: 0 where the row has read no token that it could carry on
};
// segments: those of the batch, S of them. empty [S]: 1 for segments that begin with nothing.
ShiftRows shift_rows(const Batch& batch, const std::vector<Segment>& segments, const std::vector<uint8_t>& empty);

// A mixer whose input [R, T, E] has its first `features` (1 to E), before the normalisation, from the token before:
// zeros at the beginning of a document. A document carries them from one subsequence to the next, as constants.
class ShiftedMixer final : public Part {
 public:
  ShiftedMixer(const Scope& scope, int64_t features, std::unique_ptr<Part> mixer);

  Variable operator()(const Forward& f, const PartInput& input) const override;
  bool adds_residual() const override { return mixer_->adds_residual(); }

 private:
  Variable shifted(const Forward& f, const Variable& x) const;

  int64_t features_;
  RegisterId before_;  // [features] of the last token
  std::unique_ptr<Part> mixer_;
};

}  // namespace quire
