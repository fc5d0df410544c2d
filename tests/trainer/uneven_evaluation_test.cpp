// Evaluation of fewer samples than ranks, and of streams in which some ranks find nothing: whoever has no
// sample validates with the others, and values are those of all samples at once.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/in_shards.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace uneven_evaluation {
namespace {

using namespace small_run;  // NOLINT
using levin::DataLoader;
using levin::test::InShards;
using levin::test::run_world;
using ::testing::Each;

struct Scored : levin::Module {
  torch::nn::Linear in{nullptr}, out{nullptr};
  std::shared_ptr<levin::metrics::Accuracy> counted = std::make_shared<levin::metrics::Accuracy>();
  int64_t validations = 0, samples = 0;

  Scored() {
    in = register_module("in", torch::nn::Linear(6, 8));
    out = register_module("out", torch::nn::Linear(8, 3));
    levin::wrap(in.ptr());
    levin::wrap(out.ptr());
  }
  at::Tensor scores(const levin::Batch& batch) {
    return out->forward(in->forward(batch["x"]).relu());
  }
  at::Tensor loss(const levin::Batch& batch) {
    return torch::nn::functional::cross_entropy(scores(batch), batch["y"]);
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override { return loss(batch); }
  void evaluate(const levin::Batch& batch) {
    log("val_loss", loss(batch), {.prog_bar = true});
    log("samples", static_cast<double>(batch.size()), {.reduce = "sum"});
    counted->update(scores(batch), batch["y"]);
    log("counted", counted, {.prog_bar = true});
    samples += batch.size();
  }
  void validation_step(const levin::Batch& batch, int64_t) override { evaluate(batch); }
  void test_step(const levin::Batch& batch, int64_t) override { evaluate(batch); }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override { return scores(batch); }
  void on_validation_start() override { ++validations; }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

/// Of validation: by index, or in shards of these sizes, which rank r reads every so many of.
struct Source {
  std::string name;
  std::vector<int64_t> shards = {};  // empty: by index
  bool tells_sizes = false;
  bool dispatch = false;
};
std::ostream& operator<<(std::ostream& out, const Source& source) { return out << source.name; }

levin::Batch all_of(int64_t samples) {
  std::vector<int64_t> indices(static_cast<size_t>(samples));
  std::iota(indices.begin(), indices.end(), 0);
  return dataset(samples, 6)->get(indices);
}

DataLoader loader_of(const Source& source, int64_t samples) {
  const levin::DataLoaderOptions options = {.batch_size = 2};
  if (source.shards.empty()) return {dataset(samples, 6), options};
  auto data = std::make_shared<InShards>(all_of(samples), source.shards);
  data->tells_sizes = source.tells_sizes;
  return {levin::IterableDatasetPtr(data), options};
}

struct Way {
  std::string strategy, backend = "shm";
};

levin::TrainerOptions options_of(const Way& way, const Source& source, const fs::path& root) {
  auto options = quiet(root.string());
  options.seed = 4;
  options.strategy = way.strategy;
  options.engine.comm.backend = way.backend;
  options.dispatch_batches = source.dispatch;
  options.max_epochs = 2;
  options.num_sanity_val_steps = 2;
  return options;
}

/// "" where the metrics are those of all samples at once.
std::string off_whole(const levin::Metrics& metrics, Scored& net, int64_t samples) {
  for (const char* name : {"samples", "val_loss", "counted"}) {
    if (!metrics.contains(name)) return fmt::format("no {}", name);
  }
  const levin::WholeScope whole(net);
  const at::NoGradGuard no_grad;
  const levin::Batch all = all_of(samples);
  const auto loss = net.loss(all).item<double>();
  const auto right = net.scores(all).argmax(1).eq(all["y"]).to(at::kDouble).mean().item<double>();
  const bool is_near = metrics.at("samples") == static_cast<double>(samples) &&
                       std::abs(metrics.at("val_loss") - loss) < 1e-5 &&
                       std::abs(metrics.at("counted") - right) < 1e-6;
  return is_near
             ? ""
             : fmt::format("samples {} loss {} accuracy {}, wanted {} {} {}", metrics.at("samples"),
                           metrics.at("val_loss"), metrics.at("counted"), samples, loss, right);
}

/// Two epochs with a sanity check, early stopping and a checkpoint by the validation's loss; then
/// validate, test and predict by themselves.
std::string off(const Way& way, const Source& source, int64_t samples, const fs::path& root) {
  auto options = options_of(way, source, root);
  options.callbacks = {
      levin::early_stopping({.monitor = "counted", .patience = 9, .mode = "max"}),
      levin::model_checkpoint({.dirpath = (root / "ckpt").string(), .monitor = "val_loss"})};
  levin::Trainer trainer(options);
  torch::manual_seed(9);
  const auto net = std::make_shared<Scored>();
  trainer.fit(net, DataLoader(dataset(24), {.batch_size = 3}), loader_of(source, samples));
  if (net->validations != 3) return fmt::format("{} validations", net->validations);
  std::string words = off_whole(trainer.callback_metrics(), *net, samples);
  if (!words.empty()) return "in fit: " + words;
  if (!trainer.progress_bar_metrics().empty() && trainer.progress_bar_metrics().size() != 2)
    return "a bar of other values";
  words = off_whole(trainer.validate(net, loader_of(source, samples)), *net, samples);
  if (!words.empty()) return "in validate: " + words;
  words = off_whole(trainer.test(net, loader_of(source, samples)), *net, samples);
  if (!words.empty()) return "in test: " + words;
  int64_t rows = 0;
  for (const at::Tensor& one : trainer.predict(net, loader_of(source, samples)))
    rows += one.size(0);
  auto& accelerator = trainer.accelerator();
  const auto all = accelerator.reduce(torch::full({1}, rows, torch::kLong), levin::ReduceOp::kSum)
                       .item<int64_t>();
  return all == samples ? "" : fmt::format("{} rows are predicted", all);
}

class UnevenEvaluation : public ::testing::TestWithParam<Source> {};

TEST_P(UnevenEvaluation, OfRanksWithoutASampleIsThatOfAllSamples) {
  for (const auto& [ranks, samples] : {std::pair(2, 1), std::pair(3, 7), std::pair(4, 2)}) {
    Source source = GetParam();
    // The only shard with samples is the last rank's.
    if (!source.shards.empty()) {
      source.shards.assign(static_cast<size_t>(ranks), 0);
      source.shards.back() = samples;
    }
    const auto words =
        run_world(ranks, [&, samples = samples](int64_t, const fs::path& folder) -> std::string {
          for (const Way& way :
               {Way{"ddp"}, Way{"ddp", "gloo"}, Way{"fsdp"}, Way{"fsdp", "gloo"}, Way{"zero"}}) {
            const std::string found =
                off(way, source, samples, folder / (way.strategy + way.backend));
            if (!found.empty()) return way.strategy + " over " + way.backend + ", " + found;
          }
          return "";
        });
    EXPECT_THAT(words, Each("")) << ranks << " ranks, " << samples << " samples";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, UnevenEvaluation,
    ::testing::Values(Source{.name = "ByIndex"}, Source{.name = "Stream", .shards = {0}},
                      Source{.name = "CountedStream", .shards = {0}, .tells_sizes = true},
                      Source{.name = "DispatchedByIndex", .dispatch = true},
                      Source{.name = "DispatchedStream", .shards = {0}, .dispatch = true}),
    [](const auto& info) { return info.param.name; });

TEST(UnevenEvaluationLimits, AFractionIsOfTheRankThatHasMost) {
  EXPECT_THAT(run_world(3,
                        [](int64_t rank, const fs::path& folder) -> std::string {
                          auto options = options_of({"ddp"}, {}, folder);
                          options.enable_checkpointing = false;
                          options.num_sanity_val_steps = 0;
                          options.limit_val_batches = 0.5;
                          levin::Trainer trainer(options);
                          const auto net = std::make_shared<Scored>();
                          // Rank 0 has 2 batches, rank 1 one, rank 2 none: one each.
                          auto validation = loader_of({"", {3, 2, 0}, true}, 5);
                          trainer.fit(net, DataLoader(dataset(24), {.batch_size = 3}), validation);
                          const std::vector<int64_t> wanted = {4, 4, 0};
                          if (net->samples != wanted[static_cast<size_t>(rank)])
                            return fmt::format("{} samples of two epochs", net->samples);
                          net->samples = 0;
                          const auto metrics = trainer.validate(net, validation);
                          if (metrics.at("samples") != 4) return "other samples in validate";
                          return "";
                        }),
              Each(""));
}

}  // namespace
}  // namespace uneven_evaluation
