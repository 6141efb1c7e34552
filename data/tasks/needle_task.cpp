#include "data/tasks/needle_task.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"

namespace quire {

NeedleDocument::NeedleDocument(NeedleScene scene, std::vector<int64_t> offsets, int64_t length, int64_t tail,
                               TaskLoss loss, std::unique_ptr<FillerText> filler)
    : scene_(std::move(scene)), length_(length), loss_(loss), filler_(std::move(filler)) {
  std::vector<size_t> order(scene_.needles.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
  int64_t at = 0;     // position in the document
  int64_t place = 0;  // position in the filler
  const auto fill_to = [&](int64_t end) {
    parts_.push_back({.begin = at, .ids = nullptr, .place = place});
    place += end - at;
    at = end;
  };
  const auto put = [&](const std::vector<int32_t>& ids) {
    parts_.push_back({.begin = at, .ids = &ids});
    at += static_cast<int64_t>(ids.size());
  };
  for (const size_t needle : order) {
    fill_to(at + offsets[needle] - place);
    if (needle == scene_.asked) needle_begin_ = at;
    put(scene_.needles[needle]);
  }
  // Position p holds stored token p - 1.
  answer_begin_ = length_ + 1 - tail;
  fill_to(answer_begin_ - static_cast<int64_t>(scene_.question.size()));
  put(scene_.question);
  put(scene_.answer);
  fill_to(length_);
}

void NeedleDocument::tokens(int64_t begin, int64_t count, int32_t* out) const {
  auto part = std::upper_bound(parts_.begin(), parts_.end(), begin,
                               [](int64_t position, const Part& p) { return position < p.begin; }) -
              1;
  for (; count > 0; ++part) {
    const int64_t end = part + 1 == parts_.end() ? length_ : (part + 1)->begin;
    const int64_t here = std::min(count, end - begin);
    if (here <= 0) continue;
    if (part->ids != nullptr) {
      std::copy_n(part->ids->begin() + (begin - part->begin), here, out);
    } else {
      filler_->tokens(part->place + begin - part->begin, here, out);
    }
    out += here;
    begin += here;
    count -= here;
  }
}

void NeedleDocument::marks(int64_t begin, int64_t count, uint8_t* out) const {
  const int64_t first = loss_ == TaskLoss::answer ? answer_begin_ : 0;
  const int64_t last = answer_begin_ + static_cast<int64_t>(scene_.answer.size());
  for (int64_t i = begin; i < begin + count; ++i) {
    uint8_t mark = i >= first && i < last ? kCounted : 0;
    if (i >= answer_begin_ && i < last && scene_.recalled[static_cast<size_t>(i - answer_begin_)] != 0) {
      mark |= kRecalled;
    }
    *out++ = mark;
  }
}

NeedleTask::NeedleTask(const TaskConfig& config, const TaskSources& sources, const std::string& where)
    : AskingTask(config, sources.seed, sources.number),
      filler_(sources.filler),
      kind_(make_needle_kind(config, sources.tokenizer, where)) {
  if (config.align > 1 && config.align < kind_->answer_length() + 1) {
    fail(ErrorKind::config,
         "{}: align {} is too short: the last chunk holds the end of the question and {} tokens of answer", where,
         config.align, kind_->answer_length());
  }
  const int64_t shortest = config.shortest.value_or(config.length);
  if (shortest < min_positions()) {
    fail(ErrorKind::config, "{}: length {} is too short for task {}, which needs at least {} with this tokenizer",
         where, shortest, *config.task, min_positions());
  }
}

int64_t NeedleTask::tail() const {
  return config_.align > 1 ? config_.align : kind_->answer_length() + 1;
}

int64_t NeedleTask::min_positions() const {
  const int64_t needles = 1 + kind_->longest_needles();  // includes BOS
  int64_t positions = needles + kind_->longest_question() - 1 + tail();
  if (config_.align > 1) positions = std::max(positions, needles + 2 * tail());
  return (positions + config_.align - 1) / config_.align * config_.align;
}

std::unique_ptr<NeedleDocument> NeedleTask::needle(int64_t index) const {
  const DocumentKey key = key_of(index);
  TaskRandom random(key, "data.tasks.needle");
  NeedleScene scene = kind_->scene(random);
  const int64_t length = positions(index) - 1;
  int64_t last = length + 1 - tail() - static_cast<int64_t>(scene.question.size());
  if (config_.align > 1) last = std::min(last, length - 2 * tail());
  for (const std::vector<int32_t>& needle : scene.needles) last -= static_cast<int64_t>(needle.size());
  QUIRE_CHECK(last >= 0, "needle: a document of {} has no room for its needles", length);
  std::vector<int64_t> offsets;
  for (size_t i = 0; i < scene.needles.size(); ++i) offsets.push_back(random.below(last + 1));
  if (config_.depth) offsets[scene.asked] = std::llround(*config_.depth * static_cast<double>(last));
  return std::make_unique<NeedleDocument>(std::move(scene), std::move(offsets), length, tail(), config_.loss,
                                          filler_.open(key));
}

}  // namespace quire
