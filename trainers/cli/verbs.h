// The verbs of the program. Each adds itself; it runs when the command line is parsed and throws quire::Error.
#pragma once

#include "trainers/cli/verb.h"

namespace quire {

void add_prepare(Verb& program);
void add_tokenizer(Verb& program);
void add_train(Verb& program);
void add_eval(Verb& program);
void add_compare(Verb& program);
void add_sweep(Verb& program);
void add_report(Verb& program);
void add_generate(Verb& program);
void add_serve(Verb& program);
void add_needle(Verb& program);
void add_trace(Verb& program);
void add_bench(Verb& program);
void add_config(Verb& program);
void add_inspect(Verb& program);
void add_plan(Verb& program);
void add_import(Verb& program);
void add_export(Verb& program);

}  // namespace quire
