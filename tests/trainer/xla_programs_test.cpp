// How many programs a step takes on XLA devices, called and replayed: where the host makes or reads
// something on its way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/xla/device/runtime.h"
#include "tests/support/cpu_plugin.h"
#include "tests/trainer/on_xla.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT
using levin::xla::RuntimeReport;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Sequences of numbers [6, N, 1] of a batch, embedded in two ways of one size: what LibTorch's
/// attention asks torch::equal about.
struct OfTwoSequences : levin::Module {
  torch::nn::Linear one{nullptr}, other{nullptr}, head{nullptr};

  OfTwoSequences() {
    one = register_module("one", torch::nn::Linear(1, 8));
    other = register_module("other", torch::nn::Linear(1, 8));
    head = register_module("head", torch::nn::Linear(8, 3));
  }
  virtual at::Tensor crossed(const at::Tensor& query, const at::Tensor& memory) = 0;
  at::Tensor training_step(const levin::Batch& batch) override {
    const at::Tensor numbers = batch["x"].t().unsqueeze(2);
    const at::Tensor sequence = crossed(one->forward(numbers), other->forward(numbers));
    return torch::nn::functional::cross_entropy(head->forward(sequence.mean(0)), batch["y"]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

struct CrossAttention : OfTwoSequences {
  torch::nn::MultiheadAttention attention{nullptr};
  CrossAttention() {
    attention = register_module("attention", torch::nn::MultiheadAttention(8, 2));
  }
  at::Tensor crossed(const at::Tensor& query, const at::Tensor& memory) override {
    return std::get<0>(attention->forward(query, memory, memory));
  }
};

/// A key of one embedding and a value of another.
struct ThreeTensors : CrossAttention {
  at::Tensor crossed(const at::Tensor& query, const at::Tensor& memory) override {
    return std::get<0>(attention->forward(query, memory, memory * 2));
  }
};

struct EncoderDecoder : OfTwoSequences {
  torch::nn::Transformer transformer{nullptr};
  EncoderDecoder() {
    transformer = register_module(
        "transformer", torch::nn::Transformer(torch::nn::TransformerOptions(8, 2, /*encoders=*/2,
                                                                            /*decoders=*/4)
                                                  .dim_feedforward(8)
                                                  .dropout(0.0)));
  }
  at::Tensor crossed(const at::Tensor& query, const at::Tensor& memory) override {
    return transformer->forward(memory, query);
  }
};

/// A mask that the host makes in each step, other elements each time.
struct HostMask : levin::Module {
  torch::nn::Linear net{nullptr};
  int64_t calls = 0;
  HostMask() { net = register_module("net", torch::nn::Linear(6, 3)); }
  at::Tensor training_step(const levin::Batch& batch) override {
    const at::Tensor mask = torch::ones({batch.size(), 6});
    auto elements = mask.accessor<float, 2>();
    for (int64_t row = 0; row < batch.size(); ++row) elements[row][(row + calls) % 6] = 0.0F;
    ++calls;
    const at::Tensor x = batch["x"] * mask.to(batch["x"].device());
    return torch::nn::functional::cross_entropy(net->forward(x), batch["y"]);
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

using Make = std::function<std::shared_ptr<levin::Module>()>;

struct Ran {
  std::vector<at::Tensor> weights;
  std::vector<RuntimeReport> reports;  ///< after each step
  levin::graph::CompiledReport compiled;
};

struct NoteReports : levin::Callback {
  std::vector<RuntimeReport>& reports;
  explicit NoteReports(std::vector<RuntimeReport>& reports) : reports(reports) {}
  std::string state_key() const override { return "note_reports"; }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    const auto& runtime = trainer.accelerator().xla();
    if (runtime != nullptr) reports.push_back(runtime->report());
  }
};

/// Four steps an epoch.
Ran ran(const Make& make, const std::string& accelerator, const std::string& compile,
        int64_t epochs = 3) {
  const Scratch scratch;
  Ran run;
  levin::TrainerOptions options = on_xla(scratch.path(), 1, 3);
  if (accelerator == "cpu") options = quiet(scratch.path());
  options.accelerator = accelerator;
  options.max_epochs = epochs;
  options.engine.compile = compile;
  options.enable_checkpointing = false;
  options.callbacks = {std::make_shared<NoteReports>(run.reports)};
  levin::seed_everything(2);
  const auto net = make();
  levin::Trainer trainer(options);
  trainer.fit(net, levin::DataLoader(dataset(32), {.batch_size = 8}));
  run.compiled = trainer.compile_report();
  net->to(torch::kCPU);
  run.weights = net->parameters();
  return run;
}

void expect_weights(const Ran& came, const Ran& wanted) {
  ASSERT_EQ(came.weights.size(), wanted.weights.size());
  for (size_t i = 0; i < wanted.weights.size(); ++i) {
    EXPECT_TRUE(torch::allclose(came.weights[i], wanted.weights[i], 1e-3, 1e-5)) << i;
  }
}

/// Called, a step is one program, and none is compiled after the second.
void expect_one_program(const Ran& called) {
  ASSERT_EQ(called.reports.size(), 12U);
  const RuntimeReport &second = called.reports[1], &last = called.reports.back();
  EXPECT_LE(second.programs.size(), 2U) << "of two steps";
  EXPECT_EQ(last.programs.size(), second.programs.size());
  EXPECT_EQ(last.executions - second.executions, 10) << "one a step";
}

using AttentionCase = std::pair<const char*, Make>;
class AttentionOnXla : public testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionOnXla, IsOneProgramAStep) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Make& make = GetParam().second;
  const Ran wanted = ran(make, "cpu", "no");
  const Ran called = ran(make, "xla", "no"), replayed = ran(make, "xla", "replay");
  expect_weights(called, wanted);
  expect_weights(replayed, wanted);
  expect_one_program(called);
  EXPECT_THAT(replayed.compiled.refusals, IsEmpty());
  EXPECT_GT(replayed.compiled.replayed, 2);
  EXPECT_LE(replayed.reports.back().programs.size(), 3U);
}

INSTANTIATE_TEST_SUITE_P(
    Table, AttentionOnXla,
    testing::Values(
        AttentionCase{"CrossAttention", [] { return std::make_shared<CrossAttention>(); }},
        AttentionCase{"ThreeTensors", [] { return std::make_shared<ThreeTensors>(); }},
        AttentionCase{"EncoderDecoder", [] { return std::make_shared<EncoderDecoder>(); }}),
    [](const auto& info) { return info.param.first; });

TEST(ProgramsOnXla, AMaskThatTheHostMakesInEachStepIsAnInput) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Make make = [] { return std::make_shared<HostMask>(); };
  const Ran wanted = ran(make, "cpu", "no");
  const Ran called = ran(make, "xla", "no"), replayed = ran(make, "xla", "replay");
  expect_weights(called, wanted);
  expect_one_program(called);
  // A replay makes no mask: the step is called on, and the log says what helps.
  expect_weights(replayed, wanted);
  EXPECT_EQ(replayed.compiled.replayed, 0);
  EXPECT_THAT(replayed.compiled.refusals,
              Contains(AllOf(HasSubstr("is another tensor than in the call before"),
                             HasSubstr("pass it as an input"), HasSubstr("HostMask"))));
}

/// The operators are those of a called step, and so is the program, though replay knows which tensors
/// are the batch.
TEST(ProgramsOnXla, ARefusedStepCompilesNoMoreThanACalledOne) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Make make = [] { return std::make_shared<HostMask>(); };
  const Ran called = ran(make, "xla", "no"), refused = ran(make, "xla", "replay");
  ASSERT_EQ(refused.compiled.refusals.size(), 1U);
  EXPECT_EQ(refused.reports.back().programs.size(), called.reports.back().programs.size())
      << called.reports.back().summary();
}

/// Reads what decides over the loss.
struct ReadsOnTheHost : HostMask {
  using Decide = std::function<bool(const at::Tensor& scores, const levin::Batch& batch)>;
  Decide decide;
  explicit ReadsOnTheHost(Decide decide) : decide(std::move(decide)) {}

  at::Tensor training_step(const levin::Batch& batch) override {
    const at::Tensor scores = net->forward(batch["x"]);
    const at::Tensor loss = torch::nn::functional::cross_entropy(scores, batch["y"]);
    const at::Tensor more = decide(scores, batch) ? scores.square().mean() : scores.abs().mean();
    return loss + 0.1 * more;
  }
};

using ReadCase = std::pair<const char*, ReadsOnTheHost::Decide>;
class ReadsOnXla : public testing::TestWithParam<ReadCase> {};

/// What the host reads is compared before each replay; where it is another value, another recording
/// is replayed.
TEST_P(ReadsOnXla, AreGuardsOfAReplay) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Make make = [] { return std::make_shared<ReadsOnTheHost>(GetParam().second); };
  const Ran wanted = ran(make, "cpu", "no", 10), replayed = ran(make, "xla", "replay", 10);
  expect_weights(replayed, wanted);
  EXPECT_THAT(replayed.compiled.refusals, IsEmpty());
  // Of 40 steps, in ten epochs; what is replayed is compared with its code at the start of each.
  EXPECT_GE(replayed.compiled.replayed, 3);
  EXPECT_GE(replayed.compiled.replayed + replayed.compiled.checked, 15);
}

INSTANTIATE_TEST_SUITE_P(
    Table, ReadsOnXla,
    testing::Values(ReadCase{"OfEqualTensors",
                             [](const at::Tensor& scores, const levin::Batch&) {
                               return torch::equal(scores, scores * 2);
                             }},
                    ReadCase{"OfALabel",
                             [](const at::Tensor&, const levin::Batch& batch) {
                               return batch["y"][0].item<int64_t>() == 1;
                             }},
                    ReadCase{"OfTheBatch",
                             [](const at::Tensor&, const levin::Batch& batch) {
                               return batch["x"].sum().gt(0).item<bool>();
                             }},
                    ReadCase{"OfTheScores",
                             [](const at::Tensor& scores, const levin::Batch&) {
                               return scores.isnan().any().item<bool>();
                             }},
                    ReadCase{"OfTwoValues",
                             [](const at::Tensor& scores, const levin::Batch& batch) {
                               return batch["y"][1].item<int64_t>() == 1 &&
                                      scores.abs().max().lt(100).item<bool>();
                             }}),
    [](const auto& info) { return info.param.first; });

TEST(ProgramsOnXla, AReadThatIsAnotherInEachCallIsRefusedWithItsLine) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const Ran replayed = ran(
      [] {
        return std::make_shared<ReadsOnTheHost>([](const at::Tensor& scores, const levin::Batch&) {
          return scores.sum().item<double>() > 1e9;
        });
      },
      "xla", "replay");
  EXPECT_THAT(
      replayed.compiled.refusals,
      Contains(AllOf(HasSubstr("the host reads the result of aten::_local_scalar_dense, in "),
                     HasSubstr("another value in each call"), HasSubstr("torch::where"))));
}

/// A copy is no number that could be compared, and a draw of the read would be no draw of the step.
TEST(ProgramsOnXla, ARefusalNamesTheOperatorThatReads) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const auto refusals_of = [](const ReadsOnTheHost::Decide& decide) {
    return ran([&] { return std::make_shared<ReadsOnTheHost>(decide); }, "xla", "replay")
        .compiled.refusals;
  };
  EXPECT_THAT(refusals_of([](const at::Tensor&, const levin::Batch& batch) {
                return *batch["y"].cpu().const_data_ptr<int64_t>() == 1;
              }),
              Contains(AllOf(HasSubstr("with a copy, in "), HasSubstr("torch::where"))));
  EXPECT_THAT(refusals_of([](const at::Tensor& scores, const levin::Batch&) {
                return torch::rand_like(scores).sum().item<double>() > 1e9;
              }),
              Contains(AllOf(HasSubstr("with item(), in "), HasSubstr("torch::where"))));
}

}  // namespace
