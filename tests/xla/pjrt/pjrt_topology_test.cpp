#include <gmock/gmock.h>

#include "levin/xla/pjrt/topology.h"
#include "tests/support/error_of.h"
#include "tests/xla/plugins.h"

namespace {

namespace pjrt = levin::xla::pjrt;
using levin::test::error_of;
using levin::test::OnCpuDevices;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// libtpu, whose licence lets nobody hand it on: found where the user has installed it.
class TpuTopology : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!pjrt::is_available()) GTEST_SKIP() << "levin was built without pjrt_c_api.h";
    const char* named = std::getenv("LEVIN_LIBTPU");
    try {
      path_ = named != nullptr ? named : pjrt::find_plugin("tpu");
    } catch (const levin::Error&) {
      GTEST_SKIP() << "no libtpu was found; `pip install libtpu`, or name one by LEVIN_LIBTPU";
    }
  }
  pjrt::Topology make(const std::string& name) const {
    return pjrt::Topology(pjrt::Plugin(path_, {.compile_only = true}), name);
  }

  std::string path_;
};

std::string sum_of(const std::string& type, int64_t replicas) {
  std::string group;
  for (int64_t i = 0; i < replicas; ++i) group += (i > 0 ? "," : "") + std::to_string(i);
  return "module @sum { func.func @main(%a: " + type + ") -> " + type + R"( {
    %r = "stablehlo.all_reduce"(%a) ({
     ^bb0(%x: tensor<f32>, %y: tensor<f32>):
      %z = stablehlo.add %x, %y : tensor<f32>
      stablehlo.return %z : tensor<f32>
    }) {replica_groups = dense<[[)" +
         group + "]]> : tensor<1x" + std::to_string(replicas) + "xi64>} : (" + type + ") -> " +
         type + " return %r : " + type + " }}";
}

TEST_F(TpuTopology, IsCompiledForWithoutATpu) {
  const pjrt::Topology eight = make("v5e:2x4");
  EXPECT_EQ(eight.num_devices(), 8);
  EXPECT_EQ(eight.platform(), "tpu");
  EXPECT_THAT(eight.device_kind(), HasSubstr("TPU v5"));
  const pjrt::Program sum = eight.compile(sum_of("tensor<256x512xf32>", 8), {.num_replicas = 8});
  EXPECT_EQ(sum.num_outputs(), 1);
  EXPECT_EQ(sum.num_replicas(), 8);
  const auto memory = sum.memory();
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->arguments, 256 * 512 * 4);
  EXPECT_GE(memory->outputs, 256 * 512 * 4);
  EXPECT_THAT(sum.optimized_text(),
              AllOf(HasSubstr("all-reduce"), HasSubstr("f32[256,512] parameter(0)")));
  EXPECT_GT(sum.serialize().size(), 1000U);
}

TEST_F(TpuTopology, HasThoseThatAreKnown) {
  for (const std::string_view name : pjrt::known_topologies()) {
    EXPECT_GE(make(std::string(name)).num_devices(), 4) << name;
  }
  EXPECT_EQ(make("v5e:4x4").num_devices(), 16);
  EXPECT_EQ(make("v6e:2x4").num_devices(), 8);
}

TEST_F(TpuTopology, TellsWhatAProgramCosts) {
  const pjrt::Program product = make("v5e:2x2").compile(
      R"(module @product { func.func @main(%a: tensor<256x512xf32>, %b: tensor<512x128xf32>) -> tensor<256x128xf32> {
        %s = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<256x512xf32>, tensor<512x128xf32>) -> tensor<256x128xf32>
        return %s : tensor<256x128xf32> }})");
  const auto costs = product.costs();
  ASSERT_TRUE(costs.contains("flops"));
  EXPECT_GE(costs.at("flops"), 2.0 * 256 * 512 * 128);
}

TEST_F(TpuTopology, RefusesWhatDoesNotFit) {
  EXPECT_THAT(error_of([&] {
                make("v5e:2x2").compile(sum_of("tensor<8000000000xf32>", 4), {.num_replicas = 4});
              }),
              AllOf(StartsWith("xla.memory: the compiler for v5e:2x2"), HasSubstr("HBM")));
  EXPECT_THAT(
      error_of([&] { make("v5e:2x2").compile(sum_of("tensor<4xf32>", 8), {.num_replicas = 8}); }),
      StartsWith(
          "xla.option: got 8 replicas of 1 partitions for topology v5e:2x2, which has 4 devices"));
}

TEST_F(TpuTopology, ThatIsUnknownNamesKnownOnes) {
  EXPECT_THAT(
      error_of([&] { make("v99:3x3"); }),
      AllOf(StartsWith("xla.topology: 'v99:3x3'"), HasSubstr("v5e:2x4"), HasSubstr("v6e:2x4")));
}

TEST_F(TpuTopology, HasNoClientWithoutATpu) {
  if (std::filesystem::exists("/dev/accel0") || std::filesystem::exists("/dev/vfio/0"))
    GTEST_SKIP() << "a TPU is here";
  const pjrt::Plugin plugin(path_, {.compile_only = true});
  EXPECT_THAT(error_of([&] { pjrt::Client client(plugin); }), StartsWith("xla.client: plugin "));
}

class CpuTopology : public OnCpuDevices {};

TEST_F(CpuTopology, IsNoneThatTpusHave) {
  EXPECT_THAT(error_of([&] { pjrt::Topology topology(pjrt::Plugin(path_), "v5e:2x4"); }),
              StartsWith("xla.topology: 'v5e:2x4'"));
}

TEST(KnownTopologies, HoldTheSmallestAndTheLargestOfV5e) {
  if (!pjrt::is_available()) GTEST_SKIP() << "levin was built without pjrt_c_api.h";
  EXPECT_THAT(pjrt::known_topologies(), AllOf(Contains("v5e:2x2"), Contains("v5e:4x4")));
}

}  // namespace
