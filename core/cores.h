// How many cores this process may run on.
#pragma once

namespace quire {

int allowed_cores();

}  // namespace quire
