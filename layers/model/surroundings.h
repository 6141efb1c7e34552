// Holds what the layers of a model share while they are made.
#pragma once

#include <memory>
#include <span>

#include "layers/config/model_config.h"
#include "layers/position/position_tables.h"

namespace quire {

struct Surroundings {
  std::shared_ptr<PositionTables> tables = std::make_shared<PositionTables>();
  std::span<const MemoryConfig> memories = {};  // those of the layer, in their order
};

}  // namespace quire
