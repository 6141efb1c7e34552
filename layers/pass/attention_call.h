// Declares, through the scope of a layer, how it calls ops::attention in training steps.
#pragma once

#include <string>

#include "core/config/config_value.h"
#include "kernels/attention_choices.h"

namespace quire {

enum class AttentionImplementation { own, cudnn, automatic };

template <>
struct EnumNames<AttentionImplementation> {
  static constexpr auto value = std::to_array<std::pair<AttentionImplementation, std::string_view>>(
      {{AttentionImplementation::own, "own"},
       {AttentionImplementation::cudnn, "cudnn"},
       {AttentionImplementation::automatic, "auto"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the kernels of this program", "those of cuDNN; a run that it cannot compute is refused at the start",
       "on a GPU whichever is faster, measured when the run begins and kept when it goes on; own where cuDNN cannot"});
};

struct AttentionCall {
  int64_t layer = 0;
  AttentionImplementation implementation = AttentionImplementation::own;
  AttentionProblem problem = {};  // without the numbers of the batch, as the layer declares it
  // Empty, or what in the configuration keeps cuDNN from it. Its library and the device are not asked.
  std::string why_not_cudnn = {};
  std::string key = {};  // of the implementation, in the configuration of the model
};

}  // namespace quire
