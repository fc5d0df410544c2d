// A generator and a critic with batch norm, each with its optimizer and steps in turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/accelerator/small_nets.h"
#include "tests/support/replayed.h"
#include "tests/support/world.h"

namespace gan {
namespace {

using levin::Batch;
using levin::test::run_world;
using ::testing::Each;

constexpr int64_t kRows = 16;

struct Form {
  std::string backend = "shm";
  std::string compile = "no";
  bool forwards_first = false;  ///< the critic sees real and fake before the first backward
  bool sync_batchnorm = false;
};

std::string name_of(const Form& form) {
  return form.backend + ", compile " + form.compile +
         (form.forwards_first ? ", forwards first" : "") +
         (form.sync_batchnorm ? ", batch norm over ranks" : "");
}

torch::nn::Sequential net(uint64_t seed, int64_t in, int64_t out) {
  torch::manual_seed(seed);
  return torch::nn::Sequential(torch::nn::Linear(in, 8), torch::nn::BatchNorm1d(8),
                               torch::nn::LeakyReLU(), torch::nn::Linear(8, out));
}

at::Tensor says(const at::Tensor& scores, double truth) {
  return torch::binary_cross_entropy_with_logits(scores, torch::full_like(scores, truth));
}

struct Trained {
  torch::nn::Sequential generator = net(1, 4, 6);
  torch::nn::Sequential critic = net(2, 6, 1);
  int64_t replayed = 0;

  explicit Trained(const Form& form, bool alone = false) {
    levin::AcceleratorOptions options;
    options.cpu = true;
    options.engine.comm.backend = form.backend;
    options.engine.compile = form.compile;
    options.engine.sync_batchnorm = form.sync_batchnorm;
    levin::Accelerator accelerator(options);
    auto [g, d, of_g, of_d] = accelerator.prepare(
        generator, critic, levin::optim::sgd({.lr = 0.1, .momentum = 0.5}).of(generator),
        levin::optim::sgd({.lr = 0.1, .momentum = 0.5}).of(critic));
    auto step = accelerator.compile([&](const Batch& batch) {
      const at::Tensor fake = g.forward(batch["noise"]);
      of_d.zero_grad();
      if (form.forwards_first) {
        const at::Tensor of_real = d.forward(batch["real"]);
        const at::Tensor of_fake = d.forward(fake.detach());
        accelerator.backward(says(of_real, 1));
        accelerator.backward(says(of_fake, 0));
      } else {
        accelerator.backward(says(d.forward(batch["real"]), 1));
        accelerator.backward(says(d.forward(fake.detach()), 0));
      }
      of_d.step();
      of_g.zero_grad();
      const at::Tensor loss = says(d.forward(fake), 1);
      accelerator.backward(loss);
      of_g.step();
      return loss;
    });
    const int64_t rank = alone ? 0 : accelerator.process_index();
    const int64_t ranks = alone ? 1 : accelerator.num_processes();
    for (int64_t i = 0; i < 10; ++i) {
      torch::manual_seed(100 + static_cast<uint64_t>(i));
      Batch batch;
      for (const auto& [name, width] : {std::pair("noise", 4), {"real", 6}}) {
        batch.set(name, torch::randn({kRows, width}).slice(0, rank, kRows, ranks).clone());
      }
      step(batch);
    }
    replayed = levin::test::num_replayed(step.report());
  }

  levin::State state() const {
    levin::State state;
    state.set("g", levin::module_state(*generator)).set("d", levin::module_state(*critic));
    return state;
  }
};

std::string differs(const levin::State& got, const levin::State& wanted, double tolerance,
                    bool buffers = true) {
  std::string words;
  for (const std::string part : {"g", "d"}) {
    for (const auto& [name, value] : wanted.child(part).values()) {
      if (!buffers && name.find("running") != std::string::npos) continue;
      const at::Tensor mine = got.child(part).tensor(name).to(at::kDouble);
      const double off =
          (mine - wanted.child(part).tensor(name).to(at::kDouble)).abs().max().item<double>();
      if (!(off <= tolerance)) words += part + "." + name + " is off by " + std::to_string(off);
    }
  }
  return words;
}

/// In a process of its own, since LibTorch's threads do not outlive a fork.
std::string differs_between_ranks(const levin::State& mine) {
  auto group = levin::test::connect();
  levin::State first;
  for (const std::string part : {"g", "d"}) {
    levin::State copies;
    for (const auto& [name, value] : mine.child(part).values()) {
      const at::Tensor copy = mine.child(part).tensor(name).clone();
      group.broadcast(copy, 0);
      copies.set(name, copy);
    }
    first.set(part, std::move(copies));
  }
  return differs(mine, first, 0);
}

std::vector<Form> forms() {
  std::vector<Form> all;
  for (const std::string backend : {"shm", "gloo"}) {
    for (const std::string compile : {"no", "replay"}) {
      for (const bool forwards_first : {false, true}) {
        all.push_back({backend, compile, forwards_first, false});
      }
    }
    all.push_back({backend, "no", false, true});
  }
  return all;
}

TEST(Gan, TrainsOnTwoRanksToTheSameWeightsAndBuffersOnBoth) {
  for (const Form& form : forms()) {
    EXPECT_THAT(run_world(2,
                          [&](int64_t, const auto&) {
                            const Trained trained(form);
                            if (form.compile == "replay" && trained.replayed < 5) {
                              return std::string("not replayed");
                            }
                            return differs_between_ranks(trained.state());
                          }),
                Each(""))
        << name_of(form);
  }
}

TEST(Gan, ReplayedEqualsEagerBitForBit) {
  for (const std::string backend : {"shm", "gloo"}) {
    for (const bool forwards_first : {false, true}) {
      EXPECT_THAT(run_world(2,
                            [&](int64_t, const auto&) {
                              const Trained eager({backend, "no", forwards_first, false});
                              const Trained replayed({backend, "replay", forwards_first, false});
                              return differs(replayed.state(), eager.state(), 0);
                            }),
                  Each(""))
          << backend;
    }
  }
}

/// Batch norm over all ranks, so that two can equal one.
TEST(Gan, TwoRanksEqualOne) {
  const levin::test::Scratch scratch;
  EXPECT_THAT(run_world(1,
                        [&](int64_t, const auto&) {
                          const levin::State state = Trained({}).state();
                          levin::save_weights(scratch / "g.safetensors", state.child("g"));
                          levin::save_weights(scratch / "d.safetensors", state.child("d"));
                          return "";
                        }),
              Each(""));
  levin::State alone;
  alone.set("g", levin::load_weights(scratch / "g.safetensors"))
      .set("d", levin::load_weights(scratch / "d.safetensors"));
  for (const std::string backend : {"shm", "gloo"}) {
    EXPECT_THAT(run_world(2,
                          [&](int64_t, const auto&) {
                            const Trained trained({backend, "no", false, true});
                            return differs(trained.state(), alone, 1e-5);
                          }),
                Each(""))
        << backend;
  }
}

}  // namespace
}  // namespace gan
