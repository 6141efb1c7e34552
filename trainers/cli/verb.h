// A verb of the program with its options. It hides CLI11, which takes ten seconds to compile, from the files of the
// verbs.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quire {

class Option {
 public:
  explicit Option(CLI::Option& option) : option_(option) {}
  Option* type_name(const std::string& name);
  Option* required();
  Option* capture_default_str();          // --help shows the variable's present value
  Option* expected(int min, int max);     // the number of values that follow
  Option* needs(Option* other);           // may only be given with `other`
  Option* excludes(Option* other);        // may not be given with `other`
  Option* range(double min, double max);  // the allowed numbers
  Option* one_of(std::vector<std::string> texts);
  Option* allow_empty();  // an empty value is allowed, for texts
  // returns an empty text for a good value
  Option* check(const std::function<std::string(const std::string&)>& complaint);
  size_t count() const;  // how often the option was given

 private:
  CLI::Option& option_;
};

class Verb {
 public:
  explicit Verb(CLI::App& app);
  ~Verb();
  Verb(const Verb&) = delete;
  Verb& operator=(const Verb&) = delete;

  // Adds an option such as "--rows" or, for an argument after the verb, "CONFIG". `value` is set while the command line
  // is parsed and must live until the callback is done; verb.cpp lists the types it may have. An option takes one value
  // each time it is given; a list keeps all of them. An empty value is an error.
  template <typename T>
  Option* add_option(const std::string& name, T& value, const std::string& description = "");
  Option* add_flag(const std::string& name, bool& value, const std::string& description);
  Option* add_flag_callback(const std::string& name, const std::function<void()>& given,
                            const std::string& description);
  void callback(const std::function<void()>& run);
  size_t count(const std::string& option) const;

  Verb& add_verb(const std::string& name, const std::string& description, const std::string& footer);
  void require_verb();  // one of the verbs below this one must be given

 private:
  Option* keep(CLI::Option* option);

  CLI::App& app_;
  std::vector<std::unique_ptr<Option>> options_;
  std::vector<std::unique_ptr<Verb>> verbs_;
};

}  // namespace quire
