#include "data/corpus/corpus_on_ranks.h"

#include <fmt/format.h>

namespace quire {

std::unique_ptr<Corpus> open_corpus_on_ranks(const std::filesystem::path& path, Verify verify,
                                             const std::vector<std::string>& splits, Ranks& ranks) {
  const Ranks::Operation operation(ranks, "verifying the corpus");
  std::unique_ptr<Corpus> corpus;
  ranks.on_one_per_host([&] {
    // Ranks that are threads of one process take turns: verifying forks the process, and a lock that another thread
    // holds at that moment would stay locked in the child (core/files/hdf5_trial.h).
    static std::mutex turn;
    const std::lock_guard lock(turn);
    corpus = Corpus::open(path, verify);
    for (const std::string& split : splits) corpus->split(split);
  });
  ranks.on_some(ranks.host_rank() != 0, [&] {
    corpus = Corpus::open(path, Verify::done);
    corpus->trust(splits);
  });
  ranks.agree(fmt::format("the checksum of {}", path.string()), corpus->hash());
  return corpus;
}

}  // namespace quire
