// 7: memory of the card and what goes wrong on it: activations computed again, memory that goes back, a NaN
// that is named, kill -9, and a step that runs out of memory.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <limits>

#include "levin/base/autocast.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/module/activation_checkpoint.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/gpu/tasks.h"
#include "tests/graph/allocation_meter.h"

namespace levin::test::gpu {
namespace memory_test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Blocks with dropout, whose activations are most of the memory.
struct Blocks : torch::nn::Module {
  std::vector<torch::nn::Linear> in, out;
  bool checkpoints = false;

  Blocks(int64_t count, int64_t width, bool checkpoints) : checkpoints(checkpoints) {
    torch::manual_seed(1);
    for (int64_t i = 0; i < count; ++i) {
      in.push_back(register_module("in" + std::to_string(i), torch::nn::Linear(width, 4 * width)));
      out.push_back(
          register_module("out" + std::to_string(i), torch::nn::Linear(4 * width, width)));
    }
  }
  at::Tensor block(size_t i, const at::Tensor& x) {
    const at::Tensor middle = torch::gelu(in[i](x));
    return x + torch::dropout(out[i](middle), 0.3, is_training());
  }
  at::Tensor forward(at::Tensor x) {
    for (size_t i = 0; i < in.size(); ++i) {
      x = checkpoints ? activation_checkpoint(
                            [this, i](const at::Tensor& input) { return block(i, input); }, x)
                      : block(i, x);
    }
    return x;
  }
};

struct Passed {
  at::Tensor loss, drawn_after_forward, drawn_after_backward;
  std::vector<at::Tensor> gradients;
  int64_t peak = 0;  ///< bytes beside the parameters
};

Passed passed(bool checkpoints, at::ScalarType autocast) {
  const auto net = std::make_shared<Blocks>(8, 64, checkpoints);
  net->to(device());
  const at::Tensor x = torch::ones({256, 64}, device()).requires_grad_();
  Passed passed;
  const auto pass = [&] {
    torch::manual_seed(7);
    {
      const AutocastScope scope(device().type(),
                                {.enabled = autocast != at::kFloat, .dtype = autocast});
      passed.loss = net->forward(x).to(at::kFloat).square().mean();
    }
    passed.drawn_after_forward = torch::rand({5}, device());
    passed.loss.backward();
    passed.drawn_after_backward = torch::rand({5}, device());
  };
  if (is_dry_run()) {
    passed.peak = peak_of(pass);
  } else {
    reset_peak();
    const int64_t before = allocated_bytes();
    pass();
    passed.peak = peak_bytes() - before;
  }
  for (const at::Tensor& parameter : net->parameters())
    passed.gradients.push_back(parameter.grad());
  return passed;
}

class Gpu7Memory : public OnGpu {};

TEST_F(Gpu7Memory, ActivationCheckpointsGiveTheSameBitsInLessMemory) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    passed(false, type);  // what libraries keep from their first calls on
    const Passed plain = passed(false, type), again = passed(true, type);
    EXPECT_TRUE(at::equal(again.loss, plain.loss));
    EXPECT_TRUE(at::equal(again.drawn_after_forward, plain.drawn_after_forward));
    EXPECT_TRUE(at::equal(again.drawn_after_backward, plain.drawn_after_backward));
    ASSERT_EQ(again.gradients.size(), plain.gradients.size());
    for (size_t i = 0; i < plain.gradients.size(); ++i) {
      EXPECT_TRUE(at::equal(again.gradients[i], plain.gradients[i])) << i;
    }
    EXPECT_LT(again.peak, 0.7 * static_cast<double>(plain.peak)) << type;
  }
}

TEST_F(Gpu7Memory, GoesBackAfterEachStepAndAtTheEnd) {
  LEVIN_NEEDS_A_CARD("caching allocator, whose statistics say what is allocated");
  const int64_t before = allocated_bytes();
  {
    Accelerator accelerator({.accelerator = gpu::accelerator()});
    const auto net = std::make_shared<Blocks>(4, 64, false);
    auto [model, optimizer] = accelerator.prepare(net, optim::adamw({.lr = 1e-3}));
    std::vector<int64_t> kept;
    for (int64_t step = 0; step < 8; ++step) {
      optimizer.zero_grad();
      at::Tensor loss = model->forward(torch::ones({64, 64}, device())).square().mean();
      accelerator.backward(loss);
      optimizer.step();
      loss.reset();
      optimizer.zero_grad();
      synchronize();
      kept.push_back(allocated_bytes());
    }
    EXPECT_EQ(kept.back(), kept[2]) << "memory grows from step to step";
  }
  synchronize();
  // cuBLAS keeps a workspace.
  EXPECT_LE(allocated_bytes() - before, int64_t{64} << 20);
}

TEST_F(Gpu7Memory, OfAReplayGoesBackWithIt) {
  LEVIN_NEEDS_A_CARD("caching allocator, whose statistics say what is allocated");
  const auto run = [] {
    Accelerator accelerator({.accelerator = gpu::accelerator(), .engine = {.compile = "replay"}});
    const auto net = std::make_shared<Blocks>(4, 64, false);
    auto [model, optimizer] = accelerator.prepare(net, optim::adamw({.lr = 1e-3}));
    auto step = accelerator.compile([&](const at::Tensor& x) {
      optimizer.zero_grad();
      const at::Tensor loss = model->forward(x).square().mean();
      accelerator.backward(loss);
      optimizer.step();
      return loss;
    });
    for (int64_t i = 0; i < 12; ++i) step(torch::ones({64, 64}, device()));
    synchronize();
  };
  run();
  const int64_t after_one = allocated_bytes();
  for (int i = 0; i < 3; ++i) run();
  EXPECT_LE(allocated_bytes(), after_one + (int64_t{1} << 20))
      << "each replay leaves memory behind";
}

struct NanNet : TaskModule {
  using TaskModule::TaskModule;
  at::Tensor training_step(const Batch& batch, int64_t) override {
    // sqrt has an infinite slope at 0, times 0.
    return task.loss(batch["x"]) +
           (task.module->parameters().front() * 0.0).abs().sqrt().sum() * 0.0;
  }
};

TEST_F(Gpu7Memory, AnomalyDetectionNamesTheOperatorOfANan) {
  const Scratch scratch;
  TrainerOptions options = small_run::quiet(scratch.str());
  options.accelerator = gpu::accelerator();
  options.max_epochs = 1;
  options.detect_anomaly = true;
  options.enable_checkpointing = false;
  const auto net = std::make_shared<NanNet>(built(mlp));
  Trainer trainer(options);
  std::string error;
  ::testing::internal::CaptureStderr();
  try {
    trainer.fit(net, DataLoader(data_of(net->task), {.batch_size = kGlobalBatch}));
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(error, HasSubstr("SqrtBackward0' returned nan values"));
}

TEST_F(Gpu7Memory, ANanLossIsNamedWithItsBatch) {
  const Scratch scratch;
  TrainerOptions options = small_run::quiet(scratch.str());
  options.accelerator = gpu::accelerator();
  options.max_epochs = 1;
  options.engine.loss_guard.nan_policy = "stop";
  options.enable_checkpointing = false;
  struct Net : TaskModule {
    using TaskModule::TaskModule;
    at::Tensor training_step(const Batch& batch, int64_t index) override {
      const double factor = index == 3 ? std::numeric_limits<double>::quiet_NaN() : 1.0;
      return task.loss(batch["x"]) * factor;
    }
  };
  const auto net = std::make_shared<Net>(built(mlp));
  Trainer trainer(options);
  std::string error;
  try {
    trainer.fit(net, DataLoader(data_of(net->task), {.batch_size = kGlobalBatch}));
  } catch (const Error& thrown) {
    error = thrown.what();
  }
  EXPECT_THAT(error, AllOf(HasSubstr("accelerator.loss.stop"), HasSubstr("batch 3 of epoch 0")));
}

/// A run of 24 steps with dropout that writes a checkpoint every 5, and tells of its 12th step.
State killable_run(const fs::path& folder, const std::string& from) {
  struct Tells : Callback {
    fs::path folder;
    std::string state_key() const override { return "tells"; }
    void on_train_batch_end(Trainer& trainer, levin::Module&, const at::Tensor&, const Batch&,
                            int64_t) override {
      if (trainer.global_step() < 12 || std::getenv("LEVIN_GPU_TESTS_FOLDER") == nullptr) return;
      put(folder / "stepped", "12");
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it does not end by itself
    }
  };
  TrainerOptions options = small_run::quiet(folder.string());
  options.accelerator = gpu::accelerator();
  options.max_epochs = 3;
  options.seed = 13;
  options.ckpt_path = from;
  const auto tells = std::make_shared<Tells>();
  tells->folder = folder;
  options.callbacks = {
      tells, model_checkpoint({.dirpath = (folder / "ckpt").string(), .every_n_train_steps = 5})};
  const auto net = std::make_shared<small_run::Net>();
  Trainer trainer(options);
  trainer.fit(net, DataLoader(small_run::dataset(64),
                              {.batch_size = 8, .shuffle = true, .num_workers = 2}));
  return on_cpu(*net);
}

TEST_F(Gpu7Memory, DISABLED_ProgramThatIsKilled) { killable_run(shared_folder(), ""); }

TEST_F(Gpu7Memory, ARunThatWasKilledGoesOnBitForBit) {
  const Scratch undisturbed, killed;
  const State wanted = killable_run(undisturbed.path(), "");
  ASSERT_EQ(run_and_kill("Gpu7Memory.DISABLED_ProgramThatIsKilled", killed.path(), "stepped"),
            -SIGKILL)
      << get(killed / "log");
  const State resumed = killable_run(killed.path(), "last");
  for (const auto& [name, value] : wanted.values()) {
    EXPECT_TRUE(at::equal(resumed.tensor(name), wanted.tensor(name))) << name;
  }
}

/// More than any card, or any address, has.
constexpr int64_t kTooMany = int64_t{1} << 48;

struct FullNet : TaskModule {
  using TaskModule::TaskModule;
  bool is_full = true;
  at::Tensor training_step(const Batch& batch, int64_t) override {
    if (is_full) torch::empty({kTooMany}, batch["x"].options());
    return task.loss(batch["x"]);
  }
};

TEST_F(Gpu7Memory, AStepThatRunsOutOfItNamesItsBatchAndWhatHelps) {
  const Scratch scratch;
  TrainerOptions options = small_run::quiet(scratch.str());
  options.accelerator = gpu::accelerator();
  options.max_epochs = 1;
  options.enable_checkpointing = false;
  const auto net = std::make_shared<FullNet>(built(mlp));
  Trainer trainer(options);
  const DataLoader data(data_of(net->task), {.batch_size = kGlobalBatch});
  std::string error;
  ::testing::internal::CaptureStderr();
  try {
    trainer.fit(net, data);
  } catch (const c10::OutOfMemoryError& thrown) {
    error = thrown.what();
  } catch (const c10::Error& thrown) {
    EXPECT_TRUE(is_dry_run()) << thrown.what();
    error = thrown.what();
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(error,
              ::testing::AnyOf(HasSubstr("out of memory"), HasSubstr("can't allocate memory"),
                               HasSubstr("not enough memory")));
  EXPECT_THAT(said,
              AllOf(HasSubstr("accelerator.memory: " + device().str() +
                              " ran out of memory in a step with a batch_size of 24"),
                    HasSubstr("accumulate_grad_batches"), HasSubstr("levin::activation_checkpoint"),
                    HasSubstr("--precision bf16-mixed"), HasSubstr("--strategy fsdp")));
  // The card can still be used.
  net->is_full = false;
  trainer.fit(net, data);
  EXPECT_EQ(std::ssize(net->losses), kSteps);
}

}  // namespace
}  // namespace memory_test
}  // namespace levin::test::gpu
