#include "trainers/run/opened_run.h"

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/library.h"
#include "core/log.h"
#include "data/batches/make_sampler.h"
#include "data/corpus/corpus_on_ranks.h"
#include "kernels/backend.h"
#include "layers/model/composition.h"
#include "trainers/plan/plan.h"
#include "trainers/setup/attention_choice.h"
#include "trainers/setup/evaluation_config.h"

namespace quire {

namespace {

void require_rules_of_new_runs(const RunConfig& config) {
  const std::optional<RuleFault> fault = find_rule_fault(config.model, &Mechanism::rules_of_new_runs);
  if (fault) fail(ErrorKind::config, "{}: {}", join_key("model", fault->key), fault->message);
}

std::unique_ptr<Corpus> open_corpus(const RunConfig& config, Ranks& ranks) {
  const std::string& path = config.data.corpus;
  ranks.on_all([&] {
    if (path.empty()) {
      fail(ErrorKind::config, "data.corpus: name the file that quire prepare made, for example data.corpus=corpus.h5");
    }
    if (!std::filesystem::exists(path)) {
      fail(ErrorKind::data, "{}: no such corpus; make one with quire prepare --output {}", path, path);
    }
  });
  std::vector<std::string> splits;
  if (config.data.mix.empty()) splits.push_back(config.data.split);
  if (config.evaluate.every > 0) {
    const std::vector<std::string>& evaluated = config.evaluate.split.names;
    splits.insert(splits.end(), evaluated.begin(), evaluated.end());
  }
  std::unique_ptr<Corpus> corpus = open_corpus_on_ranks(path, config.data.verify, splits, ranks);
  ranks.on_all([&] {
    if (config.data.mix.empty()) {
      // Making a sampler checks that the split fills the rows.
      make_sampler(corpus->split(config.data.split).offsets(), {.data = config.data});
    }
    const int64_t vocabulary = corpus->tokenizer().vocabulary_size();
    if (config.data.vocabulary && *config.data.vocabulary != vocabulary) {
      fail(ErrorKind::config, "data.vocabulary: {} but the tokenizer of {} has {} ids; leave it out",
           *config.data.vocabulary, path, vocabulary);
    }
    if (config.model.vocabulary && *config.model.vocabulary < vocabulary) {
      fail(ErrorKind::config, "model.vocabulary: {} rows are less than the {} ids of the tokenizer of {}",
           *config.model.vocabulary, vocabulary, path);
    }
  });
  return corpus;
}

// One rank of each host verifies the other corpora, too.
std::unique_ptr<TrainingMixture> open_mixture(const RunConfig& config, Corpus& corpus, Ranks& ranks) {
  std::unique_ptr<TrainingMixture> mixture;
  ranks.on_one_per_host([&] { mixture = TrainingMixture::open(config, corpus, config.data.verify); });
  ranks.on_some(ranks.host_rank() != 0, [&] { mixture = TrainingMixture::open(config, corpus, Verify::done); });
  if (mixture)
    ranks.agree("checksums of the corpora of data.mix", fmt::format("{}", fmt::join(mixture->hashes(), " ")));
  return mixture;
}

// Tensors of a GPU are summed by the library of the GPU.
void connect_devices(const Machine& machine, Ranks& ranks) {
  const std::string kind = name_of(machine.device.kind);
  ranks.agree("the device that ranks compute on",
              machine.without_gpu.empty() ? kind : kind + ": " + machine.without_gpu,
              "give every rank a GPU, or set run.device to cpu");
  if (ranks.size() == 1) return;
  const Ranks::Operation operation(ranks, "connecting the devices");
  const std::vector<std::string> backends = ranks.gather(machine.backend);
  for (size_t rank = 1; rank < backends.size() && ranks.is_root(); ++rank) {
    if (backends[rank] == backends[0]) continue;
    log_warn(fmt::format("rank {} on {} computes on {} and rank 0 on {}: the slower one sets the pace", rank,
                         ranks.hosts()[rank], backends[rank], backends[0]));
    break;
  }
  if (machine.device == kCpu) {
    // A first sum finds collectives that do not work at all.
    ranks.collectives().all_reduce(Tensor::zeros({1}, DType::f32));
    return ranks.collectives().wait();
  }
  std::unique_ptr<Collectives> collectives = device_backend(machine.device.kind).connect(ranks);
  if (collectives) ranks.use(std::move(collectives));
}

}  // namespace

RunLook look_at_data(const RunConfig& config, bool without_corpus) {
  Ranks one;
  RunLook look;
  std::error_code ignored;
  const bool is_here = !config.data.corpus.empty() && std::filesystem::exists(config.data.corpus, ignored);
  if (without_corpus && !is_here && config.data.vocabulary) {
    const std::string name = config.data.corpus.empty() ? "data.corpus" : config.data.corpus;
    look.not_looked_at.push_back(fmt::format("{} (it is not here; data.vocabulary stands for it)", name));
    return look;
  }
  look.corpus = open_corpus(config, one);
  look.mixture = open_mixture(config, *look.corpus, one);
  return look;
}

RunLook look_at_run(const RunConfig& config) {
  require_rules_of_new_runs(config);
  evaluation_config(config);
  RunLook look = look_at_data(config, false);
  if (config.init.from) {
    Ranks one;
    InitialWeights::open(config, look.corpus->tokenizer(), one);
  }
  if (config.run.device == DeviceChoice::cuda && load_cuda().gpu.empty()) {
    look.not_looked_at.push_back(fmt::format("run.device: cuda (there is none here: {})", load_cuda().reason));
  } else {
    require_attention(config, Machine::choose(config.run), {});
  }
  look.not_looked_at.emplace_back("memory (quire plan says what a run needs)");
  look.not_looked_at.emplace_back("the run directory");
  return look;
}

OpenedRun OpenedRun::open(const RunConfig& config, Ranks& ranks, bool begins) {
  OpenedRun opened;
  opened.config = config;
  ranks.set_deadline(std::chrono::seconds(config.run.rank_timeout.seconds));
  ranks.on_all([&] {
    if (begins) require_rules_of_new_runs(config);
    opened.machine = Machine::choose(config.run);
    evaluation_config(config);
    require_attention(config, opened.machine, {ranks.rank(), ranks.size()});
  });
  connect_devices(opened.machine, ranks);
  opened.corpus = open_corpus(config, ranks);
  opened.mixture = open_mixture(config, *opened.corpus, ranks);
  ranks.on_one_per_host([&] { require_memory(config, opened.machine, threads_of(config.run, ranks), ranks); });
  if (ranks.is_root()) warn_of_threads(config.run);
  if (begins && config.init.from) {
    opened.weights = InitialWeights::open(config, opened.corpus->tokenizer(), ranks);
  }
  ranks.agree("the program", build_id());
  const std::string text = dump_config(config);
  ranks.agree("the configuration", checksum_of(std::as_bytes(std::span(text))));
  return opened;
}

}  // namespace quire
