#include "trainers/cli/verb.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "trainers/cli/numbers.h"

namespace quire {

namespace {

constexpr const char* kNotEmpty = "not_empty";

// Refuses empty values: a shell variable that is not set must not mean the default.
CLI::Validator not_empty() {
  return {[](const std::string& text) -> std::string { return text.empty() ? "the value is empty" : ""; }, "",
          kNotEmpty};
}

template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;

}  // namespace

Option* Option::type_name(const std::string& name) {
  option_.type_name(name);
  return this;
}

Option* Option::required() {
  option_.required();
  return this;
}

Option* Option::capture_default_str() {
  option_.capture_default_str();
  return this;
}

Option* Option::expected(int min, int max) {
  option_.expected(min, max);
  return this;
}

Option* Option::needs(Option* other) {
  option_.needs(&other->option_);
  return this;
}

Option* Option::excludes(Option* other) {
  option_.excludes(&other->option_);
  return this;
}

Option* Option::range(double min, double max) {
  option_.check([min, max](const std::string& text) { return number_in_range(text, min, max); });
  return this;
}

Option* Option::one_of(std::vector<std::string> texts) {
  option_.check(CLI::IsMember(std::move(texts)));
  return this;
}

Option* Option::check(const std::function<std::string(const std::string&)>& complaint) {
  option_.check(complaint);
  return this;
}

Option* Option::allow_empty() {
  option_.get_validator(kNotEmpty)->active(false);
  return this;
}

size_t Option::count() const {
  return option_.count();
}

Verb::Verb(CLI::App& app) : app_(app) {}
Verb::~Verb() = default;

Option* Verb::keep(CLI::Option* option) {
  options_.push_back(std::make_unique<Option>(*option));
  return options_.back().get();
}

template <typename T>
Option* Verb::add_option(const std::string& name, T& value, const std::string& description) {
  CLI::Option* const option = app_.add_option(name, value, description);
  option->check(not_empty());
  // A list takes one value each time, because the next word belongs to the verb.
  if (kIsList<T> && name.starts_with("-")) option->allow_extra_args(false);
  if constexpr (std::is_same_v<T, uint64_t> || std::is_same_v<T, std::optional<uint64_t>>) option->check(seed_number);
  if constexpr (std::is_same_v<T, double>) option->check(finite_number);
  return keep(option);
}

template Option* Verb::add_option(const std::string&, int64_t&, const std::string&);
template Option* Verb::add_option(const std::string&, uint64_t&, const std::string&);
template Option* Verb::add_option(const std::string&, double&, const std::string&);
template Option* Verb::add_option(const std::string&, std::string&, const std::string&);
template Option* Verb::add_option(const std::string&, std::filesystem::path&, const std::string&);
template Option* Verb::add_option(const std::string&, std::vector<std::string>&, const std::string&);
template Option* Verb::add_option(const std::string&, std::vector<std::filesystem::path>&, const std::string&);
template Option* Verb::add_option(const std::string&, std::optional<int64_t>&, const std::string&);
template Option* Verb::add_option(const std::string&, std::optional<uint64_t>&, const std::string&);
template Option* Verb::add_option(const std::string&, std::optional<std::string>&, const std::string&);

Option* Verb::add_flag(const std::string& name, bool& value, const std::string& description) {
  return keep(app_.add_flag(name, value, description));
}

Option* Verb::add_flag_callback(const std::string& name, const std::function<void()>& given,
                                const std::string& description) {
  return keep(app_.add_flag_callback(name, given, description));
}

void Verb::callback(const std::function<void()>& run) {
  app_.callback(run);
}

size_t Verb::count(const std::string& option) const {
  return app_.count(option);
}

Verb& Verb::add_verb(const std::string& name, const std::string& description, const std::string& footer) {
  CLI::App* app = app_.add_subcommand(name, description);
  app->footer(footer);
  verbs_.push_back(std::make_unique<Verb>(*app));
  return *verbs_.back();
}

void Verb::require_verb() {
  app_.require_subcommand(1);
}

}  // namespace quire
