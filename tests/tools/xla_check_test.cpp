#include "tools/xla/xla_check.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "levin/models/gpt2.h"
#include "levin/xla/stablehlo/program.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/tools/libtpu.h"
#include "tests/tools/step.h"
#include "tests/xla/plugins.h"
#include "tools/command.h"
#include "tools/xla/tpu.h"

namespace {

namespace pjrt = levin::xla::pjrt;
using levin::graph::Node;
using levin::graph::Opcode;
using levin::test::error_of;
using levin::test::mlp_step;
using levin::test::Scratch;
using levin::test::step_of;
using levin::tools::bytes_of_shape;
using levin::tools::check_step;
using levin::tools::CheckedStep;
using levin::tools::Collective;
using levin::tools::collectives_of;
using levin::tools::Plan;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Collectives, AreCountedByKind) {
  const std::vector<Collective> found = collectives_of(R"(HloModule jit_step

ENTRY %main.4 {
  %Arg_0.1 = f32[16] parameter(0)
  %all-reduce.1 = (f32[128,784], f32[10]) all-reduce(%a, %b), calls=%region_9.10
  %all-reduce.2 = f32[] all-reduce(%loss)
  %ag = (bf16[4], bf16[32]) all-gather-start(%x)
  %done = bf16[32] all-gather-done(%ag)
  %all-reduce-start = f32[8] all-reduce-start(%y)
  ROOT %fusion = f32[16] fusion(%all-reduce.2), kind=kLoop, calls=%fused_all-reduce
}
)");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].kind, "all-reduce");
  EXPECT_EQ(found[0].count, 3);
  EXPECT_EQ(found[0].bytes, 128 * 784 * 4 + 40 + 4 + 32);
  EXPECT_EQ(found[1].kind, "all-gather");
  EXPECT_EQ(found[1].count, 1);
  EXPECT_EQ(found[1].bytes, (4 + 32) * 2 / 2);
  EXPECT_TRUE(collectives_of("").empty());
}

TEST(Collectives, HaveTheBytesOfTheirShapes) {
  const std::pair<const char*, int64_t> cases[] = {
      {"f32[8,2]", 64}, {"(f32[8,2], bf16[4])", 72}, {"f32[]", 4},   {"pred[3]", 3},
      {"s4[5]", 3},     {"f8e4m3fn[7]", 7},          {"token[]", 0}, {"c64[2]", 16}};
  for (const auto& [shape, bytes] : cases) EXPECT_EQ(bytes_of_shape(shape), bytes) << shape;
}

CheckedStep checked_step() {
  return {.topology = "v5e:2x4",
          .device_kind = "TPU v5 lite",
          .num_cores = 8,
          .hbm_bytes = 16e9,
          .memory = {.arguments = 3'000'000'000,
                     .outputs = 2'000'000'000,
                     .aliased = 1'500'000'000,
                     .temporary = 400'000'000,
                     .code = 100'000'000},
          .flops = 2e12,
          .bytes = 3e9,
          .seconds = 0.01,
          .collectives = {{"all-reduce", 3, 498'000'000}},
          .compile_s = 12.5};
}

TEST(XlaCheckReport, HasAColumnForEachTopology) {
  CheckedStep refused{.topology = "v6e:2x4",
                      .device_kind = "TPU v6 lite",
                      .num_cores = 8,
                      .hbm_bytes = 32e9,
                      .refusal = "ran out of memory"};
  const Plan plan{.num_parameters = 124'000'000,
                  .largest = {{.bytes = 7,
                               .type = "f32[1, 2]",
                               .kind = "values",
                               .name = "aten::mm",
                               .module = "net.head"}}};
  const std::string text = to_text(std::vector{checked_step(), refused}, plan);
  EXPECT_THAT(text, StartsWith("a step of 124 M parameters; each core runs it"));
  EXPECT_THAT(text, HasSubstr("\nin all                             4.00 GB             -\n"));
  EXPECT_THAT(text, HasSubstr("\n  of a core's memory                25.0 %             -\n"));
  EXPECT_THAT(text, HasSubstr("\nall-reduce                       3, 498 MB             -\n"));
  EXPECT_THAT(text, HasSubstr("\nfits v5e:2x4\ndoes not fit v6e:2x4: ran out of memory\n"));
  EXPECT_THAT(text, HasSubstr("f32[1, 2]                 aten::mm of net.head\n"));
  EXPECT_THAT(text, HasSubstr("activation checkpointing"));
  EXPECT_THAT(to_text(std::vector{checked_step()}, plan), Not(HasSubstr("net.head")));
}

TEST(XlaCheckReport, IsAlsoJson) {
  const auto json = nlohmann::json::parse(to_json(std::vector{checked_step()}, Plan{}));
  const auto& one = json.at("topologies").at(0);
  EXPECT_TRUE(one.at("fits").get<bool>());
  EXPECT_EQ(one.at("memory").at("total").get<int64_t>(), 4'000'000'000);
  EXPECT_EQ(one.at("collectives").at(0).at("count").get<int>(), 3);
}

TEST(XlaCheckReport, SaysThatACoreHasLess) {
  CheckedStep large = checked_step();
  large.hbm_bytes = 3.9e9;
  EXPECT_FALSE(large.fits());
  EXPECT_THAT(to_text(std::vector{large}, Plan{}),
              HasSubstr("does not fit v5e:2x4: it needs 4.00 GB of a core's 3.90 GB"));
}

int run_xla(std::vector<std::string> words, std::string& output) {
  words.insert(words.begin(), "xla");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::testing::internal::CaptureStdout();
  try {
    const int code = levin::tools::xla(static_cast<int>(words.size()), arguments.data());
    output = ::testing::internal::GetCapturedStdout();
    return code;
  } catch (...) {
    ::testing::internal::GetCapturedStdout();
    throw;
  }
}

std::string error_of_xla(const std::vector<std::string>& words) {
  std::string output;
  return error_of([&] { run_xla(words, output); });
}

TEST(XlaCommand, SaysWhatItTakes) {
  std::string output;
  EXPECT_EQ(run_xla({}, output), 2);
  EXPECT_THAT(output, HasSubstr("usage: levin xla check"));
  EXPECT_EQ(run_xla({"--help"}, output), 0);
  EXPECT_EQ(run_xla({"check", "--help"}, output), 0);
  EXPECT_THAT(output, AllOf(HasSubstr("--topology"), HasSubstr("make libtpu")));
  EXPECT_THAT(error_of_xla({"chek"}), StartsWith("tools.xla: got 'chek', wanted check"));
  EXPECT_THAT(error_of_xla({"check", "--topolgy", "v5e:2x4"}),
              AnyOf(StartsWith("tools.xla: no option '--topolgy'"), StartsWith("tools.xla: found"),
                    StartsWith("xla.unavailable: ")));
}

TEST(XlaCommand, NamesWhatIsNoPlugin) {
  if (!pjrt::is_available()) GTEST_SKIP() << "levin was built without pjrt_c_api.h";
  const Scratch scratch;
  std::ofstream(scratch / "libtpu.so") << "no library";
  EXPECT_THAT(error_of_xla({"check", "--libtpu", (scratch / "libtpu.so").string(), "./program"}),
              AllOf(StartsWith("xla.plugin.load: "), HasSubstr("wanted a PJRT plugin")));
  const levin::test::Variable named("LEVIN_LIBTPU", (scratch / "none.so").string());
  EXPECT_THAT(error_of_xla({"check", "./program"}),
              AllOf(StartsWith("xla.plugin.load: "), HasSubstr("none.so cannot be loaded")));
}

TEST(XlaCommand, SaysWhereLibtpuComesFrom) {
  if (!pjrt::is_available()) GTEST_SKIP() << "levin was built without pjrt_c_api.h";
  const levin::test::Variable none("LEVIN_LIBTPU", "");
  try {
    pjrt::find_plugin("tpu");
    GTEST_SKIP() << "libtpu is installed here";
  } catch (const levin::Error&) {
    EXPECT_THAT(error_of_xla({"check", "./program"}),
                AllOf(StartsWith("tools.xla: found no libtpu"), HasSubstr("make libtpu"),
                      HasSubstr("LEVIN_LIBTPU")));
  }
}

class TpuCheck : public levin::test::WithLibtpu {
 protected:
  /// That it fits each of the topologies, with one mean over the gradients of all parameters.
  void expect_fits(const levin::graph::Graph& step, int64_t gradient_bytes, double hbm_part,
                   const std::vector<std::string>& names = {"v5e:2x4", "v4:2x2x2", "v6e:2x4"}) {
    for (const std::string& name : names) {
      const CheckedStep checked = check_step(step, topology(name));
      EXPECT_TRUE(checked.fits()) << name << ": " << checked.refusal;
      EXPECT_EQ(checked.num_cores, levin::tools::tpu_slice(name).num_cores) << name;
      ASSERT_FALSE(checked.collectives.empty()) << name;
      EXPECT_EQ(checked.collectives[0].kind, "all-reduce") << name;
      EXPECT_GE(checked.collectives[0].bytes, gradient_bytes) << name;
      EXPECT_GT(checked.flops, 0.0) << name;
      EXPECT_GT(checked.seconds, 0.0) << name;
      EXPECT_GT(static_cast<double>(checked.total_bytes()), hbm_part * checked.hbm_bytes) << name;
      RecordProperty(name, std::to_string(checked.total_bytes()));
    }
  }
};

TEST_F(TpuCheck, OfAnMlpFits) { expect_fits(mlp_step().graph(), 10'528, 0.0); }

TEST_F(TpuCheck, OfAConvolutionalNetFits) {
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 16, 3).padding(1)),
                            torch::nn::BatchNorm2d(16), torch::nn::ReLU(), torch::nn::MaxPool2d(2),
                            torch::nn::Conv2d(torch::nn::Conv2dOptions(16, 32, 3).stride(2)),
                            torch::nn::ReLU(), torch::nn::Flatten(),
                            torch::nn::Linear(32 * 7 * 7, 10));
  const auto step = step_of(net, levin::optim::sgd({.lr = 0.1, .momentum = 0.9}),
                            torch::randn({8, 3, 32, 32}), torch::randint(10, {8}));
  expect_fits(step.graph(), 81'152, 0.0);
}

/// 124 million parameters with both of AdamW's moments, all in bfloat16. The table of tokens is the
/// last layer too, so that its gradient comes from two places.
levin::graph::GraphModule gpt2_small_step() {
  torch::manual_seed(0);
  levin::models::GPT2 net(
      levin::models::GPT2Config{.resid_pdrop = 0.0, .embd_pdrop = 0.0, .attn_pdrop = 0.0});
  net->to(torch::kBFloat16);
  return step_of(net, levin::optim::adamw({.lr = 1e-4}), torch::randint(50257, {1, 32}),
                 torch::randint(50257, {32}));
}

TEST_F(TpuCheck, OfGpt2SmallFits) {
  expect_fits(gpt2_small_step().graph(), int64_t{124'000'000} * 2, 0.04, {"v5e:2x4"});
}

TEST_F(TpuCheck, OfGpt2SmallFitsOthers) {
  expect_fits(gpt2_small_step().graph(), int64_t{124'000'000} * 2, 0.02, {"v4:2x2x2", "v6e:2x4"});
}

/// What the partitioner makes of eight batches in one, as --strategy xla has it, is the step of a
/// core with one batch.
TEST_F(TpuCheck, IsOfTheStepThatTheDeviceRuns) {
  const pjrt::Topology eight = topology("v5e:2x4");
  const CheckedStep checked = check_step(mlp_step().graph(), eight);
  torch::nn::Sequential net(torch::nn::Linear(32, 64), torch::nn::ReLU(), torch::nn::Linear(64, 8));
  const auto whole = step_of(net, levin::optim::adamw({.lr = 0.01}), torch::randn({128, 32}),
                             torch::randint(8, {128}));
  const auto graph = levin::tools::replica_of(whole.graph(), 1);
  const auto program = levin::xla::lower(
      graph, {.num_partitions = 8,
              .split_dim =
                  [](const Node& node) {
                    return node.opcode() == Opcode::kPlaceholder ? int64_t{0} : int64_t{-1};
                  },
              .may_donate = [](const Node&) { return true; }});
  const auto compiled =
      eight.compile(program.text, {.num_partitions = 8, .use_spmd_partitioning = true});
  EXPECT_EQ(compiled.memory()->arguments, checked.memory.arguments);
  EXPECT_NEAR(compiled.costs().at("flops"), checked.flops, 0.05 * checked.flops);
  const auto exchanged = collectives_of(compiled.optimized_text());
  ASSERT_EQ(exchanged.size(), 1U);
  // The loss and the number of targets, too, which the replicas keep each for itself.
  EXPECT_NEAR(exchanged[0].bytes, checked.collectives.at(0).bytes, 8);
}

/// Two values of 40 GB.
constexpr const char* kTooLarge = R"(%x = placeholder["x"] : f32[100000, 100000]
%w = get_attr["net.w"] : f32[100000, 1]
%exp = aten::exp(%x) : f32[100000, 100000]
%mm = aten::mm(%exp, %w) : f32[100000, 1]
%sum = aten::sum(%mm) : f32[]
%ones_like = aten::ones_like(%sum) : f32[]
%expand = aten::expand(%ones_like, [100000, 1]) : f32[100000, 1]{0, 0}
%t = aten::t(%exp) : f32[100000, 100000]{1, 100000}
%new = aten::mm(%t, %expand) : f32[100000, 1]
return %sum
gradient %w = %new
)";

TEST_F(TpuCheck, RefusesWhatIsTooLarge) {
  const Scratch scratch;
  const std::string file = (scratch / "step.safetensors").string();
  levin::graph::GraphModule(levin::graph::parse(kTooLarge)).save(file, {.state = false});
  std::string output;
  EXPECT_EQ(run_xla({"check", "--libtpu", path_, "--topology", "v5e:2x2", file}, output), 1);
  EXPECT_THAT(output, HasSubstr("does not fit v5e:2x2: the compiler for v5e:2x2: "));
  EXPECT_THAT(output, HasSubstr("HBM (15.75G)"));
  EXPECT_THAT(output, HasSubstr("40.0 GB  f32[100000, 100000]       x\n"));
  EXPECT_THAT(output, HasSubstr("aten::exp\n"));
}

TEST_F(TpuCheck, ReadsAProgramAndSeveralTopologies) {
  const Scratch scratch;
  mlp_step().save(scratch / "step.safetensors", {.state = false});
  const std::string copy = "cp '" + (scratch / "step.safetensors").string() + "' $LEVIN_GRAPH_TO";
  std::string output;
  EXPECT_EQ(run_xla({"check", "--libtpu", path_, "--topology", "v5e:2x2,v6e:2x4", "--topology",
                     "tpu7x:2x2x1", "sh", "-c", copy},
                    output),
            0);
  EXPECT_THAT(output, HasSubstr("fits v5e:2x2\nfits v6e:2x4\nfits tpu7x:2x2x1\n"));
  EXPECT_THAT(error_of_xla({"check", "--libtpu", path_, "--topology", "v9e:2x2", "sh"}),
              AllOf(StartsWith("xla.topology: 'v9e:2x2'"), HasSubstr("v5e:2x4")));
}

}  // namespace
