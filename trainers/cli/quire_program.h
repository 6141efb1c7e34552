// The program `quire` as a function, so that another program can link it with its own mechanisms.
#pragma once

namespace quire {

int quire_main(int argc, const char* const* argv);  // returns the exit code

}  // namespace quire
