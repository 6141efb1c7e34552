// Goes on with choices and ends them: sampling, stop strings and failures.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/thread_pool.h"
#include "trainers/serve/engine.h"
#include "trainers/serve/likely_tokens.h"

namespace quire {

// Samples the next token of every row that has logits, several rows at a time.
void Engine::extend() {
  std::vector<int64_t> ready;
  for (int64_t row = 0; row < rows(); ++row) {
    const Row& reading = active_[static_cast<size_t>(row)];
    if (reading && reading->continues && !reading->logits.empty()) ready.push_back(row);
  }
  std::vector<int32_t> ids(ready.size());
  const auto vocabulary = static_cast<size_t>(tokenizer_.vocabulary_size());
  parallel_for(static_cast<int64_t>(ready.size()), [&](int64_t i) {
    Reading& reading = *active_[static_cast<size_t>(ready[static_cast<size_t>(i)])];
    Choice& choice = *reading.choice;
    const double log_sum = choice.top ? log_sum_exp(reading.logits) : 0;
    if (!std::isfinite(log_sum)) {
      choice.error = kNotFinite;
      return;
    }
    const std::span<float> logits = std::span(reading.logits).first(vocabulary);
    std::vector<std::pair<int32_t, double>> top;
    if (choice.top) top = likely_tokens(logits, log_sum, static_cast<size_t>(*choice.top));
    const std::vector<float> before =
        choice.top ? std::vector<float>(logits.begin(), logits.end()) : std::vector<float>{};
    exclude_bos(logits, tokenizer_);
    const int32_t id = sample_token(logits, choice.sampling, sampling_draw(choice.sampling.seed, reading.position));
    ids[static_cast<size_t>(i)] = id;
    if (!choice.top) return;
    const double log_probability = static_cast<double>(before[static_cast<size_t>(id)]) - log_sum;
    append(choice.scores, id, log_probability, top, static_cast<size_t>(*choice.top));
  });
  for (size_t i = 0; i < ready.size(); ++i) add_token(ready[i], ids[i]);
}

void Engine::add_token(int64_t row, int32_t id) {
  Reading& reading = *active_[static_cast<size_t>(row)];
  Choice& choice = *reading.choice;
  if (!choice.error.empty()) return fail_row(row, std::string(choice.error));
  reading.logits.clear();
  ++choice.tokens_generated;
  ++tokens_generated_;
  const bool stops = id == tokenizer_.eos_id() || choice.generated.add(tokenizer_.decode({&id, 1}));
  if (stops) return finish(row, Finish::stop);
  if (choice.tokens_generated == choice.sampling.length) return finish(row, Finish::length);
  if (choice.stream) choice.on_token(choice);
  reading.base += static_cast<int64_t>(reading.text.size());
  reading.text = {id};
  reading.end = uncut_end(reading);
}

// The function that the choice calls may own the choice, so the choice lets go of it.
void Engine::end(Choice& choice) {
  {
    const std::lock_guard lock(mutex_);
    text_tokens_ -= choice.text_tokens();
  }
  const std::function<void(Choice&)> on_end = std::exchange(choice.on_end, nullptr);
  on_end(choice);
}

void Engine::finish(int64_t row, Finish how) {
  const Row reading = std::move(active_[static_cast<size_t>(row)]);
  --rows_in_use_;
  reading->choice->finish = how;
  end(*reading->choice);
}

void Engine::fail_row(int64_t row, const std::string& error, int status) {
  const Row reading = std::move(active_[static_cast<size_t>(row)]);
  --rows_in_use_;
  fail_choice(reading->choice, error, status);
}

void Engine::fail_choice(const std::shared_ptr<Choice>& choice, const std::string& error, int status) {
  const std::vector<std::shared_ptr<Choice>> siblings = std::exchange(choice->siblings, {});
  {
    const std::lock_guard lock(mutex_);
    waiting_ -= static_cast<int64_t>(siblings.size());
  }
  choice->error = error;
  choice->status = status;
  end(*choice);
  for (const auto& sibling : siblings) fail_choice(sibling, error, status);
}

}  // namespace quire
