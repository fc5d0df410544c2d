// Hooks of a module that do a part of the Trainer's work: backward, optimizer_step, optimizer_zero_grad,
// configure_gradient_clipping, transfer_batch_to_device, configure_callbacks; and schedules moved by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace replaced_hooks_test {
namespace {

using namespace small_run;  // NOLINT
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Its functions are the hooks' overrides where they are set.
struct Hooked : levin::Module {
  torch::nn::Linear layer{nullptr};
  std::function<void(const at::Tensor&)> own_backward;
  std::function<void(levin::OptimizerHandle&)> own_step, own_zero_grad, own_clipping;
  std::function<levin::Batch(levin::Batch)> own_transfer;
  std::function<at::Tensor(const at::Tensor& loss)> own_loss;
  std::vector<std::shared_ptr<levin::Callback>> own_callbacks;
  std::vector<double> rates, seen;  ///< rates after each batch; the first feature of each batch
  int64_t batches = 0;
  bool by_hand = false;

  Hooked() {
    torch::manual_seed(1);
    layer = register_module("layer", torch::nn::Linear(6, 3));
  }
  at::Tensor loss_of(const levin::Batch& batch) {
    return torch::nn::functional::cross_entropy(layer->forward(batch["x"]), batch["y"]);
  }
  using levin::Module::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    ++batches;
    const at::Tensor loss = loss_of(batch);
    return own_loss ? own_loss(loss) : loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    seen.push_back(batch["x"][0][0].item<double>());
  }
  void backward(const at::Tensor& loss) override {
    own_backward ? own_backward(loss) : Module::backward(loss);
  }
  void optimizer_step(levin::OptimizerHandle& optimizer) override {
    own_step ? own_step(optimizer) : Module::optimizer_step(optimizer);
  }
  void optimizer_zero_grad(levin::OptimizerHandle& optimizer) override {
    own_zero_grad ? own_zero_grad(optimizer) : Module::optimizer_zero_grad(optimizer);
  }
  void configure_gradient_clipping(levin::OptimizerHandle& optimizer, std::optional<double> value,
                                   std::string_view algorithm) override {
    if (own_clipping) return own_clipping(optimizer);
    Module::configure_gradient_clipping(optimizer, value, algorithm);
  }
  levin::Batch transfer_batch_to_device(levin::Batch batch) override {
    return own_transfer ? own_transfer(std::move(batch))
                        : Module::transfer_batch_to_device(std::move(batch));
  }
  std::vector<std::shared_ptr<levin::Callback>> configure_callbacks() override {
    return own_callbacks;
  }
  void on_train_batch_end(const at::Tensor&, const levin::Batch&, int64_t index) override {
    if (by_hand && index % 2 == 1) optimizer().step_schedule();
    if (by_hand) rates.push_back(optimizer().learning_rate());
  }
  levin::OptimizerConfig configure_optimizers() override {
    levin::OptimizerConfig config = levin::optim::sgd({.lr = 0.5, .momentum = 0.9});
    if (by_hand) config.schedule(levin::optim::exponential({.gamma = 0.5}).by_hand());
    return config;
  }
};

levin::DataLoader loader() { return {dataset(32), {.batch_size = 4}}; }

levin::TrainerOptions one_epoch() {
  levin::TrainerOptions options = quiet(".");
  options.enable_checkpointing = false;
  options.max_epochs = 1;
  return options;
}

struct Fit {
  std::shared_ptr<Hooked> module = std::make_shared<Hooked>();
  int64_t steps = 0;
};

Fit fit(const std::function<void(Hooked&)>& change, levin::TrainerOptions options = one_epoch()) {
  Fit run;
  change(*run.module);
  levin::Trainer trainer(std::move(options));
  trainer.fit(run.module, loader());
  run.steps = trainer.global_step();
  return run;
}

bool are_equal(const Fit& a, const Fit& b) {
  return torch::equal(a.module->layer->weight, b.module->layer->weight) &&
         torch::equal(a.module->layer->bias, b.module->layer->bias);
}

void skip_every_second(Hooked& module) {
  module.own_step = [&module](levin::OptimizerHandle& optimizer) {
    if (module.batches % 2 == 1) optimizer.step();
  };
}

void leave_every_second_out(Hooked& module) {
  module.own_loss = [&module](const at::Tensor& loss) {
    return module.batches % 2 == 1 ? loss : at::Tensor();
  };
}

TEST(ReplacedHooks, AStepThatIsLeftOutIsNotCounted) {
  const Fit skipping = fit(skip_every_second), reference = fit(leave_every_second_out);
  EXPECT_EQ(skipping.steps, 4);
  EXPECT_EQ(reference.steps, 4);
  EXPECT_TRUE(are_equal(skipping, reference));
  EXPECT_FALSE(are_equal(skipping, fit([](Hooked&) {})));
}

TEST(ReplacedHooks, AStepThatIsLeftOutWithALossScale) {
  levin::TrainerOptions options = one_epoch();
  options.precision = "16-mixed";
  const Fit skipping = fit(skip_every_second, options);
  EXPECT_EQ(skipping.steps, 4);
  EXPECT_TRUE(are_equal(skipping, fit(leave_every_second_out, options)));
}

TEST(ReplacedHooks, OnTwoRanks) {
  for (const std::string strategy : {"ddp", "fsdp", "zero"}) {
    const auto words = run_world(2, [&](int64_t, const fs::path&) -> std::string {
      levin::TrainerOptions options = one_epoch();
      options.strategy = strategy;
      if (!are_equal(fit(skip_every_second, options), fit(leave_every_second_out, options)))
        return "optimizer_step";
      const auto by_value = [](Hooked& module) {
        module.own_clipping = [](levin::OptimizerHandle& optimizer) {
          optimizer.clip_grad_value(0.01);
        };
      };
      levin::TrainerOptions clipping = options;
      clipping.gradient_clip_val = 0.01;
      clipping.gradient_clip_algorithm = "value";
      const auto nothing = [](Hooked&) {};
      if (!are_equal(fit(by_value, options), fit(nothing, clipping))) return "clipping";
      if (are_equal(fit(by_value, options), fit(nothing, options))) return "no clipping";
      return "";
    });
    EXPECT_THAT(words, Each("")) << strategy;
  }
}

TEST(ReplacedHooks, ClippingReplacesThatOfTheOptions) {
  levin::TrainerOptions options = one_epoch();
  options.gradient_clip_val = 0.01;
  const Fit by_option = fit([](Hooked&) {}, options);
  const auto by_norm = [](Hooked& module) {
    module.own_clipping = [](levin::OptimizerHandle& optimizer) { optimizer.clip_grad_norm(0.01); };
  };
  EXPECT_TRUE(are_equal(by_option, fit(by_norm)));
  options.gradient_clip_val = 100.0;
  EXPECT_TRUE(are_equal(by_option, fit(by_norm, options)));
}

TEST(ReplacedHooks, BackwardOfAnotherLoss) {
  const auto doubled = [](Hooked& module) {
    module.own_backward = [&module](const at::Tensor& loss) {
      module.levin::Module::backward(loss * 2);
    };
  };
  const auto reference = [](Hooked& module) {
    module.own_loss = [](const at::Tensor& loss) { return loss * 2; };
  };
  EXPECT_TRUE(are_equal(fit(doubled), fit(reference)));
  EXPECT_FALSE(are_equal(fit(doubled), fit([](Hooked&) {})));
}

TEST(ReplacedHooks, ABackwardThatComputesNothingIsAnError) {
  EXPECT_THAT(error_of([] { fit([](Hooked& module) { module.own_backward = [](auto&) {}; }); }),
              HasSubstr("trainer.backward: backward() of "));
}

TEST(ReplacedHooks, GradientsThatAreKeptAddUp) {
  const Fit keeping = fit([](Hooked& module) { module.own_zero_grad = [](auto&) {}; });
  Hooked by_hand;
  const auto optimizer = levin::optim::build_optimizer(by_hand.configure_optimizers(),
                                                       levin::named_parameters(by_hand));
  for (const levin::Batch& batch : loader()) {
    by_hand.loss_of(batch).backward();
    optimizer->step();
  }
  EXPECT_TRUE(torch::equal(keeping.module->layer->weight, by_hand.layer->weight));
}

TEST(ReplacedHooks, TheBatchThatTheTransferReturnsIsUsed) {
  const auto module = std::make_shared<Hooked>();
  module->own_transfer = [&module](levin::Batch batch) {
    batch = module->levin::Module::transfer_batch_to_device(std::move(batch));
    batch["x"].fill_(7.0);
    return batch;
  };
  levin::Trainer trainer(one_epoch());
  trainer.validate(module, loader());
  EXPECT_EQ(module->seen, std::vector<double>(8, 7.0));
}

TEST(ReplacedHooks, AScheduleMovesByHand) {
  const Fit run = fit([](Hooked& module) { module.by_hand = true; });
  EXPECT_THAT(run.module->rates,
              ElementsAre(0.5, 0.25, 0.25, 0.125, 0.125, 0.0625, 0.0625, 0.03125));
}

TEST(ReplacedHooks, AScheduleMovedByHandIsResumed) {
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.str());
  options.max_steps = 3;
  options.max_epochs = 1;
  const auto begun = std::make_shared<Hooked>(), resumed = std::make_shared<Hooked>();
  begun->by_hand = resumed->by_hand = true;
  levin::Trainer(options).fit(begun, loader());
  options.max_steps = -1;
  options.ckpt_path = "last";
  levin::Trainer(options).fit(resumed, loader());
  EXPECT_THAT(resumed->rates, ElementsAre(0.125, 0.125, 0.0625, 0.0625, 0.03125));
}

TEST(ReplacedHooks, AScheduleByHandDoesNotKnowTheLengthOfTheRun) {
  struct Cosine : Hooked {
    levin::OptimizerConfig configure_optimizers() override {
      return levin::optim::sgd({.lr = 0.5}).schedule(levin::optim::cosine().by_hand());
    }
  };
  EXPECT_THAT(
      error_of([] { levin::Trainer(one_epoch()).fit(std::make_shared<Cosine>(), loader()); }),
      HasSubstr("optim.schedule.total_steps"));
}

TEST(ReplacedHooks, WithReplayedSteps) {
  levin::TrainerOptions replay = one_epoch();
  replay.max_epochs = 4;
  levin::TrainerOptions eager = replay;
  replay.engine.compile = "replay";
  const auto change = [](Hooked& module) {
    module.own_clipping = [](levin::OptimizerHandle& optimizer) {
      optimizer.clip_grad_value(0.01);
    };
    module.own_backward = [&module](const at::Tensor& loss) {
      module.levin::Module::backward(loss * 2);
    };
    module.own_step = [&module](levin::OptimizerHandle& optimizer) {
      if (module.global_step() != 5) optimizer.step();
    };
  };
  EXPECT_TRUE(are_equal(fit(change, replay), fit(change, eager)));
}

/// Callbacks that tell their names when a fit begins.
struct Named : levin::Callback {
  std::string name;
  std::vector<std::string>& told;
  Named(std::string name, std::vector<std::string>& told) : name(std::move(name)), told(told) {}
  std::string state_key() const override { return name; }
  void on_fit_start(levin::Trainer&, levin::Module&) override { told.push_back(name); }
};
struct Other : Named {
  using Named::Named;
};

TEST(ReplacedHooks, CallbacksOfTheModuleReplaceThoseOfTheirClass) {
  std::vector<std::string> told;
  levin::TrainerOptions options = one_epoch();
  options.callbacks = {std::make_shared<Named>("first", told),
                       std::make_shared<Other>("other", told),
                       std::make_shared<Named>("second", told)};
  const auto module = std::make_shared<Hooked>();
  module->own_callbacks = {std::make_shared<Named>("own", told)};
  levin::Trainer trainer(options);
  trainer.fit(module, loader());
  EXPECT_THAT(told, ElementsAre("other", "own"));
  // The options keep theirs for a module without any.
  told.clear();
  trainer.fit(std::make_shared<Hooked>(), loader());
  EXPECT_THAT(told, ElementsAre("first", "other", "second"));
}

TEST(ReplacedHooks, CheckpointsOfTheModuleAreAdded) {
  const Scratch scratch;
  levin::TrainerOptions options = quiet(scratch.str());
  options.max_epochs = 1;
  options.callbacks = {levin::model_checkpoint({.dirpath = scratch.str() + "/a"})};
  const auto module = std::make_shared<Hooked>();
  module->own_callbacks = {levin::model_checkpoint({.dirpath = scratch.str() + "/b"})};
  levin::Trainer trainer(options);
  trainer.fit(module, loader());
  EXPECT_TRUE(fs::exists(scratch.path() / "a" / "last"));
  EXPECT_TRUE(fs::exists(scratch.path() / "b" / "last"));
}

TEST(ReplacedHooks, AnEmptyCallbackIsAnError) {
  EXPECT_THAT(error_of([] { fit([](Hooked& module) { module.own_callbacks = {nullptr}; }); }),
              HasSubstr("trainer.callbacks: configure_callbacks of"));
}

}  // namespace
}  // namespace replaced_hooks_test
