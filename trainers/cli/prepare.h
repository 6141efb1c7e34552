// quire prepare: documents to a corpus.
#pragma once

namespace CLI {
class App;
}

namespace quire {

// Adds the verb to the program. It runs when the command line is parsed and throws quire::Error.
void add_prepare(CLI::App& app);

}  // namespace quire
