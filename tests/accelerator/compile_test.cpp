// A loop of one's own whose step is compiled: equal to the same loop in eager, bit for bit.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/same_weights.h"
#include "tests/support/scratch.h"

namespace {

using levin::Batch;
using small_nets::dataset;
using small_nets::loss_of;
using small_nets::with_dropout;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

levin::AcceleratorOptions of_compile(const std::string& compile, int64_t accumulate = 1) {
  levin::AcceleratorOptions options;
  options.cpu = true;
  options.gradient_accumulation_steps = accumulate;
  options.engine.compile = compile;
  return options;
}

levin::OptimizerConfig scheduled() {
  return levin::optim::adam({.lr = 1e-2})
      .schedule(levin::optim::cosine({.warmup_steps = 5, .total_steps = 90}));
}

torch::nn::Sequential seeded_net() {
  torch::manual_seed(7);
  return with_dropout();
}

/// 10 epochs of 8 batches; the order of zero_grad is what loops differ in.
struct OwnLoop {
  torch::nn::Sequential net = seeded_net();
  std::vector<double> losses;
  levin::graph::CompiledReport report;

  OwnLoop(const std::string& compile, bool zeroes_last, int64_t accumulate = 1) {
    levin::Accelerator accelerator(of_compile(compile, accumulate));
    levin::DataLoader data(dataset(62), {.batch_size = 8, .shuffle = true});
    auto [model, optimizer, loader] = accelerator.prepare(net, scheduled(), data);
    auto step = accelerator.compile([&](const Batch& batch) {
      if (!zeroes_last) optimizer.zero_grad();
      const at::Tensor loss = loss_of(model, batch);
      accelerator.backward(loss);
      if (accelerator.sync_gradients()) accelerator.clip_grad_norm(0.5);
      optimizer.step();
      if (zeroes_last) optimizer.zero_grad();
      return loss;
    });
    torch::manual_seed(9);
    for (int64_t epoch = 0; epoch < 10; ++epoch) {
      for (const auto& batch : loader) {
        const auto scope = accelerator.accumulate();
        losses.push_back(step(batch).template item<double>());
      }
    }
    report = step.report();
  }
};

struct OwnLoopForm {
  std::string name;
  bool zeroes_last = false;
  int64_t accumulate = 1;
  int64_t replays = 60;
};
std::ostream& operator<<(std::ostream& out, const OwnLoopForm& form) { return out << form.name; }

class AcceleratorCompile : public testing::TestWithParam<OwnLoopForm> {};

TEST_P(AcceleratorCompile, EqualsEager) {
  const auto& [name, zeroes_last, accumulate, replays] = GetParam();
  const OwnLoop eager("no", zeroes_last, accumulate);
  const OwnLoop replayed("replay", zeroes_last, accumulate);
  EXPECT_EQ(replayed.losses, eager.losses);
  levin::test::expect_same_weights(*replayed.net, *eager.net);
  EXPECT_THAT(replayed.report.refusals, IsEmpty());
  EXPECT_GE(replayed.report.replayed, replays);
  EXPECT_EQ(eager.report.recorded, 0);
}

INSTANTIATE_TEST_SUITE_P(Compile, AcceleratorCompile,
                         testing::Values(OwnLoopForm{"ZeroesFirst"},
                                         OwnLoopForm{"ZeroesLast", true},
                                         OwnLoopForm{"Accumulated", false, 2, 50},
                                         OwnLoopForm{"AccumulatedZeroesLast", true, 3, 40}),
                         [](const auto& info) { return info.param.name; });

TEST(AcceleratorCompile, TakesTensorsAndNumbersAndGivesTuples) {
  levin::Accelerator accelerator(of_compile("replay"));
  auto [model] = accelerator.prepare(small_nets::sequential());
  auto forward = accelerator.compile([&](const at::Tensor& x, double factor) {
    const at::Tensor y = model.forward(x) * factor;
    return std::tuple(y, y.sum());
  });
  for (int64_t i = 0; i < 20; ++i) {
    const at::Tensor x = torch::randn({4, 6});
    const double factor = i % 2 == 0 ? 1.0 : 3.0;
    const auto [y, sum] = forward(x, factor);
    const at::Tensor wanted = model.forward(x) * factor;
    EXPECT_TRUE(torch::equal(y, wanted));
    EXPECT_TRUE(torch::equal(sum, wanted.sum()));
  }
  EXPECT_EQ(forward.report().replays.size(), 2U);
}

TEST(AcceleratorCompile, EvaluationModeIsAnotherRecording) {
  levin::Accelerator accelerator(of_compile("replay"));
  auto [model] = accelerator.prepare(seeded_net());
  auto forward = accelerator.compile([&](const at::Tensor& x) { return model.forward(x); });
  const at::Tensor x = torch::randn({4, 6});
  for (int64_t i = 0; i < 4; ++i) forward(x);
  model.eval();
  at::Tensor first;
  for (int64_t i = 0; i < 4; ++i) {
    const at::Tensor y = forward(x);
    if (!first.defined()) first = y.detach().clone();
    EXPECT_TRUE(torch::equal(y, first));  // no dropout, no batch statistics
  }
  EXPECT_EQ(forward.report().replays.size(), 2U);
}

TEST(AcceleratorCompile, GroupsOfBatchesBelongAroundTheCall) {
  levin::Accelerator accelerator(of_compile("replay", 2));
  auto [model, optimizer] = accelerator.prepare(small_nets::sequential(), scheduled());
  auto step = accelerator.compile([&](const Batch& batch) {
    const auto scope = accelerator.accumulate();
    const at::Tensor loss = loss_of(model, batch);
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    return loss;
  });
  const Batch batch = small_nets::whole(dataset(16));
  for (int64_t i = 0; i < 8; ++i) step(batch);
  ASSERT_FALSE(step.report().refusals.empty());
  EXPECT_THAT(step.report().refusals.front(), HasSubstr("accumulate()"));
}

TEST(AcceleratorCompile, ALoadedStateIsRecordedAnew) {
  levin::Accelerator accelerator(of_compile("replay"));
  auto [model, optimizer] = accelerator.prepare(small_nets::sequential(), scheduled());
  auto step = accelerator.compile([&](const Batch& batch) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_of(model, batch);
    accelerator.backward(loss);
    optimizer.step();
    return loss;
  });
  const Batch batch = small_nets::whole(dataset(16));
  std::vector<double> losses;
  for (int64_t i = 0; i < 6; ++i) step(batch);
  const levin::Checkpoint saved = accelerator.state_dict();
  const auto copies = [](const levin::State& state) {
    levin::State copy;
    for (const auto& [name, value] : state.values()) copy.set(name, state.tensor(name).clone());
    return copy;
  };
  const levin::State weights = copies(accelerator.get_state_dict(model));
  for (int64_t i = 0; i < 6; ++i) losses.push_back(step(batch).item<double>());
  levin::load_module_state(*model, weights);
  const int64_t recorded = step.report().recorded;
  const double first = step(batch).item<double>();
  EXPECT_EQ(first, losses.front());  // weights are loaded into the memory that is replayed
  EXPECT_EQ(step.report().recorded, recorded);
  accelerator.load_state_dict(saved);
  step(batch);
  EXPECT_EQ(step.report().recorded, recorded + 1);  // the optimizer's tensors are others
}

at::Tensor numbers_of(int64_t step) {
  return torch::randn({8, 6},
                      at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(step)));
}

/// Losses and weights of 30 steps, eager and replayed; without checks, which would find a difference and end replays.
struct TwoRuns {
  /// Trains, by way of a compiled function, and notes what it sees.
  using Train = std::function<void(levin::Accelerator&, TwoRuns&)>;
  std::vector<double> seen;
  std::vector<at::Tensor> weights;
  int64_t replayed = 0;

  /// 30 steps of a compiled function. within: its last line; before: comes before each call of it.
  template <class Model>
  void train(
      levin::Accelerator& accelerator, const torch::nn::Module& module, Model& model,
      levin::PreparedOptimizer& optimizer, const std::function<void()>& within = [] {},
      const std::function<void(int64_t)>& before = [](int64_t) {}) {
    auto step = accelerator.compile([&](const at::Tensor& x) {
      optimizer.zero_grad();
      const at::Tensor loss = model.forward(x).square().mean();
      accelerator.backward(loss);
      optimizer.step();
      within();
      return loss;
    });
    for (int64_t i = 0; i < 30; ++i) {
      before(i);
      seen.push_back(step(numbers_of(i)).template item<double>());
      seen.push_back(optimizer.learning_rate());
    }
    for (const at::Tensor& parameter : module.parameters())
      weights.push_back(parameter.detach().clone());
    replayed = step.report().replayed;
  }
  static void expect_equal(levin::AcceleratorOptions options, const Train& train, int64_t replays) {
    TwoRuns eager, replayed;
    for (TwoRuns* run : {&eager, &replayed}) {
      options.engine.compile = run == &eager ? "no" : "replay";
      options.engine.compile_check = "no";
      levin::Accelerator accelerator(options);
      train(accelerator, *run);
    }
    EXPECT_EQ(replayed.seen, eager.seen);
    ASSERT_EQ(replayed.weights.size(), eager.weights.size());
    for (size_t i = 0; i < eager.weights.size(); ++i) {
      EXPECT_TRUE(torch::equal(replayed.weights[i], eager.weights[i])) << i;
    }
    EXPECT_GE(replayed.replayed, replays);
  }
};

TEST(AcceleratorCompile, ASchedulesStepByHandIsReplayed) {
  levin::AcceleratorOptions options = of_compile("replay");
  options.step_scheduler_with_optimizer = false;
  TwoRuns::expect_equal(
      options,
      [](levin::Accelerator& accelerator, TwoRuns& run) {
        auto net = small_nets::sequential();
        auto [model, optimizer] = accelerator.prepare(net, scheduled());
        run.train(accelerator, *net, model, optimizer,
                  [&optimizer = optimizer] { optimizer.step_schedule(); });
      },
      20);
}

TEST(AcceleratorCompile, ASchedulesStepByHandBeforeTheOptimizersIsNotReplayed) {
  levin::AcceleratorOptions options = of_compile("replay");
  options.step_scheduler_with_optimizer = false;
  levin::Accelerator accelerator(options);
  auto [model, optimizer] = accelerator.prepare(small_nets::sequential(), scheduled());
  auto step = accelerator.compile([&, &model = model, &optimizer = optimizer](const at::Tensor& x) {
    optimizer.zero_grad();
    const at::Tensor loss = model.forward(x).square().mean();
    accelerator.backward(loss);
    optimizer.step_schedule();
    optimizer.step();
    return loss;
  });
  for (int64_t i = 0; i < 8; ++i) step(numbers_of(i));
  EXPECT_EQ(step.report().replayed, 0);
  ASSERT_FALSE(step.report().refusals.empty());
  EXPECT_THAT(step.report().refusals.front(), HasSubstr("step_schedule()"));
}

TEST(AcceleratorCompile, AValueForAPlateauInsideOfAStepIsNotReplayed) {
  levin::Accelerator accelerator(of_compile("replay"));
  auto [model, optimizer] = accelerator.prepare(
      small_nets::sequential(),
      levin::OptimizerConfig(levin::optim::sgd({.lr = 0.1}))
          .schedule(levin::optim::reduce_on_plateau({.monitor = "loss", .patience = 0})));
  auto step = accelerator.compile([&, &model = model, &optimizer = optimizer](const at::Tensor& x) {
    optimizer.zero_grad();
    const at::Tensor loss = model.forward(x).square().mean();
    accelerator.backward(loss);
    optimizer.step();
    optimizer.step_schedule(1.0);
    return loss;
  });
  for (int64_t i = 0; i < 8; ++i) step(numbers_of(i));
  EXPECT_EQ(step.report().replayed, 0);
  ASSERT_FALSE(step.report().refusals.empty());
  EXPECT_THAT(step.report().refusals.front(), HasSubstr("step_schedule(value)"));
}

TEST(AcceleratorCompile, TwoStepsOfAnOptimizerWithAScheduleAreNotReplayed) {
  levin::Accelerator accelerator(of_compile("replay"));
  auto [model, optimizer] = accelerator.prepare(small_nets::sequential(), scheduled());
  auto step = accelerator.compile([&, &model = model, &optimizer = optimizer](const at::Tensor& x) {
    at::Tensor loss;
    for (int64_t i = 0; i < 2; ++i) {
      optimizer.zero_grad();
      loss = model.forward(x).square().mean();
      accelerator.backward(loss);
      optimizer.step();
    }
    return loss;
  });
  for (int64_t i = 0; i < 8; ++i) step(numbers_of(i));
  EXPECT_EQ(step.report().replayed, 0);
  ASSERT_FALSE(step.report().refusals.empty());
  EXPECT_THAT(step.report().refusals.front(), HasSubstr("take one step of it in each call"));
}

TEST(AcceleratorCompile, HandlesOfAnEarlierPrepareAreReplayedToo) {
  TwoRuns::expect_equal(
      of_compile("replay"),
      [](levin::Accelerator& accelerator, TwoRuns& run) {
        auto net = small_nets::sequential();
        auto [model, optimizer] = accelerator.prepare(net, scheduled());
        accelerator.free_memory();
        auto [newer, others] = accelerator.prepare(small_nets::sequential(), scheduled());
        accelerator.backward(
            newer.forward(numbers_of(0)).mean());  // those in use are there to be found
        run.train(accelerator, *net, model, optimizer);
      },
      20);
}

/// What a step does with weights in float32 where somebody else writes to those in bfloat16: before the steps up to that
/// one, and in each step after the update.
void expect_master_weights_follow(int64_t written_up_to, bool is_written_in_steps) {
  levin::AcceleratorOptions options = of_compile("replay");
  options.mixed_precision = "bf16-true";
  options.engine.master_weights = true;
  TwoRuns::expect_equal(
      options,
      [&](levin::Accelerator& accelerator, TwoRuns& run) {
        auto net = small_nets::sequential();
        auto [model, optimizer] = accelerator.prepare(net, levin::optim::adam({.lr = 1e-3}));
        const auto shrink = [&net] {
          const at::NoGradGuard no_grad;
          for (const at::Tensor& parameter : net->parameters()) parameter.mul_(0.99);
        };
        run.train(
            accelerator, *net, model, optimizer,
            [&] {
              if (is_written_in_steps) shrink();
            },
            [&](int64_t step) {
              if (step > 0 && step <= written_up_to) shrink();
            });
      },
      20);
}

TEST(AcceleratorCompile, MasterWeightsFollowWhatIsWrittenBeforeARecording) {
  for (const int64_t written_up_to : {2, 3, 30}) expect_master_weights_follow(written_up_to, false);
}

TEST(AcceleratorCompile, MasterWeightsFollowWhatAStepWritesAfterItsUpdate) {
  for (const int64_t written_up_to : {0, 3}) expect_master_weights_follow(written_up_to, true);
}

struct GraphOfLoop {
  std::string name;
  int64_t accumulate = 1;
  int64_t workers = 0;
  bool has_two = false;     ///< optimizers
  bool is_prepared = true;  ///< the loader
  size_t num_inputs = 2;    ///< and gradients that there are already
  size_t num_updates = 1;
};
std::ostream& operator<<(std::ostream& out, const GraphOfLoop& loop) { return out << loop.name; }

/// Trains 3 epochs; a step prints its loss, as loops do.
void train_own_loop(const GraphOfLoop& form) {
  levin::Accelerator accelerator(of_compile("no", form.accumulate));
  auto net = seeded_net();
  auto other = small_nets::sequential();
  auto [model, other_model] = accelerator.prepare(net, other);
  std::vector<levin::OptimizerConfig> configs = {levin::optim::adam({.lr = 1e-2}).of(net)};
  if (form.has_two) configs.push_back(levin::optim::adam({.lr = 1e-2}).of(other));
  auto [optimizers] = accelerator.prepare(configs);
  levin::DataLoader data(dataset(48), {.batch_size = 8, .num_workers = form.workers});
  const auto train = [&, &model = model, &other_model = other_model,
                      &optimizers = optimizers](const Batch& batch) {
    std::optional<levin::AccumulateScope> scope;
    if (form.accumulate > 1) scope.emplace(accelerator.accumulate());
    for (size_t i = 0; i < optimizers.size(); ++i) {
      optimizers[i].zero_grad();
      const at::Tensor loss = i == 0 ? loss_of(model, batch) : loss_of(other_model, batch);
      accelerator.backward(loss);
      optimizers[i].step();
      std::fprintf(stderr, "loss %f\n", loss.item<double>());
    }
  };
  for (int epoch = 0; epoch < 3; ++epoch) {
    if (form.is_prepared) {
      auto [loader] = accelerator.prepare(data);
      for (const auto& batch : loader) train(batch);
    } else {
      for (const auto& batch : data) train(batch);
    }
  }
}

class AcceleratorGraph : public testing::TestWithParam<GraphOfLoop> {};

TEST_P(AcceleratorGraph, OfAnOwnLoopIsWrittenInPlaceOfTraining) {
  const levin::test::Scratch scratch;
  const std::filesystem::path file = scratch / "step.safetensors";
  const auto child = [&] {
    at::set_num_threads(1);  // a fork has none of the threads that were there before it
    ::setenv("LEVIN_GRAPH_TO", file.c_str(), 1);
    train_own_loop(GetParam());
    std::_Exit(9);  // it trained
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(0), "the graph of the training step is in");
  const auto step = levin::graph::GraphModule::load(file);
  const levin::graph::Graph& graph = step.graph();
  EXPECT_EQ(graph.find_nodes("aten::_fused_adam_.tensor_lr").size() +
                graph.find_nodes("aten::_fused_adam_").size(),
            GetParam().num_updates);
  EXPECT_EQ(graph.find_nodes("aten::addmm").size(), 2 * GetParam().num_updates);
  EXPECT_EQ(graph.find_nodes(levin::graph::Opcode::kPlaceholder).size(), GetParam().num_inputs);
  EXPECT_TRUE(graph.find_nodes("aten::index_select").empty());  // the data's own
  std::vector<std::string> names;
  for (const auto& state : step.state()) names.push_back(state.name);
  EXPECT_THAT(names, testing::Contains("0.0.weight"));
  EXPECT_THAT(names, testing::Contains("exp_avg of 0.weight"));
}

INSTANTIATE_TEST_SUITE_P(
    Loops, AcceleratorGraph,
    testing::Values(
        GraphOfLoop{"Plain"}, GraphOfLoop{.name = "Workers", .workers = 2},
        GraphOfLoop{.name = "LoaderOfItsOwn", .is_prepared = false, .num_inputs = 0},
        GraphOfLoop{.name = "TwoOptimizers", .has_two = true, .num_inputs = 4, .num_updates = 2},
        GraphOfLoop{.name = "Groups", .accumulate = 3, .num_inputs = 2 + 6},
        GraphOfLoop{.name = "GroupsOfTwoOptimizers",
                    .accumulate = 3,
                    .has_two = true,
                    .num_inputs = 2 + 10,
                    .num_updates = 2}),
    [](const auto& info) { return info.param.name; });

/// A loop whose step nobody could record says so, when its graph is wanted.
TEST(AcceleratorCompile, ALoopWithoutAStepHasNoGraphToWrite) {
  const auto child = [] {
    at::set_num_threads(1);  // a fork has none of the threads that were there before it
    ::setenv("LEVIN_GRAPH_TO", "never_written.safetensors", 1);
    levin::Accelerator accelerator(of_compile("no"));
    auto [model, optimizer] = accelerator.prepare(small_nets::sequential(), scheduled());
    const Batch batch = small_nets::whole(dataset(4));
    const std::string error = levin::test::error_of([&] {
      for (int64_t i = 0; i < 2000; ++i) accelerator.backward(loss_of(model, batch));
    });
    std::fprintf(stderr, "%s\n", error.c_str());
    std::_Exit(3);
  };
  EXPECT_EXIT(child(), testing::ExitedWithCode(3),
              "accelerator.graph_to: no step was recorded in 1000 batches of training");
}

TEST(AcceleratorCompile, NamesAChoiceOfChecksThatThereIsNot) {
  const auto error_of_check = [](const std::string& when, const std::string& policy) {
    levin::AcceleratorOptions options = of_compile("replay");
    options.engine.compile_check = when;
    options.engine.compile_check_policy = policy;
    return levin::test::error_id([&] { const levin::Accelerator accelerator(options); });
  };
  EXPECT_EQ(error_of_check("sometimes", "warn"), "accelerator.compile_check");
  EXPECT_EQ(error_of_check("0", "warn"), "accelerator.compile_check");
  EXPECT_EQ(error_of_check("every", "hope"), "accelerator.compile_check");
  EXPECT_EQ(error_of_check("16", "stop"), "no error");
}

TEST(AcceleratorCompile, ComparesAsOftenAsItIsToldTo) {
  const auto report_of = [](const std::string& when) {
    levin::AcceleratorOptions options = of_compile("replay");
    options.engine.compile_check = when;
    levin::Accelerator accelerator(options);
    auto twice = accelerator.compile([](const at::Tensor& x) { return x * 2; });
    for (int64_t i = 0; i < 35; ++i) twice(torch::ones({2}));
    return std::pair(twice.report().checked, twice.report().replayed);
  };
  EXPECT_EQ(report_of("auto"), std::pair(6L, 26L));  // the 1st, 2nd, 4th, 8th, 16th and 32nd of 32
  EXPECT_EQ(report_of("every"), std::pair(32L, 0L));
  EXPECT_EQ(report_of("8"), std::pair(4L, 28L));
  EXPECT_EQ(report_of("no"), std::pair(0L, 32L));
}

TEST(AcceleratorCompile, LeavesOutChecksThatTakeTooMuchMemory) {
  const auto checked_with = [](double megabytes) {
    levin::AcceleratorOptions options = of_compile("replay");
    options.engine.compile_check_memory = megabytes;
    levin::Accelerator accelerator(options);
    // 4 MB, and 4 of what it is twice.
    auto sum = accelerator.compile([](const at::Tensor& x) { return (x.exp() * 2).tanh().sum(); });
    for (int64_t i = 0; i < 12; ++i) sum(torch::ones({1 << 20}));
    return sum.report().checked;
  };
  EXPECT_EQ(checked_with(0), 4);
  EXPECT_EQ(checked_with(20), 4);
  EXPECT_EQ(checked_with(6), 0);
  levin::AcceleratorOptions options = of_compile("replay");
  options.engine.compile_check_memory = -1;
  EXPECT_EQ(levin::test::error_id([&] { const levin::Accelerator accelerator(options); }),
            "accelerator.compile_check");
}

}  // namespace
