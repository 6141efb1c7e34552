#include "trainers/serve/engine.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <new>
#include <utility>

#include "core/check.h"
#include "trainers/serve/likely_tokens.h"

namespace quire {

namespace {

constexpr const char* kGone = "the client has gone";
constexpr const char* kNoMemory = "the server has too little memory for this request; send a shorter one";
constexpr int kGoneStatus = 499;
constexpr const char* kStopped = "the server is stopping; send the request again later";

int64_t choices_of(const Choice& choice) {
  return 1 + static_cast<int64_t>(choice.siblings.size());
}

}  // namespace

Engine::Engine(LoadedModel& model, const EngineLimits& limits)
    : model_(model), tokenizer_(model.tokenizer()), limits_(limits), reader_(model, limits.rows) {
  // Positions beyond the subsequence were never met in training.
  if (model.config().model.embedding.learned_positions) room_ = reader_.subsequence();
  active_.resize(static_cast<size_t>(limits.rows));
}

bool Engine::submit(const std::vector<std::shared_ptr<Choice>>& choices) {
  int64_t count = 0;
  int64_t tokens = 0;
  for (const auto& choice : choices) {
    count += choices_of(*choice);
    tokens += choice->text_tokens();
  }
  {
    const std::lock_guard lock(mutex_);
    // A request that is large by itself is taken when there is no other.
    const bool fits = waiting_ + count <= limits_.queue && text_tokens_ + tokens <= limits_.tokens;
    if (stopping_ || (!fits && text_tokens_ > 0)) return false;
    waiting_ += count;
    text_tokens_ += tokens;
    queue_.insert(queue_.end(), choices.begin(), choices.end());
  }
  changed_.notify_one();
  return true;
}

void Engine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
}

Engine::Load Engine::load() const {
  const std::lock_guard lock(mutex_);
  return {waiting_, rows_in_use_, tokens_read_, tokens_generated_, steps_};
}

void Engine::run() {
  const ThreadPool::Use use(model_.threads());
  while (wait()) {
    drop_cancelled();
    admit();
    step();
    extend();
  }
  for (int64_t row = 0; row < rows(); ++row) {
    if (active_[static_cast<size_t>(row)]) fail_row(row, kStopped, 503);
  }
  while (const auto choice = take()) fail_choice(choice, kStopped, 503);
}

// Returns false when the engine stops.
bool Engine::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || !queue_.empty() || rows_in_use_ > 0; });
  return !stopping_;
}

std::shared_ptr<Choice> Engine::take() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return nullptr;
  std::shared_ptr<Choice> choice = std::move(queue_.front());
  queue_.pop_front();
  --waiting_;
  return choice;
}

void Engine::admit() {
  for (int64_t row = 0; row < rows(); ++row) {
    if (active_[static_cast<size_t>(row)]) continue;
    const std::shared_ptr<Choice> choice = take();
    if (!choice) return;
    try {
      active_[static_cast<size_t>(row)] = begin(choice, row);
      ++rows_in_use_;
    } catch (const std::exception& error) {
      fail_choice(choice, error.what());
    }
  }
}

Engine::Row Engine::begin(const std::shared_ptr<Choice>& choice, int64_t row) {
  auto reading = std::make_unique<Reading>();
  reading->choice = choice;
  choice->generated = GeneratedText(choice->stops);
  if (choice->start) {
    const std::shared_ptr<const ReadText> start = std::exchange(choice->start, nullptr);
    reader_.load(row, start->state);
    reading->position = reading->end = start->position;
    reading->base = reader_.insertion().tokens_before(start->position);
    reading->logits = start->logits;
    reading->continues = true;
    return reading;
  }
  if (choice->session) {
    const Session& session = *choice->session;
    if (session.position > 0) reader_.load(row, session.state);
    reading->position = session.position;
    reading->base = session.tokens - static_cast<int64_t>(session.tail.size());
    reading->text = session.tail;
  }
  reading->text.insert(reading->text.end(), choice->text->begin(), choice->text->end());
  reading->end = uncut_end(*reading);
  return reading;
}

int64_t Engine::uncut_end(const Reading& reading) const {
  return reader_.insertion().positions(reading.base + static_cast<int64_t>(reading.text.size()));
}

void Engine::drop_cancelled() {
  for (int64_t row = 0; row < rows(); ++row) {
    const Row& reading = active_[static_cast<size_t>(row)];
    if (reading && reading->choice->cancelled) fail_row(row, kGone, kGoneStatus);
  }
  std::vector<std::shared_ptr<Choice>> cancelled;
  {
    const std::lock_guard lock(mutex_);
    const auto stays = [](const std::shared_ptr<Choice>& choice) { return !choice->cancelled; };
    const auto first = std::stable_partition(queue_.begin(), queue_.end(), stays);
    cancelled.assign(first, queue_.end());
    queue_.erase(first, queue_.end());
    waiting_ -= static_cast<int64_t>(cancelled.size());
  }
  for (const auto& choice : cancelled) fail_choice(choice, kGone, kGoneStatus);
}

RowReader::Part Engine::part_of(int64_t row) const {
  const Reading& reading = *active_[static_cast<size_t>(row)];
  const Choice& choice = *reading.choice;
  RowReader::Part part{.row = row,
                       .position = reading.position,
                       .count = std::min(reading.end - reading.position, reader_.subsequence())};
  const int64_t token = reader_.insertion().tokens_before(reading.position);
  part.text = std::span(reading.text).subspan(static_cast<size_t>(token - reading.base));
  part.next = reading.position + part.count == reading.end && !choice.keep && choice.sampling.length > 0;
  if (reading.continues || !choice.top) return part;
  const int64_t before = choice.session ? choice.session->tokens : 0;
  if (choice.first_scored < choice.text_tokens()) part.first_scored = before + choice.first_scored;
  part.with_logits = *choice.top > 0;
  return part;
}

// Documents with about as many positions to read go into one batch, so that few of its cells are padding.
void Engine::step() {
  std::map<int, std::vector<RowReader::Part>> batches;
  for (int64_t row = 0; row < rows(); ++row) {
    const Row& reading = active_[static_cast<size_t>(row)];
    if (!reading || !reading->logits.empty()) continue;
    // A session ends at a cut with something behind it, from which a continuation gets its logits.
    if (reading->choice->keep && reading->end - reading->position <= reader_.subsequence()) {
      text_is_read(row);
      continue;
    }
    const RowReader::Part part = part_of(row);
    batches[std::bit_width(static_cast<uint64_t>(part.count))].push_back(part);
  }
  for (const auto& [size, parts] : batches) read(parts);
}

void Engine::read(const std::vector<RowReader::Part>& parts) {
  std::string error;
  try {
    reader_.read(parts, [&](const RowReader::Score& score) {
      note(*active_[static_cast<size_t>(parts[score.part].row)], score);
    });
  } catch (const std::bad_alloc&) {
    error = kNoMemory;
  } catch (const std::exception& failure) {
    error = failure.what();
  }
  ++steps_;
  for (const RowReader::Part& part : parts) {
    Reading& reading = *active_[static_cast<size_t>(part.row)];
    const std::string own = error.empty() ? reading.choice->error : error;
    if (!own.empty()) {
      fail_row(part.row, own);
      continue;
    }
    const int64_t tokens = reader_.insertion().tokens_before(part.position + part.count) -
                           reader_.insertion().tokens_before(part.position);
    reading.position += part.count;
    reading.choice->tokens_read += tokens;
    tokens_read_ += tokens;
    if (!reading.continues && reading.position == reading.end) text_is_read(part.row);
  }
}

void Engine::note(Reading& reading, const RowReader::Score& score) const {
  Choice& choice = *reading.choice;
  if (score.next) {
    reading.logits.assign(score.logits.begin(), score.logits.end());
    return;
  }
  const int32_t id = reading.text[static_cast<size_t>(score.token - reading.base)];
  if (!std::isfinite(score.nll)) {
    choice.error = kNotFinite;
    return;
  }
  const auto ids = static_cast<size_t>(tokenizer_.vocabulary_size());
  append_scored(choice.text_scores, id, -score.nll, score.logits.first(std::min(ids, score.logits.size())),
                static_cast<size_t>(*choice.top));
}

void Engine::text_is_read(int64_t row) {
  try {
    go_on(row);
  } catch (const std::bad_alloc&) {
    fail_row(row, kNoMemory, 503);
  }
}

// The text of a request was read: its session, its end, or the beginning of its continuations.
void Engine::go_on(int64_t row) {
  Reading& reading = *active_[static_cast<size_t>(row)];
  Choice& choice = *reading.choice;
  if (choice.keep) {
    auto session = std::make_shared<Session>();
    session->position = reading.position;
    if (reading.position > 0) session->state = reader_.save(row);
    const int64_t token = reader_.insertion().tokens_before(reading.position);
    session->tail.assign(reading.text.begin() + static_cast<std::ptrdiff_t>(token - reading.base), reading.text.end());
    session->tokens = reading.base + static_cast<int64_t>(reading.text.size());
    choice.kept = std::move(session);
    return finish(row, Finish::length);
  }
  reading.continues = true;
  if (choice.sampling.length == 0) return finish(row, Finish::length);
  if (!choice.siblings.empty()) start_siblings(row);
}

void Engine::start_siblings(int64_t row) {
  Reading& reading = *active_[static_cast<size_t>(row)];
  const auto start = std::make_shared<const ReadText>(ReadText{reader_.save(row), reading.position, reading.logits});
  std::vector<std::shared_ptr<Choice>> siblings = std::exchange(reading.choice->siblings, {});
  for (const auto& sibling : siblings) sibling->start = start;
  const std::lock_guard lock(mutex_);  // they were counted with the first choice
  queue_.insert(queue_.begin(), siblings.begin(), siblings.end());
}

}  // namespace quire
