#include "core/error.h"

namespace quire {

Error::~Error() = default;

}  // namespace quire
