// After fit a module that was divided over ranks shows its whole, or says where it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/module/parameters.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"
#include "tests/trainer/small_run.h"

namespace after_fit {
namespace {

using namespace small_run;  // NOLINT
using levin::State;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;

struct Fitted {
  std::shared_ptr<Net> net;
  std::unique_ptr<levin::Trainer> trainer;
};

levin::DataLoader batches() { return levin::DataLoader(dataset(48), {.batch_size = 8}); }

Fitted fitted(const std::string& strategy, const std::string& backend, const fs::path& root,
              int64_t epochs = 2) {
  torch::manual_seed(9);
  auto options = quiet((root / (strategy + backend)).string());
  options.enable_checkpointing = false;
  options.max_epochs = epochs;
  options.seed = 4;
  options.strategy = strategy;
  options.engine.comm.backend = backend;
  Fitted run{std::make_shared<Net>(0.0), std::make_unique<levin::Trainer>(options)};
  run.trainer->fit(run.net, batches());
  return run;
}

/// "" where each parameter as it stands equals the one of that name.
std::string difference(const torch::nn::Module& net, const State& wanted) {
  for (const auto& [name, tensor] : levin::named_parameters(net)) {
    if (tensor.sizes() != wanted.tensor(name).sizes())
      return c10::str(name, " has sizes ", tensor.sizes());
    if (!tensor.equal(wanted.tensor(name))) return name + " has other values";
  }
  return "";
}

class AfterFit : public ::testing::TestWithParam<std::string> {};

TEST_P(AfterFit, AModuleOfRanksThatShareMemoryIsWholeForEveryReader) {
  const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) -> std::string {
    const Fitted run = fitted(GetParam(), "shm", folder);
    const State whole = levin::full(*run.net);
    if (const std::string off = difference(*run.net, whole); !off.empty()) return off;
    const at::Tensor weight = run.net->net[0]->parameters().front();
    if (weight.norm().item<float>() != whole.tensor("net.0.weight").norm().item<float>())
      return "another norm";
    if (!weight.clone().equal(whole.tensor("net.0.weight"))) return "another clone";

    const std::string file = (folder / ("net" + std::to_string(rank) + ".pt")).string();
    torch::save(std::static_pointer_cast<torch::nn::Module>(run.net), file);
    auto read = std::make_shared<Net>(0.0);
    auto read_module = std::static_pointer_cast<torch::nn::Module>(read);
    torch::load(read_module, file);
    if (const std::string off = difference(*read, whole); !off.empty()) return "saved " + off;

    run.net->eval();
    read->eval();
    const at::Tensor x = torch::ones({3, 6});
    if (!run.net->net->forward(x).equal(read->net->forward(x))) return "another forward";
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(AfterFit, WhatIsPutIntoTheModuleIsWhatTheNextRunBeginsWith) {
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) -> std::string {
    const Fitted other = fitted("ddp", "shm", folder, 1);
    const State wanted = levin::full(*other.net);
    for (const bool by_levin : {true, false}) {
      Fitted run = fitted(GetParam(), "shm", folder);
      if (by_levin) {
        levin::load_module_state(*run.net, wanted);
      } else {
        for (const auto& [name, tensor] : levin::named_parameters(*run.net))
          at::Tensor(tensor).set_data(wanted.tensor(name).clone());
        for (const auto& buffer : run.net->named_buffers())
          buffer.value().copy_(wanted.tensor(buffer.key()));
      }
      run.trainer->validate(run.net, batches());
      if (const std::string off = difference(*run.net, wanted); !off.empty())
        return (by_levin ? "loaded: " : "replaced: ") + off;
    }
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

TEST_P(AfterFit, ItCanBeSavedChangedAndTrainedOn) {
  const auto words = run_world(2, [&](int64_t rank, const fs::path& folder) -> std::string {
    Fitted run = fitted(GetParam(), "shm", folder), ddp = fitted("ddp", "shm", folder);
    run.trainer->save_checkpoint((folder / "saved").string());
    const State whole = levin::full(*run.net);
    const State saved = levin::load_weights(folder / "saved");
    for (const auto& [name, tensor] : levin::named_parameters(*run.net))
      if (!saved.tensor(name).equal(whole.tensor(name))) return "saved another " + name;
    {
      const levin::WholeScope scope(*run.net, {.write_back = true});
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : run.net->parameters()) parameter.mul_(0.5);
    }
    for (const auto& [name, tensor] : levin::named_parameters(*run.net))
      if (!levin::full(tensor).equal(whole.tensor(name) * 0.5)) return "halved another " + name;
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : ddp.net->parameters()) parameter.mul_(0.5);
    }
    for (Fitted* each : {&run, &ddp}) each->trainer->fit(each->net, batches());
    const State more = levin::full(*run.net);
    for (const auto& [name, tensor] : levin::named_parameters(*ddp.net)) {
      if (name == "net.0.bias") continue;  // a batch norm follows: its gradient is rounding alone
      if (!at::allclose(more.tensor(name), tensor, 0, 1e-4)) return "trained another " + name;
    }
    return rank < 0 ? "" : difference(*run.net, more);
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(Strategies, AfterFit, ::testing::Values("fsdp", "zero"));

// A whole may be more than a rank can hold.
TEST(AfterFitOverGloo, WhereRanksGatherAReaderIsToldHowToGetTheWhole) {
  const auto words = run_world(2, [&](int64_t, const fs::path& folder) -> std::string {
    Fitted run = fitted("fsdp", "gloo", folder);
    const at::Tensor weight = run.net->net[0]->parameters().front();
    if (weight.size(0) != 8) return "sizes of rows";
    for (const auto& use : std::vector<std::function<void()>>{
             [&] { (void)weight.norm(); }, [&] { (void)weight.clone(); },
             [&] { (void)run.net->net->forward(torch::ones({3, 6})); },
             [&] { torch::save(weight, (folder / "weight.pt").string()); }}) {
      std::string error;
      try {
        use();
      } catch (const std::exception& caught) {
        error = caught.what();
      }
      if (error.find("net.0.") == std::string::npos ||
          error.find("levin::full") == std::string::npos)
        return "got '" + error + "'";
    }
    const State whole = levin::full(*run.net);
    run.trainer->validate(run.net, batches());
    const State after = levin::full(*run.net);
    for (const auto& [name, value] : whole.values())
      if (!whole.tensor(name).equal(after.tensor(name))) return "other " + name;
    return "";
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
}  // namespace after_fit
