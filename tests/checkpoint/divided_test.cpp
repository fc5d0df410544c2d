// Checkpoints of a module and its optimizer whose parameters are divided by rows over ranks.
#include "tests/support/divided.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/checkpoint/checkpoint.h"
#include "levin/module/parameters.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "tests/checkpoint/by_ranks.h"

namespace {

using levin::Checkpoint;
using levin::CheckpointReader;
using levin::NamedTensor;
using levin::OptimizerConfig;
using levin::State;
using levin::comm::DeviceMesh;
using levin::optim::build_optimizer;
using levin::test::connect;
using levin::test::divide;
using levin::test::get;
using levin::test::names_in;
using levin::test::own_of;
using levin::test::run_world;
using levin::test::Scratch;
using ::testing::Each;

torch::nn::Sequential make_net() {
  torch::manual_seed(2);
  return torch::nn::Sequential(torch::nn::Linear(4, 9), torch::nn::BatchNorm1d(9),
                               torch::nn::Linear(9, 5));
}

std::vector<OptimizerConfig> some_optimizers() {
  return {levin::optim::adam({.lr = 0.1, .amsgrad = true}),
          levin::optim::torch_optimizer<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.1))};
}

/// A module that was trained, and its optimizer.
struct Trained {
  torch::nn::Sequential net = make_net();
  std::vector<NamedTensor> parameters = levin::named_parameters(*net);
  std::unique_ptr<levin::optim::Optimizer> optimizer;

  explicit Trained(const OptimizerConfig& config) : optimizer(build_optimizer(config, parameters)) {
    for (int64_t step = 0; step < 3; ++step) {
      net->forward(torch::randn({6, 4})).square().sum().backward();
      optimizer->step();
      optimizer->zero_grad();
    }
  }
};

Checkpoint checkpoint_of(const torch::nn::Module& net, const levin::optim::Optimizer& optimizer) {
  State training;
  training.set("optimizer", optimizer.state_dict());
  return {{{"model", levin::module_state(net)}}, std::move(training)};
}

/// The slots of a parameter's state: of a torch class they stand apart.
const State& slots_of(const State& optimizer, const std::string& name) {
  const State& state = optimizer.child("parameters").child(name);
  return state.contains("slots") ? state.child("slots") : state;
}

/// "" where the rank's parts are those of the trained one.
std::string compare(const Trained& trained, const std::vector<NamedTensor>& parameters,
                    const levin::optim::Optimizer& optimizer) {
  const State own = optimizer.state_dict(), whole = trained.optimizer->state_dict();
  int64_t compared = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    if (!torch::equal(parameter, own_of(parameter, trained.parameters[i].tensor.detach()))) {
      return name;
    }
    for (const auto& [slot, value] : slots_of(whole, name).values()) {
      const auto* tensor = std::get_if<at::Tensor>(&value);
      if (tensor == nullptr) continue;
      const at::Tensor& part = slots_of(own, name).slice(slot).local;
      if (!torch::equal(part, own_of(parameter, *tensor))) return slot + " of " + name;
      ++compared;
    }
  }
  return compared >= std::ssize(parameters) ? "" : "nothing to compare";
}

/// On each rank a module with its rows of it and an optimizer over them, for the body.
template <class Body>
std::vector<std::string> on_rows(int64_t ranks, const OptimizerConfig& config, const Body& body) {
  return run_world(ranks, [&](int64_t, const auto&) -> std::string {
    const DeviceMesh mesh(connect(), {{"dp", ranks}});
    const torch::nn::Sequential net = make_net();
    for (const at::Tensor& parameter : net->parameters()) parameter.detach().zero_();
    const auto parameters = levin::named_parameters(*net);
    const auto rows = divide(parameters, mesh);
    const auto optimizer = build_optimizer(config, parameters);
    return body(mesh, net, parameters, *optimizer);
  });
}

TEST(DividedCheckpoint, IsThatOfTheWholeModelByteForByte) {
  for (const OptimizerConfig& config : some_optimizers()) {
    const Scratch scratch;
    const Trained trained(config);
    const Checkpoint whole = checkpoint_of(*trained.net, *trained.optimizer);
    levin::save_checkpoint(scratch / "whole", whole);
    for (const int64_t ranks : {2, 3}) {
      const auto folder = scratch / std::to_string(ranks);
      const auto said =
          on_rows(ranks, config,
                  [&](const DeviceMesh& mesh, auto net, const auto& parameters,
                      auto& optimizer) -> std::string {
                    levin::load_module_state(*net, whole.weights.at("model"));
                    optimizer.load_state_dict(whole.training.child("optimizer"));
                    levin::test::save_together(folder, checkpoint_of(*net, optimizer), mesh.flat());
                    return parameters.empty() ? "no parameters" : "";
                  });
      EXPECT_THAT(said, Each(""));
      EXPECT_EQ(names_in(scratch / "whole"), names_in(folder));
      for (const char* name :
           {"model.safetensors", "training_state.safetensors", "training_state.json"}) {
        EXPECT_EQ(get(scratch / "whole" / name), get(folder / name))
            << name << " of " << ranks << " ranks, " << config.name();
      }
    }
  }
}

// Ranks that hold the same rows write them together, each piece once.
TEST(DividedCheckpoint, OfReplicatedRowsIsThatOfTheWholeModelByteForByte) {
  const OptimizerConfig config = some_optimizers().front();
  const Scratch scratch;
  const Trained trained(config);
  const Checkpoint whole = checkpoint_of(*trained.net, *trained.optimizer);
  levin::save_checkpoint(scratch / "whole", whole);
  const auto said = run_world(6, [&](int64_t, const auto&) -> std::string {
    const DeviceMesh mesh(connect(), {{"replicate", 3}, {"fsdp", 2}});
    torch::nn::Sequential net = make_net();
    const auto parameters = levin::named_parameters(*net);
    const auto rows = divide(parameters, mesh);
    const auto optimizer = build_optimizer(config, parameters);
    levin::load_module_state(*net, whole.weights.at("model"));
    optimizer->load_state_dict(whole.training.child("optimizer"));
    levin::test::save_together(scratch / "divided", checkpoint_of(*net, *optimizer), mesh.flat());
    return "";
  });
  EXPECT_THAT(said, Each(""));
  for (const char* name :
       {"model.safetensors", "training_state.safetensors", "training_state.json"}) {
    EXPECT_EQ(get(scratch / "whole" / name), get(scratch / "divided" / name)) << name;
  }
}

TEST(DividedCheckpoint, IsReadByOtherNumbersOfRanksWholeOrTheirRowsAlone) {
  for (const OptimizerConfig& config : some_optimizers()) {
    const Scratch scratch;
    const Trained trained(config);
    const auto said = on_rows(
        3, config,
        [&](const DeviceMesh& mesh, auto net, const auto&, auto& optimizer) -> std::string {
          levin::load_module_state(*net, levin::module_state(*trained.net));
          optimizer.load_state_dict(trained.optimizer->state_dict());
          levin::test::save_together(scratch / "c", checkpoint_of(*net, optimizer), mesh.flat());
          return "";
        });
    EXPECT_THAT(said, Each(""));
    for (const int64_t ranks : {1, 2, 3}) {
      for (const bool by_rows : {false, true}) {
        const auto read = on_rows(
            ranks, config,
            [&](const DeviceMesh&, auto net, const auto& parameters,
                auto& optimizer) -> std::string {
              CheckpointReader reader(scratch / "c");
              const auto wanted =
                  [&](std::string_view path,
                      const std::vector<int64_t>& sizes) -> std::optional<levin::RowRange> {
                for (const auto& [name, parameter] : parameters) {
                  const bool is_of_it =
                      path == name || path.find("/" + name + "/") != std::string_view::npos;
                  if (by_rows && is_of_it && sizes == levin::shard::whole_sizes(parameter)) {
                    return levin::rows_of(parameter);
                  }
                }
                return std::nullopt;
              };
              levin::load_module_state(*net, reader.weights("model", wanted));
              optimizer.load_state_dict(reader.training(wanted).child("optimizer"));
              return compare(trained, parameters, optimizer);
            });
        EXPECT_THAT(read, Each("")) << ranks << " ranks, " << config.name();
      }
    }
  }
}

}  // namespace
