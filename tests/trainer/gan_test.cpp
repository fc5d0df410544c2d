// A module with two optimizers and batch norm that optimizes by itself, on two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace gan {
namespace {

using levin::test::run_world;
using small_run::dataset;
using small_run::quiet;
using ::testing::Each;

struct Gan : levin::Module {
  torch::nn::Sequential generator{nullptr}, critic{nullptr};
  std::vector<at::Tensor> evaluated;  ///< the critic's running mean, in each validation
  /// The generator is frozen while the critic is trained: a recorded step wants that said.
  bool toggles_both = false;

  explicit Gan(bool toggles_both) : toggles_both(toggles_both) {
    torch::manual_seed(4);
    generator = register_module(
        "generator", torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8),
                                           torch::nn::ReLU(), torch::nn::Linear(8, 6)));
    critic = register_module(
        "critic", torch::nn::Sequential(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8),
                                        torch::nn::LeakyReLU(), torch::nn::Linear(8, 1)));
    automatic_optimization = false;
  }
  at::Tensor says(const at::Tensor& samples, double truth) {
    const at::Tensor scores = critic->forward(samples);
    return torch::binary_cross_entropy_with_logits(scores, torch::full_like(scores, truth));
  }
  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    const at::Tensor fake = generator->forward(batch["x"]);
    if (toggles_both) optimizer(1).toggle();
    optimizer(1).zero_grad();
    const at::Tensor of_real = says(batch["x"].square(), 1);
    const at::Tensor of_fake = says(fake.detach(), 0);
    manual_backward(of_real);
    manual_backward(of_fake);
    optimizer(1).step();
    if (toggles_both) optimizer(1).untoggle();
    optimizer(0).zero_grad();
    optimizer(0).toggle();
    const at::Tensor loss = says(fake, 1);
    manual_backward(loss);
    optimizer(0).step();
    optimizer(0).untoggle();
    critic->forward(batch["x"]);  // as of somebody who wants to see more
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    evaluated.push_back(critic->named_buffers()["1.running_mean"].clone());
    log("loss", says(batch["x"], 1));
  }
  levin::OptimizerConfig configure_optimizers() override {
    return {levin::optim::adam({.lr = 0.01}).of(*generator),
            levin::optim::sgd({.lr = 0.05}).of(*critic)};
  }
};

std::string differs_between_ranks(levin::Trainer& trainer, const Gan& net) {
  std::string words;
  const auto compare = [&](const std::string& name, const at::Tensor& mine) {
    const at::Tensor first = mine.detach().clone();
    trainer.accelerator().world().broadcast(first, 0);
    if (!at::equal(first, mine.detach())) words += name + " differs; ";
  };
  for (const auto& item : net.named_parameters()) compare(item.key(), item.value());
  for (const at::Tensor& mean : net.evaluated) compare("what was evaluated", mean);
  return words;
}

TEST(TrainerGan, TrainsOnTwoRanksToTheSameWeightsAndEvaluatesTheSame) {
  for (const std::string backend : {"shm", "gloo"}) {
    for (const std::string compile : {"no", "replay"}) {
      EXPECT_THAT(run_world(2,
                            [&](int64_t, const std::filesystem::path& folder) {
                              auto options = quiet(folder.string());
                              options.engine.comm.backend = backend;
                              options.engine.compile = compile;
                              options.max_epochs = 2;
                              options.enable_checkpointing = false;
                              levin::Trainer trainer(options);
                              auto net = std::make_shared<Gan>(compile == "replay");
                              trainer.fit(net, levin::DataLoader(dataset(64), {.batch_size = 4}),
                                          levin::DataLoader(dataset(8), {.batch_size = 4}));
                              if (net->evaluated.size() < 2) return std::string("not evaluated");
                              return differs_between_ranks(trainer, *net);
                            }),
                  Each(""))
          << backend << ", compile " << compile;
    }
  }
}

/// Its body is frozen in the first and the last of three epochs.
struct Thawing : small_run::Net {
  std::vector<at::Tensor> bodies;
  Thawing() : Net(0.0) {
    torch::manual_seed(6);
    for (const at::Tensor& p : parameters()) torch::nn::init::normal_(p, 0.0, 0.3);
    freeze(true);
  }
  void freeze(bool frozen) {
    for (const at::Tensor& p : net->ptr(0)->parameters()) p.set_requires_grad(!frozen);
  }
  at::Tensor body() const { return net->ptr(0)->parameters().front().detach().clone(); }
  void on_train_epoch_start() override { freeze(current_epoch() != 1); }
  void on_train_epoch_end() override { bodies.push_back(body()); }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 0.01});
  }
};

std::shared_ptr<Thawing> thawed(const std::string& folder, const std::string& compile,
                                int64_t epochs = 3, const std::string& from = "") {
  auto options = quiet(folder);
  options.engine.compile = compile;
  options.max_epochs = epochs;
  options.seed = 3;
  levin::Trainer trainer(options);
  auto net = std::make_shared<Thawing>();
  trainer.fit(net, levin::DataLoader(dataset(64), {.batch_size = 4}), std::nullopt,
              {.ckpt_path = from});
  return net;
}

TEST(TrainerFrozen, TrainsWhatIsThawedWhileItIs) {
  const levin::test::Scratch eager_root, replay_root, parts_root;
  const auto before = Thawing().body();
  const auto eager = thawed(eager_root.str(), "no");
  EXPECT_TRUE(torch::equal(eager->bodies.at(0), before));
  EXPECT_FALSE(torch::equal(eager->bodies.at(1), before));
  EXPECT_TRUE(torch::equal(eager->bodies.at(2), eager->bodies.at(1)));
  small_run::expect_same_weights(*thawed(replay_root.str(), "replay"), *eager);
  for (int64_t epochs = 1; epochs < 3; ++epochs) {
    const std::string folder = parts_root.str() + "/" + std::to_string(epochs);
    thawed(folder, "no", epochs);
    small_run::expect_same_weights(*thawed(folder, "no", 3, folder + "/checkpoints/last"), *eager);
  }
}

TEST(TrainerFrozen, AllRanksHaveTheSame) {
  EXPECT_THAT(run_world(2,
                        [&](int64_t, const std::filesystem::path& folder) {
                          const auto net = thawed(folder.string(), "no");
                          auto group = levin::test::connect();
                          std::string words;
                          for (const auto& item : net->named_parameters()) {
                            const at::Tensor first = item.value().detach().clone();
                            group.broadcast(first, 0);
                            if (!at::equal(first, item.value())) words += item.key() + "; ";
                          }
                          if (torch::equal(net->bodies.at(0), net->bodies.at(1))) words += "still";
                          return words;
                        }),
              Each(""));
}

TEST(TrainerFrequency, TheScheduleEndsWithTheRun) {
  struct Two : small_run::Net {
    levin::OptimizerConfig configure_optimizers() override {
      return {levin::optim::sgd({.lr = 0.1}).parameters("*weight"),
              levin::optim::sgd({.lr = 0.1})
                  .parameters("*bias")
                  .frequency(5)
                  .schedule(levin::optim::linear())};
    }
  };
  const levin::test::Scratch root;
  auto options = quiet(root.str());
  options.max_epochs = 2;
  options.enable_checkpointing = false;
  levin::Trainer trainer(options);
  trainer.fit(std::make_shared<Two>(), levin::DataLoader(dataset(40), {.batch_size = 4}));
  EXPECT_EQ(trainer.optimizers()[1].steps(), 4);
  EXPECT_EQ(trainer.optimizers()[1].learning_rate(), 0.0);
}

}  // namespace
}  // namespace gan
