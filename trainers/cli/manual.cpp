#include "trainers/cli/manual.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "trainers/cli/help.h"

namespace quire {

namespace {

// Returns text with what man would take for its own signs escaped.
std::string escaped(const std::string& text) {
  std::string out;
  bool begins = true;
  for (const char c : text) {
    if (begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
    begins = c == '\n';
  }
  return out;
}

std::vector<const CLI::App*> verbs_below(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Calls visit(verb, "train") or visit(verb, "tokenizer train") for each verb that does something itself.
template <typename Visit>
void for_verbs(const CLI::App& app, const std::string& before, const Visit& visit) {
  for (const CLI::App* verb : verbs_below(app)) {
    const std::string name = before + verb->get_name();
    if (verbs_below(*verb).empty()) {
      visit(*verb, name);
    } else {
      for_verbs(*verb, name + " ", visit);
    }
  }
}

std::string verb_text(const CLI::App& verb, const std::string& name) {
  const auto formatter = std::dynamic_pointer_cast<CLI::Formatter>(verb.get_formatter());
  std::string text = fmt::format(".SS quire {}\n{}.\n", escaped(name), escaped(verb.get_description()));
  for (const CLI::Option* option : verb.get_options()) {
    if (option->get_name() == "--help") continue;
    const bool positional = option->get_positional();
    text += fmt::format(".TP\n.B {}{}\n{}\n", escaped(formatter->make_option_name(option, positional)),
                        escaped(formatter->make_option_opts(option)), escaped(formatter->make_option_desc(option)));
  }
  // The footer is an example and, the same for all verbs, the exit codes.
  const std::string footer = verb.get_footer();
  const size_t codes = footer.find(kExitCodes);
  const std::string example = footer.substr(0, footer.find_last_not_of('\n', codes - 1) + 1);
  return text + fmt::format(".PP\n.nf\n{}\n.fi\n", escaped(example));
}

std::string words_of(const CLI::App& verb) {
  std::string words;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) words += (words.empty() ? "--" : " --") + name;
  }
  return words;
}

bool takes_keys(const CLI::App& verb) {
  const std::vector<const CLI::Option*> options = verb.get_options();
  return std::any_of(options.begin(), options.end(), [](const CLI::Option* option) {
    return option->get_positional() && option->get_description().find("key.path=value") != std::string::npos;
  });
}

}  // namespace

std::string manual_page(const CLI::App& program, const std::string& version) {
  std::string text = fmt::format(
      ".TH QUIRE 1 \"\" \"quire {}\" \"User Commands\"\n"
      ".SH NAME\nquire \\- train language models on long documents\n"
      ".SH SYNOPSIS\n.B quire\n.I VERB\n[\\fIargument\\fR ...]\n"
      ".SH DESCRIPTION\n{}\nA run is described by one YAML file; arguments of the form key.path=value change its keys, "
      "and\n.B quire config \\-\\-list\ndescribes them all.\n"
      ".SH VERBS\n",
      escaped(version), escaped(program.get_description()));
  for_verbs(program, "", [&](const CLI::App& verb, const std::string& name) { text += verb_text(verb, name); });
  text += fmt::format(".SH EXIT STATUS\n.nf\n{}\n.fi\n", escaped(kExitCodes));
  return text;
}

std::string bash_completion(const CLI::App& program, const std::vector<ConfigKey>& keys) {
  std::string first, cases, with_keys;
  for (const CLI::App* verb : verbs_below(program)) {
    first += (first.empty() ? "" : " ") + verb->get_name();
    std::string below;
    for (const CLI::App* one : verbs_below(*verb)) below += (below.empty() ? "" : " ") + one->get_name();
    if (!below.empty()) cases += fmt::format("    \"{}\") words='{}' ;;\n", verb->get_name(), below);
  }
  for_verbs(program, "", [&](const CLI::App& verb, const std::string& name) {
    cases += fmt::format("    \"{}\") words='{}' ;;\n", name, words_of(verb));
    if (takes_keys(verb)) with_keys += (with_keys.empty() ? "" : "|") + name;
  });
  std::string names;
  for (const ConfigKey& key : keys) {
    if (key.key.find(".N.") == std::string::npos) names += (names.empty() ? "" : " ") + key.key + "=";
  }
  return fmt::format(R"(# Completion of quire for bash, made by quire itself.
_quire() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} verb=${{COMP_WORDS[1]}} words= keys=
  COMPREPLY=()
  ((COMP_CWORD == 1)) && verb=
  [ "$verb" = tokenizer ] && ((COMP_CWORD > 2)) && verb="$verb ${{COMP_WORDS[2]}}"
  case $verb in
    "") words='{}' ;;
{}  esac
  case $verb in
    {}) keys='{}' ;;
  esac
  if [[ $current == -* || -z $verb || $verb == tokenizer ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  elif [[ -n $keys && $current != *=* && $current != */* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$keys" -- "$current"; compgen -f -- "$current")
    [[ ${{#COMPREPLY[@]}} -gt 0 && ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace
  fi
}}
complete -o bashdefault -o default -F _quire quire
)",
                     first, cases, with_keys, names);
}

}  // namespace quire
