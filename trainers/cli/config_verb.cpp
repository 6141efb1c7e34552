#include "trainers/cli/config_verb.h"

#include <algorithm>
#include <memory>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/log.h"
#include "trainers/cli/help.h"

namespace quire {

namespace {

struct Arguments {
  std::string path;
  std::vector<std::string> overrides;
  bool check = false;
  std::string print;
  std::string explain;
  bool list = false;
  bool markdown = false;
  bool upgrade = false;
};

constexpr const char* kReferenceHead =
    R"(# Configuration reference

Every key of a run's YAML file, by section. `quire config --list --markdown` writes this page. `N` stands for an index in a
list. The column "may change" says where a key may have another value than the run began with: *on resume* with
`quire train --resume`, *at evaluation* with `quire eval`, `quire generate`, `quire needle` and in `evaluate.set`.
[OUTPUT.md](OUTPUT.md) describes what a run writes.

)";

// Writes beside the file and renames, so that it is the old one or the new one.
void upgrade(const std::string& path, const ConfigVerb& verb) {
  std::vector<std::string> changes;
  const std::string text = verb.upgrade(path, changes);
  if (changes.empty())
    return print(fmt::format("{}: has the keys of this version already; nothing was changed\n", path));
  replace_file_atomically(path, text);
  for (const std::string& change : changes) print(fmt::format("{}: {}\n", path, change));
}

void run(const Arguments& arguments, bool wants_print, const ConfigVerb& verb) {
  if ((arguments.list || !arguments.explain.empty()) && (!arguments.path.empty() || arguments.check || wants_print)) {
    fail(ErrorKind::config, "config: {} describes keys and takes no file; leave {} out",
         arguments.list ? "--list" : "--explain", arguments.path.empty() ? "--check and --print" : arguments.path);
  }
  if (arguments.upgrade) {
    if (arguments.path.empty() || !arguments.overrides.empty() || arguments.check || wants_print) {
      fail(ErrorKind::config, "config: --upgrade takes a YAML file and nothing else");
    }
    return upgrade(arguments.path, verb);
  }
  if (arguments.list && arguments.markdown) {
    return print(kReferenceHead + config_keys_as_markdown(verb.keys()) + verb.replaced);
  }
  if (arguments.list) return print(fit_to_terminal(format_config_keys(verb.keys())));
  if (!arguments.explain.empty())
    return print(fit_to_terminal(format_config_keys(find_config_keys(verb.keys(), arguments.explain))));
  if (!arguments.print.empty() && arguments.print != "full" && arguments.print != "minimal") {
    fail(ErrorKind::config, "--print {}: expects full or minimal; put the file before --print", arguments.print);
  }
  if (arguments.path.empty()) fail(ErrorKind::config, "config: give a YAML file, --list or --explain KEY");
  const ConfigTexts texts = verb.load(arguments.path, arguments.overrides);
  if (!wants_print || arguments.check) {
    const std::string note = verb.check(arguments.path, arguments.overrides);
    // Beside a printed configuration this goes to stderr as a message.
    if (wants_print) log_info(fmt::format("{}: valid{}", arguments.path, note));
    if (!wants_print) return print(fmt::format("{}: valid{}\n", arguments.path, note));
  }
  print(arguments.print == "minimal" ? texts.minimal : texts.full);
}

}  // namespace

std::vector<ConfigKey> find_config_keys(const std::vector<ConfigKey>& keys, const std::string& requested) {
  std::string name;
  for (size_t begin = 0; begin <= requested.size();) {
    const size_t end = std::min(requested.find('.', begin), requested.size());
    const std::string part = requested.substr(begin, end - begin);
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    name = join_key(name, is_index ? "N" : part);
    begin = end + 1;
  }
  std::vector<ConfigKey> found;
  for (const ConfigKey& key : keys) {
    if (key.key == name || key.key.rfind(name + ".", 0) == 0) found.push_back(key);
  }
  if (found.empty()) {
    const std::string meant = nearest_config_key(keys, name);
    fail(ErrorKind::config, "{}: no such key; {}quire config --list shows all keys", requested,
         meant.empty() ? "" : fmt::format("did you mean {}? ", meant));
  }
  return found;
}

void add_config_verb(Verb& program, ConfigVerb verb) {
  Verb& app = add_verb(program, "config", "Check, print and explain configurations",
                       "quire config run.yaml data.rows=16 --print minimal");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("CONFIG", arguments->path, "YAML file of a run");
  app.add_option("OVERRIDES", arguments->overrides, "key.path=value");
  app.add_flag(
      "--check", arguments->check,
      "Check the file and what it names, as quire train would: the corpus and its splits, init.from (the default)");
  Option* print_option = app.add_option("--print", arguments->print,
                                        "Print all keys (full) or those that differ from the defaults (minimal)");
  print_option->expected(0, 1)->type_name("[full|minimal]");
  app.add_option("--explain", arguments->explain, "Describe a key or the keys of a section")->type_name("KEY");
  Option* list = app.add_flag("--list", arguments->list, "Describe every key");
  app.add_flag("--markdown", arguments->markdown, "With --list: as the page configs/REFERENCE.md")->needs(list);
  app.add_flag("--upgrade", arguments->upgrade,
               "Rewrite a file of the previous version with the keys of this one; comments and layout stay");
  app.callback([arguments, print_option, verb = std::move(verb)] {
    on_root_alone([&] { run(*arguments, print_option->count() > 0, verb); });
  });
}

}  // namespace quire
