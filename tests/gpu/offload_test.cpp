// 7: --offload optimizer on the card: the optimizer's state lies in pinned memory of the host and comes to the card
// portion by portion. The bits are those of a run with the state on the card.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/optim/offload/state_memory.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/gpu/tasks.h"
#include "tests/support/error_of.h"

namespace levin::test::gpu {
namespace offload_test {
namespace {

using ::testing::StartsWith;

struct Kind {
  std::string name;
  OptimizerConfig config;
  bool takes_matrices_only = false;
};
void PrintTo(const Kind& of, std::ostream* out) { *out << of.name; }

std::vector<Kind> kinds() {
  return {{"Sgd", optim::sgd({.lr = 0.1, .weight_decay = 0.1})},
          {"SgdWithMomentum", optim::sgd({.lr = 0.1, .momentum = 0.9, .dampening = 0.1})},
          {"Adam", optim::adam({.lr = 0.01, .weight_decay = 0.1})},
          {"AdamW", optim::adamw({.lr = 0.01})},
          {"AdamWWithAmsgrad", optim::adamw({.lr = 0.01, .amsgrad = true, .maximize = true})},
          {"NAdam", optim::nadam({.lr = 0.01, .weight_decay = 0.1})},
          {"RAdam", optim::radam({.lr = 0.01, .weight_decay = 0.1})},
          {"Lion", optim::lion({.lr = 0.01, .weight_decay = 0.1})},
          {"Adafactor", optim::adafactor()},
          {"Muon", optim::muon({.lr = 0.1}), true},
          {"Rmsprop", optim::rmsprop({.lr = 0.01, .momentum = 0.5, .centered = true})},
          {"Adagrad", optim::adagrad({.lr = 0.1, .initial_accumulator_value = 0.5})}};
}

/// A megabyte: a step has many portions, and the largest parameters are cut.
constexpr int64_t kMemory = int64_t{1} << 20;

std::vector<NamedTensor> parameters(at::ScalarType type, bool matrices_only) {
  torch::manual_seed(3);
  const auto made = [&](const at::Tensor& values) {
    return values.to(device()).to(type).set_requires_grad(true);
  };
  std::vector<NamedTensor> all = {{"embedding", made(torch::randn({37, 1003}))},
                                  {"turned", made(torch::randn({57, 33}).t())},
                                  {"wide", made(torch::randn({120, 257}))}};
  if (matrices_only) return all;
  all.push_back({"bias", made(torch::randn({57}))});
  all.push_back({"empty", made(torch::randn({0, 4}))});
  all.push_back({"scale", made(torch::randn({}))});
  all.push_back({"long", made(torch::randn({90'001}))});
  return all;
}

/// Some have none now and then.
void give_gradients(const std::vector<NamedTensor>& parameters, int64_t step) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i].tensor;
    parameter.mutable_grad().reset();
    if ((static_cast<int64_t>(i) + step) % 4 == 3) continue;
    torch::manual_seed(step * 10 + static_cast<int64_t>(i));
    parameter.mutable_grad() =
        torch::empty_like(parameter.detach()).copy_(torch::randn(parameter.sizes()));
  }
}

bool are_equal(const at::Tensor& one, const at::Tensor& other) {
  return one.sizes() == other.sizes() && one.scalar_type() == other.scalar_type() &&
         torch::allclose(one.cpu(), other.cpu(), 0, 0, /*equal_nan=*/true);
}

/// "" or the first name at which the two differ.
std::string difference(const State& one, const State& other) {
  if (one.values().size() != other.values().size()) return "other names";
  for (const auto& [name, value] : one.values()) {
    if (!other.contains(name)) return name + " is missing";
    const State::Value& second = other.values().at(name);
    if (const auto* state = std::get_if<State>(&value)) {
      const std::string inner = difference(*state, std::get<State>(second));
      if (!inner.empty()) return name + "/" + inner;
    } else if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      if (name != "options" && !are_equal(*tensor, std::get<at::Tensor>(second))) return name;
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      if (*integer != std::get<int64_t>(second)) return name;
    }
  }
  return "";
}

class Gpu7Offload : public OnGpu, public ::testing::WithParamInterface<Kind> {
 protected:
  /// Steps with both, compares all that there is, and goes on in each other's state.
  void expect_same(OptimizerConfig config, at::ScalarType type) {
    auto on_card = parameters(type, GetParam().takes_matrices_only);
    auto on_host = parameters(type, GetParam().takes_matrices_only);
    OptimizerConfig kept = config;
    kept.keep_state_in(optim::make_host_memory(device(), kMemory));
    auto one = optim::build_optimizer(config, on_card),
         other = optim::build_optimizer(kept, on_host);
    for (int64_t step = 0; step < 7; ++step) {
      SCOPED_TRACE(c10::str(type, ", step ", step));
      if (step == 2) one->groups()[0].lr = other->groups()[0].lr = 0.003;  // as a schedule would
      for (const auto& [optimizer, given] : {std::pair(&one, &on_card), {&other, &on_host}}) {
        give_gradients(*given, step);
        (*optimizer)->step();
      }
      for (size_t i = 0; i < on_card.size(); ++i) {
        EXPECT_TRUE(are_equal(on_card[i].tensor, on_host[i].tensor)) << on_card[i].name;
      }
      if (step % 2 == 1) {  // else the next step begins while copies to the host are under way
        EXPECT_EQ(difference(one->state_dict(), other->state_dict()), "");
      }
      if (step == 3) {  // both resume, from the other's checkpoint
        auto next_one = optim::build_optimizer(config, on_card);
        auto next_other = optim::build_optimizer(kept, on_host);
        next_one->load_state_dict(other->state_dict());
        next_other->load_state_dict(one->state_dict());
        one = std::move(next_one);
        other = std::move(next_other);
      }
      if (step == 5) other->load_state_dict(one->state_dict());  // after what was read ahead
      if (HasFailure()) return;
    }
  }
};

TEST_P(Gpu7Offload, GivesTheBitsOfStateOnTheCard) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
    expect_same(GetParam().config, type);
}

TEST_P(Gpu7Offload, KeepsMasterWeights) {
  expect_same(OptimizerConfig(GetParam().config).master_weights(), at::kBFloat16);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, Gpu7Offload, ::testing::ValuesIn(kinds()),
                         [](const auto& info) { return info.param.name; });

class Gpu7OffloadRuns : public OnGpu {};

/// As a run of these options has it; the CPU keeps state in a file.
void offload(TrainerOptions& options) {
  options.engine.offload = {.state = "optimizer", .tmpfs = is_dry_run(), .memory_mb = 1};
}

TEST_F(Gpu7OffloadRuns, OfTheTrainerGiveTheBitsOfStateOnTheCard) {
  using Change = std::function<void(TrainerOptions&)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"as it is", [](TrainerOptions&) {}},
      {"clipped and accumulated",
       [](TrainerOptions& options) {
         options.accumulate_grad_batches = 2;
         options.gradient_clip_val = 0.1;
       }},
      {"bf16-mixed", [](TrainerOptions& options) { options.precision = "bf16-mixed"; }},
      {"16-mixed with steps that are skipped",
       [](TrainerOptions& options) {
         options.precision = "16-mixed";
         options.engine.scaler.init_scale = 1e9;
       }},
      {"bf16-true with master weights",
       [](TrainerOptions& options) {
         options.precision = "bf16-true";
         options.engine.master_weights = true;
       }},
      {"fsdp", [](TrainerOptions& options) { options.strategy = "fsdp"; }},
      {"zero", [](TrainerOptions& options) { options.strategy = "zero"; }},
      {"ddp", [](TrainerOptions& options) { options.strategy = "ddp"; }}};
  for (const auto& [name, change] : changes) {
    const auto run = [&](bool is_offloaded) {
      return trained_by_trainer(gpt, accelerator(), [&](TrainerOptions& options) {
        options.max_epochs = 2;
        change(options);
        if (is_offloaded) offload(options);
      });
    };
    EXPECT_EQ(gpu::difference(run(true), run(false), 0.0), "") << name;
  }
}

/// Without a schedule, which would end with each part of a run.
struct Unscheduled : small_run::Net {
  OptimizerConfig configure_optimizers() override { return optim::adamw({.lr = 1e-2}); }
};

/// The weights after this epoch, from the last checkpoint on.
State trained_until(int64_t epoch, const Scratch& root, bool is_offloaded, bool saves_async) {
  TrainerOptions options = small_run::quiet(root.str());
  options.accelerator = accelerator();
  options.max_epochs = epoch;
  options.seed = 11;
  options.ckpt_path = "last";
  options.callbacks = {model_checkpoint(
      {.dirpath = (root / "ckpt").string(), .save_last = true, .async_save = saves_async})};
  if (is_offloaded) offload(options);
  torch::manual_seed(2);
  const auto net = std::make_shared<Unscheduled>();
  Trainer trainer(options);
  trainer.fit(net, DataLoader(small_run::dataset(56), {.batch_size = 8, .shuffle = true}));
  return on_cpu(*net);
}

TEST_F(Gpu7OffloadRuns, GoOnFromCheckpointsWithStateOnTheCardAndBack) {
  const Scratch whole;
  const State wanted = trained_until(3, whole, false, false);
  for (const bool saves_async : {false, true}) {
    for (const auto& [first, second] : {std::pair(true, false), {false, true}, {true, true}}) {
      const Scratch root;
      trained_until(1, root, first, saves_async);
      EXPECT_EQ(difference(trained_until(3, root, second, saves_async), wanted), "")
          << first << second << saves_async;
    }
  }
}

/// AdamW's state has twice the bytes of the parameters.
TEST_F(Gpu7OffloadRuns, KeepTheStateOutOfTheCardsMemory) {
  LEVIN_NEEDS_A_CARD("caching allocator, whose statistics say what is allocated");
  constexpr int64_t kMiB = int64_t{1} << 20;
  const auto kept = [&](bool is_offloaded) {
    const int64_t before = allocated_bytes();
    AcceleratorOptions options{.accelerator = accelerator()};
    if (is_offloaded) options.engine.offload = {.state = "optimizer", .memory_mb = 16};
    Accelerator accelerator(options);
    torch::nn::Sequential net;
    for (int i = 0; i < 16; ++i) net->push_back(torch::nn::Linear(1024, 1024));
    auto [model, optimizer] = accelerator.prepare(net, optim::adamw({.lr = 1e-3}));
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      accelerator.backward(model->forward(torch::ones({4, 1024}, device())).square().mean());
      optimizer.step();
    }
    optimizer.zero_grad();
    synchronize();
    return allocated_bytes() - before;
  };
  kept(false);  // what libraries keep from their first calls on
  const int64_t on_card = kept(false), on_host = kept(true);
  std::fprintf(stderr, "MiB on the card: %ld, with --offload optimizer %ld\n",
               static_cast<long>(on_card / kMiB), static_cast<long>(on_host / kMiB));
  EXPECT_GE(on_card, 192 * kMiB);
  EXPECT_LE(on_host, (64 + 16 + 8) * kMiB);
}

TEST_F(Gpu7OffloadRuns, AreRefusedByNameForWhatTheCardDoesNotSupport) {
  LEVIN_NEEDS_A_CARD("options that are refused on a GPU alone");
  const auto told = [](OffloadOptions offload, const std::string& compile = "no") {
    return told_by([&] {
      Accelerator accelerator({.accelerator = gpu::accelerator(),
                               .strategy = "fsdp",
                               .engine = {.offload = std::move(offload), .compile = compile}});
    });
  };
  EXPECT_THAT(told({.state = "parameters"}),
              StartsWith("accelerator.offload: got --offload parameters with a GPU, which supports "
                         "--offload optimizer only"));
  EXPECT_THAT(told({.state = "optimizer", .folder = "/tmp"}),
              StartsWith("accelerator.offload: got --offload-folder with a GPU"));
}

}  // namespace
}  // namespace offload_test
}  // namespace levin::test::gpu
