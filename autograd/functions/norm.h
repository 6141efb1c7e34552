// Normalisations over the last axis and activations; formulas in kernels/norm.h and kernels/elementwise.h.
#pragma once

#include "autograd/tape.h"
#include "kernels/elementwise.h"

namespace quire {

Variable rms_norm(Tape& tape, const Variable& x, const Variable& weight, double eps);
Variable layer_norm(Tape& tape, const Variable& x, const Variable& weight, const Variable& bias, double eps);
Variable l2_normalize(Tape& tape, const Variable& x, double eps);
Variable activation(Tape& tape, const Variable& x, ops::Activation kind);
Variable swiglu(Tape& tape, const Variable& gate, const Variable& up);

}  // namespace quire
