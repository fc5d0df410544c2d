// Optimizers and clipping over parameters that are divided by rows over two and three ranks, some of
// which have none of some.
#include "tests/support/divided.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "levin/optim/grad_scaler.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "levin/optim/torch_adapter.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::NamedTensor;
using levin::OptimizerConfig;
using levin::State;
using levin::TensorSlice;
using levin::comm::DeviceMesh;
using levin::comm::MeshShape;
using levin::optim::build_optimizer;
using levin::optim::Optimizer;
using levin::optim::torch_optimizer;
using levin::test::connect;
using levin::test::divide;
using levin::test::error_of;
using levin::test::own_of;
using levin::test::run_world;
using ::testing::Each;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<NamedTensor> whole_parameters(at::ScalarType type = at::kFloat) {
  torch::manual_seed(3);
  return {{"a", torch::randn({5, 4}).to(type).requires_grad_()},
          {"b", torch::randn({7}).to(type).requires_grad_()},
          {"c", torch::randn({2, 3, 2}).to(type).requires_grad_()}};
}

/// Of the whole parameter number i at a step.
at::Tensor gradient_of_whole(const NamedTensor& whole, size_t i, int64_t step) {
  torch::manual_seed(static_cast<int64_t>(i) * 100 + step);
  return torch::randn(whole.tensor.sizes()).to(whole.tensor.scalar_type());
}

void give_parts(const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& wholes,
                int64_t step) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i].tensor;
    parameter.mutable_grad() = own_of(parameter, gradient_of_whole(wholes[i], i, step)).clone();
  }
}

std::vector<OptimizerConfig> elementwise_configs() {
  using namespace torch::optim;  // NOLINT: the names of its options
  return {levin::optim::sgd({.lr = 0.1}),
          levin::optim::sgd({.lr = 0.1, .momentum = 0.9, .nesterov = true}),
          levin::optim::adam({.lr = 0.1, .amsgrad = true}),
          levin::optim::adamw({.lr = 0.1, .weight_decay = 0.1}),
          levin::optim::nadam({.lr = 0.1, .weight_decay = 0.1}),
          levin::optim::radam({.lr = 0.1, .weight_decay = 0.1}),
          levin::optim::lion({.lr = 0.1, .weight_decay = 0.1}),
          levin::optim::rmsprop({.lr = 0.1}),
          levin::optim::adagrad({.lr = 0.1}),
          torch_optimizer<SGD>(SGDOptions(0.1).momentum(0.9)),
          torch_optimizer<Adam>(AdamOptions(0.1).amsgrad(true)),
          torch_optimizer<Adagrad>(AdagradOptions(0.1)),
          torch_optimizer<RMSprop>(RMSpropOptions(0.1).momentum(0.5).centered(true))};
}

/// Where a rank's state is not the part of the whole's that it should be.
std::string other_state(const State& own, const State& whole, const at::Tensor& parameter) {
  if (own.values().size() != whole.values().size()) return "other names";
  for (const auto& [name, value] : whole.values()) {
    if (std::holds_alternative<State>(value)) {
      const std::string inner = other_state(own.child(name), whole.child(name), parameter);
      if (!inner.empty()) return name + "/" + inner;
    } else if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      if (name == "options") continue;  // bytes
      const TensorSlice& slice = own.slice(name);
      if (slice.sizes != tensor->sizes()) return "sizes of " + name;
      if (!torch::allclose(slice.local, own_of(parameter, *tensor), 1e-6, 1e-7)) {
        return "values of " + name;
      }
    } else if (own.values().at(name).index() != value.index()) {
      return "kind of " + name;
    }
  }
  return "";
}

std::string on_ranks(const OptimizerConfig& config, at::ScalarType type, const DeviceMesh& mesh) {
  const auto wholes = whole_parameters(type), parameters = whole_parameters(type);
  const auto rows = divide(parameters, mesh);
  const auto of_wholes = build_optimizer(config, wholes);
  auto optimizer = build_optimizer(config, parameters);
  for (int64_t step = 0; step < 4; ++step) {
    give_parts(wholes, wholes, step);
    give_parts(parameters, wholes, step);
    of_wholes->step();
    optimizer->step();
    if (step == 2) {  // goes on from its own state, then from that of one process
      const State own = optimizer->state_dict();
      optimizer = build_optimizer(config, parameters);
      optimizer->load_state_dict(own);
    } else if (step == 1) {
      optimizer = build_optimizer(config, parameters);
      optimizer->load_state_dict(of_wholes->state_dict());
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, parameter] = parameters[i];
    const at::Tensor wanted = own_of(parameter, wholes[i].tensor.detach());
    if (!torch::allclose(parameter, wanted, 1e-5, 1e-6)) return config.name() + ": " + name;
    const std::string differs =
        other_state(optimizer->state_dict().child("parameters").child(name),
                    of_wholes->state_dict().child("parameters").child(name), parameter);
    if (!differs.empty()) return config.name() + ": " + differs + " of " + name;
  }
  return "";
}

TEST(Divided, OptimizersStepAsWithWholeParametersAndTakeUpTheirStates) {
  for (const int64_t ranks : {2, 3}) {
    EXPECT_THAT(run_world(ranks,
                          [&](int64_t, const auto&) -> std::string {
                            const DeviceMesh mesh(connect(), {{"dp", ranks}});
                            for (const OptimizerConfig& config : elementwise_configs()) {
                              const std::string wrong = on_ranks(config, at::kFloat, mesh);
                              if (!wrong.empty()) return wrong;
                            }
                            return "";
                          }),
                Each(""));
  }
}

TEST(Divided, MasterWeightsAreDividedAsTheirParameters) {
  EXPECT_THAT(run_world(3,
                        [&](int64_t, const auto&) -> std::string {
                          const DeviceMesh mesh(connect(), {{"dp", 3}});
                          for (OptimizerConfig config : elementwise_configs()) {
                            config.master_weights();
                            const std::string wrong = on_ranks(config, at::kBFloat16, mesh);
                            if (!wrong.empty()) return wrong;
                          }
                          return "";
                        }),
              Each(""));
}

TEST(Divided, StateOfAnotherWholeIsRefused) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) -> std::string {
                          const DeviceMesh mesh(connect(), {{"dp", 2}});
                          auto with_tensors = elementwise_configs();
                          with_tensors.erase(with_tensors.begin());  // SGD without momentum
                          for (const OptimizerConfig& config : with_tensors) {
                            const auto parameters = whole_parameters();
                            const auto rows = divide(parameters, mesh);
                            const auto optimizer = build_optimizer(config, parameters);
                            auto others = whole_parameters();
                            others[1].tensor = torch::randn({9}).requires_grad_();
                            const auto of_others = build_optimizer(config, others);
                            give_parts(others, others, 0);
                            of_others->step();
                            const std::string told = levin::test::told_by(
                                [&] { optimizer->load_state_dict(of_others->state_dict()); });
                            if (!told.starts_with("optim.state.shape: ") ||
                                !told.ends_with(" of b has a wrong shape: got [9], wanted [7]")) {
                              return config.name() + ": " + told;
                            }
                          }
                          return "";
                        }),
              Each(""));
}

// Elementwise it is not.
TEST(Divided, LbfgsIsRefused) {
  EXPECT_THAT(
      run_world(2,
                [](int64_t, const auto&) -> std::string {
                  const DeviceMesh mesh(connect(), {{"dp", 2}});
                  const auto parameters = whole_parameters();
                  const auto rows = divide(parameters, mesh);
                  return error_of([&] {
                    build_optimizer(
                        torch_optimizer<torch::optim::LBFGS>(torch::optim::LBFGSOptions(0.1)),
                        parameters);
                  });
                }),
      Each(::testing::StartsWith("optim.torch.divided: torch::optim::LBFGS computes with all "
                                 "parameters as one vector, but a is sharded over ranks")));
}

TEST(Divided, StateFromBeforeTheParametersWereDividedIsRefused) {
  EXPECT_THAT(
      run_world(2,
                [](int64_t, const auto&) -> std::string {
                  const DeviceMesh mesh(connect(), {{"dp", 2}});
                  const auto parameters = whole_parameters();
                  const auto tensors = [&] {
                    return std::vector<at::Tensor>{parameters[0].tensor, parameters[1].tensor};
                  };
                  const auto early = std::make_shared<torch::optim::Adagrad>(tensors());
                  const auto no_state = std::make_shared<torch::optim::SGD>(tensors(), 0.1);
                  const auto rows = divide(parameters, mesh);
                  levin::optim::adapt_torch_optimizer(no_state, parameters);
                  levin::optim::adapt_torch_optimizer(
                      std::make_shared<torch::optim::Adagrad>(tensors()), parameters);
                  return error_of([&] { levin::optim::adapt_torch_optimizer(early, parameters); });
                }),
      // The second parameter is halved, the first is the first rank's.
      Each(
          ::testing::StartsWith("optim.torch.divided: torch::optim::Adagrad created its sum of ")));
}

/// Keeps a list for each parameter, as no class of torch::optim but LBFGS does.
struct ListState : torch::optim::OptimizerCloneableParamState<ListState> {
  std::vector<int64_t> turns = {1, 2};
  void serialize(torch::serialize::InputArchive& archive) override {
    c10::IValue value;
    archive.read("turns", value);
    turns = value.toIntVector();
  }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    archive.write("turns", c10::IValue(turns));
  }
};
class ListOptimizer : public torch::optim::Optimizer {
 public:
  explicit ListOptimizer(std::vector<at::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.1)) {
    for (const at::Tensor& parameter : param_groups_[0].params()) {
      state_[parameter.unsafeGetTensorImpl()] = std::make_unique<ListState>();
    }
  }
  torch::Tensor step(LossClosure) override { return {}; }
  void save(torch::serialize::OutputArchive& archive) const override {
    torch::optim::serialize<ListState, torch::optim::SGDOptions>(archive, *this);
  }
  void load(torch::serialize::InputArchive& archive) override {
    torch::optim::serialize<ListState, torch::optim::SGDOptions>(archive, *this);
  }
};

TEST(Divided, AClassThatKeepsLists) {
  const auto parameters = whole_parameters();
  const auto adapted = [](const std::vector<NamedTensor>& all) {
    return levin::optim::adapt_torch_optimizer(
        std::make_shared<ListOptimizer>(std::vector{all[0].tensor, all[1].tensor}), all);
  };
  // Of whole parameters by its own archive.
  const State saved = adapted(parameters)->state_dict();
  EXPECT_TRUE(saved.child("parameters").child("a").contains("archive"));
  EXPECT_NO_THROW(adapted(whole_parameters())->load_state_dict(saved));
  const auto said = run_world(2, [&](int64_t, const auto&) -> std::string {
    const DeviceMesh mesh(connect(), {{"dp", 2}});
    const auto own = whole_parameters();
    const auto rows = divide(own, mesh);
    const auto optimizer = adapted(own);
    const std::string loading = error_of([&] { optimizer->load_state_dict(saved); });
    if (!loading.starts_with("optim.torch.divided: the state holds ")) return loading;
    return error_of([&] { optimizer->state_dict(); });
  });
  EXPECT_THAT(
      said,
      Each(::testing::HasSubstr(
          "for a, which is sharded over ranks, holds other things than tensors and numbers")));
}

/// What clipping gives on each rank against that of the wholes; all ranks the same bits.
std::string clipped_on(const MeshShape& shape, double norm_type, bool with_whole) {
  DeviceMesh mesh(connect(), shape);
  const auto wholes = whole_parameters();
  auto parameters = whole_parameters();
  const auto rows =
      divide(with_whole ? std::vector(parameters.begin(), parameters.end() - 1) : parameters, mesh);
  give_parts(wholes, wholes, 1);
  give_parts(parameters, wholes, 1);
  const at::Tensor wanted = levin::optim::clip_grad_norm(wholes, 0.5, norm_type);
  const at::Tensor got = levin::optim::clip_grad_norm(parameters, 0.5, norm_type);
  if (got.scalar_type() != wanted.scalar_type()) return "another type";
  if (!torch::allclose(got, wanted, 1e-6, 0)) {
    return fmt::format("norm {} of {}, wanted {}", norm_type, got.item<double>(),
                       wanted.item<double>());
  }
  const at::Tensor all = torch::empty({mesh.size()});
  mesh.flat().all_gather(all, got.view({1}));
  if (!torch::equal(all, got.expand({mesh.size()}))) return "other bits on another rank";
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i].tensor;
    if (!torch::allclose(parameter.grad(), own_of(parameter, wholes[i].tensor.grad()), 1e-5,
                         1e-8)) {
      return "gradient of " + parameters[i].name;
    }
  }
  return "";
}

TEST(Divided, GradientsAreClippedByTheNormOfAllRows) {
  for (const MeshShape& shape :
       {MeshShape{{"dp", 2}}, MeshShape{{"dp", 3}}, MeshShape{{"replicate", 2}, {"shard", 2}}}) {
    const auto said = run_world(shape.size(), [&](int64_t, const auto&) -> std::string {
      for (const double norm_type : {1.0, 2.0, 3.0, kInfinity}) {
        for (const bool with_whole : {false, true}) {
          const std::string wrong = clipped_on(shape, norm_type, with_whole);
          if (!wrong.empty()) return wrong;
        }
      }
      return "";
    });
    EXPECT_THAT(said, Each("")) << to_text(shape);
  }
}

// A rank whose own rows are all finite sees that of another.
TEST(Divided, GradientsOfWhichARowIsNoNumberAreNone) {
  for (const double norm_type : {2.0, kInfinity}) {
    const auto said = run_world(2, [&](int64_t rank, const auto&) -> std::string {
      const DeviceMesh mesh(connect(), {{"dp", 2}});
      const auto wholes = whole_parameters(), parameters = whole_parameters();
      const auto rows = divide(parameters, mesh);
      give_parts(parameters, wholes, 0);
      if (rank == 1) parameters[1].tensor.mutable_grad().fill_(NAN);
      const at::Tensor norm = levin::optim::clip_grad_norm(parameters, 1.0, norm_type);
      if (!std::isnan(norm.item<double>())) return "the norm is " + c10::str(norm);
      const bool none = parameters[1].tensor.grad().isnan().all().item<bool>();
      return none ? "" : "some gradients are numbers";
    });
    EXPECT_THAT(said, Each("")) << norm_type;
  }
}

// All ranks ask each other, whether or not they have a gradient.
TEST(Divided, GradientsThatSomeRanksLackAreClipped) {
  const auto said = run_world(2, [](int64_t rank, const auto&) -> std::string {
    const DeviceMesh mesh(connect(), {{"dp", 2}});
    const auto parameters = whole_parameters();
    const auto rows = divide(parameters, mesh);
    if (rank == 0) parameters[0].tensor.mutable_grad() = torch::ones_like(parameters[0].tensor);
    const double norm = levin::optim::clip_grad_norm(parameters, 1.0).item<double>();
    return std::abs(norm - std::sqrt(20.0)) < 1e-6 ? "" : c10::str(norm);
  });
  EXPECT_THAT(said, Each(""));
}

TEST(Divided, GradientsAreUnscaledThoughThereMayBeNone) {
  const auto said = run_world(2, [](int64_t, const auto&) -> std::string {
    const DeviceMesh mesh(connect(), {{"dp", 2}});
    const auto wholes = whole_parameters(), parameters = whole_parameters();
    const auto rows = divide(parameters, mesh);
    const auto optimizer = build_optimizer(levin::optim::sgd({.lr = 1.0}), parameters);
    levin::optim::GradScaler scaler({.init_scale = 4.0},
                                    [&](bool flag) { return mesh.flat().any(flag); });
    give_parts(parameters, wholes, 0);
    scaler.unscale(*optimizer);
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor& parameter = parameters[i].tensor;
      if (!torch::equal(parameter.grad() * 4,
                        own_of(parameter, gradient_of_whole(wholes[i], i, 0)))) {
        return parameters[i].name;
      }
    }
    return scaler.step(*optimizer) ? "" : "no step";
  });
  EXPECT_THAT(said, Each(""));
}

}  // namespace
