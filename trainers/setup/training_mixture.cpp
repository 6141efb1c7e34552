#include "trainers/setup/training_mixture.h"

#include <filesystem>

#include "core/check.h"
#include "data/tasks/make_task.h"

namespace quire {

Corpus& TrainingMixture::open_corpus(const MixConfig& entry, const DataConfig& data, Corpus& main, Verify verify,
                                     const std::string& where) {
  std::error_code ignored;
  if (std::filesystem::equivalent(*entry.corpus, data.corpus, ignored)) return main;
  corpora_.push_back(Corpus::open(*entry.corpus, verify));
  Corpus& corpus = *corpora_.back();
  if (corpus.tokenizer().serialise() != main.tokenizer().serialise()) {
    fail(ErrorKind::data, "{}: the tokenizer of {} ({}) is not that of data.corpus ({}); prepare it with that one",
         where, *entry.corpus, corpus.tokenizer().kind(), main.tokenizer().kind());
  }
  return corpus;
}

std::unique_ptr<TrainingMixture> TrainingMixture::open(const RunConfig& config, Corpus& main, Verify verify) {
  const DataConfig& data = config.data;
  if (data.mix.empty()) return nullptr;
  auto mixture = std::make_unique<TrainingMixture>();
  std::vector<MixturePart> parts;
  for (size_t i = 0; i < data.mix.size(); ++i) {
    const MixConfig& entry = data.mix[i];
    const std::string where = fmt::format("data.mix.{}", i);
    const Split* split = nullptr;
    std::string name = entry.task.task.value_or("");
    mixture->hashes_.emplace_back();
    if (entry.corpus) {
      Corpus& corpus = mixture->open_corpus(entry, data, main, verify, where);
      split = &corpus.split(entry.split);
      mixture->hashes_.back() = corpus.hash();
      name = fmt::format("{}{}split {} of {}", name, name.empty() ? "" : " in ", entry.split, *entry.corpus);
    }
    mixture->names_.push_back(name);
    MixturePart part;
    part.weight = entry.weight;
    if (entry.task.task) {
      mixture->fillers_.push_back(split != nullptr ? make_corpus_filler(*split) : make_prose_filler(main.tokenizer()));
      // Every row reads a document, and dealing looks at one more.
      part.task =
          std::make_unique<TaskDocuments>(make_task(entry.task,
                                                    {main.tokenizer(), *mixture->fillers_.back(),
                                                     static_cast<uint64_t>(config.run.seed), static_cast<uint32_t>(i)},
                                                    where),
                                          data.rows + 1);
    } else {
      part.split = split;
    }
    parts.push_back(std::move(part));
  }
  mixture->documents_ = std::make_shared<Mixture>(std::move(parts), static_cast<uint64_t>(config.run.seed));
  return mixture;
}

std::vector<std::string> TrainingMixture::describe(int64_t tokens) const {
  std::vector<std::string> lines;
  for (size_t i = 0; i < names_.size(); ++i) {
    const auto part = static_cast<int64_t>(i);
    lines.push_back(
        fmt::format("data.mix.{}: {}, {:.3g} % of the documents", i, names_[i], 100 * documents_->share(part)));
    const Split* split = documents_->split_of(part);
    if (split == nullptr) continue;
    lines.back() += fmt::format(", up to {:.3g} epochs", static_cast<double>(tokens) * documents_->weight(part) /
                                                             static_cast<double>(split->totals().tokens));
  }
  return lines;
}

}  // namespace quire
