// The program `quire` as a function, so that another program can link it with mechanisms of its own.
#pragma once

namespace quire {

int quire_main(int argc, const char* const* argv);  // the exit code

}  // namespace quire
