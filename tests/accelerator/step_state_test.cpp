// StepState is a value: what a step changes on the host is there; an eager and a replayed step leave it
// equal, and an assignment goes back.

#include "levin/accelerator/stepping/step_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "levin/accelerator/engine/engine.h"
#include "tests/accelerator/small_nets.h"

namespace step_state {
namespace {

using levin::Batch;
using levin::StepState;
using ::testing::HasSubstr;

/// The state after each batch of a scheduled loop, some windows of which the end of an epoch cuts short.
std::vector<StepState> states_of(const std::string& compile, int64_t* num_replayed) {
  levin::AcceleratorOptions options;
  options.cpu = true;
  options.gradient_accumulation_steps = 3;
  levin::detail::read_options(3, std::array{"", "--compile", compile.c_str()}.data(),
                              [&](levin::FieldVisitor& field) { options.fields(field); });
  levin::Accelerator accelerator(options);
  torch::manual_seed(7);
  levin::DataLoader data(small_nets::dataset(62), {.batch_size = 8});
  auto [model, optimizer, loader] = accelerator.prepare(
      small_nets::with_dropout(),
      levin::optim::adam({.lr = 1e-2}).schedule(levin::optim::cosine({.total_steps = 90})), data);
  auto step = accelerator.compile([&](const Batch& batch) {
    optimizer.zero_grad();
    const at::Tensor loss = small_nets::loss_of(model, batch);
    accelerator.backward(loss);
    optimizer.step();
    return loss.detach();
  });
  std::vector<StepState> states;
  for (int64_t epoch = 0; epoch < 10; ++epoch) {
    for (const auto& batch : loader) {
      const auto window = accelerator.accumulate();
      step(batch);
      states.push_back(engine_of(accelerator).stepping().snapshot());
    }
  }
  *num_replayed = step.report().replayed;
  return states;
}

TEST(StepStates, OfReplaysAreThoseOfEagerSteps) {
  int64_t num_replayed = 0, none = 0;
  std::vector<StepState> eager = states_of("no", &none);
  const std::vector<StepState> replayed = states_of("replay", &num_replayed);
  EXPECT_EQ(none, 0);
  EXPECT_GT(num_replayed, 30);
  ASSERT_EQ(eager.size(), replayed.size());
  for (size_t i = 0; i < eager.size(); ++i) {
    eager[i].has_recorded = replayed[i].has_recorded;
    EXPECT_EQ(eager[i].text(), replayed[i].text()) << i;
    EXPECT_TRUE(eager[i] == replayed[i]) << i;
  }
  EXPECT_EQ(eager.back().losses, 80);
  EXPECT_EQ(eager.back().optimizers.front().updates, 30);
  EXPECT_EQ(eager.back().optimizers.front().schedule_steps, 30);
}

TEST(StepStates, AreGoneBackToByAssignment) {
  levin::AcceleratorOptions options;
  options.cpu = true;
  options.gradient_accumulation_steps = 2;
  options.mixed_precision = "fp16";
  levin::Accelerator accelerator(options);
  torch::manual_seed(7);
  auto [model, optimizer] =
      accelerator.prepare(torch::nn::Linear(4, 2), levin::optim::sgd({.lr = 0.1}));
  const auto train = [&](int64_t batches) {
    for (int64_t i = 0; i < batches; ++i) {
      const auto window = accelerator.accumulate();
      optimizer.zero_grad();
      accelerator.backward(model->forward(torch::randn({3, 4})).pow(2).mean());
      optimizer.step();
    }
  };
  train(4);
  const StepState before = engine_of(accelerator).stepping().snapshot();
  train(1);  // half a window, which updates nothing
  const StepState after = engine_of(accelerator).stepping().snapshot();
  EXPECT_FALSE(before == after);
  EXPECT_NE(before.text(), after.text());
  engine_of(accelerator).stepping().restore(before);
  EXPECT_TRUE(engine_of(accelerator).stepping().snapshot() == before);
  train(1);
  EXPECT_TRUE(engine_of(accelerator).stepping().snapshot() == after)
      << "the same numbers are drawn again";
}

struct Change {
  std::string name;
  std::function<void(StepState&)> change;
  bool is_guard = true;  ///< decides which operators run
};

/// One a field. A field that is added is to get a row; the sizes below tell.
std::vector<Change> changes() {
  return {
      {"window.size", [](StepState& s) { s.place.window.size = 2; }},
      {"window.in_batch", [](StepState& s) { s.place.window.in_batch = true; }},
      {"window.is_complete", [](StepState& s) { s.place.window.is_complete = false; }},
      {"window.may_weigh", [](StepState& s) { s.place.window.may_weigh = true; }},
      {"window.has_gradients", [](StepState& s) { s.place.window.has_gradients = true; }},
      {"window.is_weighed", [](StepState& s) { s.place.window.is_weighed = true; }},
      {"window.cut_short", [](StepState& s) { s.place.window.cut_short = 1.5; }},
      {"no_sync", [](StepState& s) { s.place.no_sync = 1; }},
      {"synchronizes_next", [](StepState& s) { s.place.synchronizes_next = true; }},
      {"are_finished", [](StepState& s) { s.place.optimizers[0].are_finished = true; }},
      {"are_used_up", [](StepState& s) { s.place.optimizers[0].are_used_up = true; }},
      {"batches", [](StepState& s) { s.batches = 1; }, false},
      {"losses", [](StepState& s) { s.losses = 1; }, false},
      {"steps", [](StepState& s) { s.steps = 1; }, false},
      {"updates", [](StepState& s) { s.optimizers[0].updates = 1; }, false},
      {"schedule_steps", [](StepState& s) { s.optimizers[0].schedule_steps = 1; }, false},
      {"was_skipped", [](StepState& s) { s.optimizers[0].was_skipped = true; }, false},
      {"is_updating", [](StepState& s) { s.is_updating = true; }, false},
      {"was_left_out", [](StepState& s) { s.was_left_out = true; }, false},
      {"weighs", [](StepState& s) { s.weighing.weighs = true; }, false},
      {"is_agreed", [](StepState& s) { s.weighing.is_agreed = true; }, false},
      {"is_bad", [](StepState& s) { s.is_bad = true; }, false},
      {"leaves_out", [](StepState& s) { s.leaves_out = false; }, false},
      {"loss_guard",
       [](StepState& s) { s.loss_guard.look(torch::ones({}), [] { return std::string(); }); },
       false},
      {"scaler", [](StepState& s) { s.scaler.emplace(); }, false},
      {"random", [](StepState& s) { s.random.emplace(at::Device(at::kCPU)); }, false},
  };
}

TEST(StepStates, CompareAndShowEachField) {
  StepState start;
  start.optimizers.emplace_back();
  start.place.optimizers.emplace_back();
  for (const Change& row : changes()) {
    StepState changed = start;
    EXPECT_TRUE(changed == start);
    row.change(changed);
    EXPECT_FALSE(changed == start) << row.name;
    if (row.name != "random") EXPECT_NE(changed.text(), start.text()) << row.name;
    std::vector<double> was, is;
    start.place.visit([&](std::string_view, auto number) { was.push_back(number); });
    changed.place.visit([&](std::string_view, auto number) { is.push_back(number); });
    EXPECT_EQ(was != is, row.is_guard) << row.name;
  }
}

TEST(StepStates, AreALineForPeople) {
  StepState state;
  state.optimizers.push_back({.updates = 3});
  state.scaler.emplace();
  EXPECT_THAT(state.text(), HasSubstr("updates 3"));
  EXPECT_THAT(state.text(), HasSubstr("scale 65536"));
  EXPECT_THAT(state.text(), HasSubstr("whether the batch ends its accumulation window true"));
}

}  // namespace
}  // namespace step_state
