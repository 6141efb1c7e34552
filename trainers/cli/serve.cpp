#include <algorithm>
#include <memory>

#include "core/check.h"
#include "core/files/file_io.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/program.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/serve/run_server.h"

namespace quire {

namespace {

struct Arguments {
  std::string checkpoint;
  std::vector<std::string> overrides;
  std::optional<bool> ema;
  ServeOptions options;
  std::string token_file;
  std::string sessions;
  int64_t session_memory = 1024;  // MiB
  int64_t session_disk = 8192;    // MiB
  int64_t max_body = 16;          // MiB
  int64_t timeout = 30;           // seconds
  int64_t drain = 30;             // seconds
};

constexpr int64_t kMebibyte = int64_t{1} << 20;

std::string read_token(const std::string& file) {
  std::string token = read_text_file(file, {.kind = ErrorKind::config, .max_bytes = 4096});
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r')) token.pop_back();
  const bool printable = std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  if (token.empty() || !printable) {
    fail(ErrorKind::config, "--token-file {}: holds no token; write one line of letters and digits", file);
  }
  return token;
}

void run(const Arguments& arguments) {
  ServeOptions options = arguments.options;
  if (!arguments.token_file.empty()) options.http.rules.token = read_token(arguments.token_file);
  options.http.rules.max_body = arguments.max_body * kMebibyte;
  options.http.timeout = std::chrono::seconds(arguments.timeout);
  options.drain = std::chrono::seconds(arguments.drain);
  options.service.sessions = {arguments.session_memory * kMebibyte, arguments.session_disk * kMebibyte,
                              arguments.sessions};
  check_exposure(options.http);
  const std::unique_ptr<LoadedModel> model = load_model(arguments.checkpoint, arguments.overrides, arguments.ema);
  run_server(*model, options, StopSignals::of_process());
}

void add_limits(Verb& app, Arguments& arguments) {
  ServeOptions& options = arguments.options;
  const auto add = [&](const char* name, int64_t& value, int64_t min, int64_t max, const char* help) {
    app.add_option(name, value, help)->type_name("N")->check(whole_number(min, max))->capture_default_str();
  };
  add("--rows", options.service.engine.rows, 1, 4096, "Texts that are read or continued at once");
  add("--queue", options.service.engine.queue, 1, 1 << 20, "Texts that may wait for a row; more are refused");
  add("--session-memory", arguments.session_memory, 1, 1 << 24, "MiB of main memory for sessions");
  add("--session-disk", arguments.session_disk, 1, 1 << 30, "MiB of disk for saved sessions");
  add("--max-body", arguments.max_body, 1, 1024, "MiB of a request at most");
  add("--timeout", arguments.timeout, 1, 86400, "Seconds that a request may take to arrive");
  add("--drain", arguments.drain, 0, 86400, "Seconds that requests may take to end after SIGTERM");
  add("--connections", options.http.connections, 1, 1 << 20, "Connections that may be open at once");
}

}  // namespace

void add_serve(Verb& program) {
  Verb& app = add_verb(program, "serve", "Answer requests over HTTP, as OpenAI's completions do",
                       "quire serve runs/first --port 8080 --sessions sessions\n"
                       "  curl 127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Once\"}'");
  const auto arguments = std::make_shared<Arguments>();
  ServeOptions& options = arguments->options;
  app.add_option("CHECKPOINT", arguments->checkpoint, "A checkpoint, or a run directory (its newest checkpoint)")
      ->required();
  app.add_option("OVERRIDES", arguments->overrides, "key.path=value: window, carry, data.subsequence, run.threads");
  app.add_option("--host", options.http.host, "Address to listen at; other than of this machine needs --token-file")
      ->type_name("ADDRESS")
      ->capture_default_str();
  app.add_option("--port", options.http.port, "0 takes any free one, which the log names")
      ->type_name("N")
      ->check(whole_number(0, 65535))
      ->capture_default_str();
  app.add_option("--token-file", arguments->token_file, "File with the token that clients must send")
      ->type_name("FILE");
  app.add_option("--name", options.service.name, "Name of the model")->type_name("TEXT")->capture_default_str();
  app.add_option("--sessions", arguments->sessions, "Folder for sessions that clients save")->type_name("FOLDER");
  add_limits(app, *arguments);
  add_ema_flag(app, arguments->ema);
  app.callback([arguments] { on_root_alone([&] { run(*arguments); }); });
}

}  // namespace quire
