// The verbs of the program. Each adds itself; it runs when the command line is parsed and throws quire::Error.
#pragma once

namespace CLI {
class App;
}

namespace quire {

void add_prepare(CLI::App& program);
void add_tokenizer(CLI::App& program);
void add_train(CLI::App& program);
void add_eval(CLI::App& program);
void add_generate(CLI::App& program);
void add_needle(CLI::App& program);
void add_bench(CLI::App& program);
void add_config(CLI::App& program);
void add_inspect(CLI::App& program);
void add_plan(CLI::App& program);

}  // namespace quire
