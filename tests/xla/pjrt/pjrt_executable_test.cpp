#include <gmock/gmock.h>
#include <torch/torch.h>

#include <thread>

#include "levin/xla/pjrt/executable.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"
#include "tests/support/scratch.h"
#include "tests/xla/plugins.h"

namespace {

namespace pjrt = levin::xla::pjrt;
using levin::test::add_text;
using levin::test::all_reduce_text;
using levin::test::error_of;
using levin::test::OnCpuDevices;
using levin::test::run;
using levin::test::Scratch;
using levin::test::Variable;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class PjrtExecutable : public OnCpuDevices {};

std::vector<const pjrt::Buffer*> pointers(const std::vector<pjrt::Buffer>& buffers) {
  std::vector<const pjrt::Buffer*> all;
  for (const pjrt::Buffer& buffer : buffers) all.push_back(&buffer);
  return all;
}

TEST_F(PjrtExecutable, AddsTwoTensors) {
  const auto add = device().compile(add_text(16));
  EXPECT_EQ(add.name(), "add");
  EXPECT_EQ(add.num_outputs(), 1);
  EXPECT_THAT(add.devices(), ElementsAre(0));
  const at::Tensor x = torch::rand(16), y = torch::rand(16);
  const pjrt::Buffer a = device().upload(x), b = device().upload(y);
  EXPECT_TRUE(torch::equal(run(add, {&a, &b})[0].download(), x + y));
}

TEST_F(PjrtExecutable, RunsOnTheDeviceThatIsNamed) {
  const pjrt::Client& four = devices(4);
  const auto add = four.compile(add_text(4), {.device_ids = {3}});
  EXPECT_THAT(add.devices(), ElementsAre(3));
  const pjrt::Buffer x = four.upload(torch::ones(4), 3);
  const auto sum = run(add, {&x, &x});
  EXPECT_EQ(sum[0].device_id(), 3);
  EXPECT_TRUE(torch::equal(sum[0].download(), torch::full(4, 2.0)));
}

TEST_F(PjrtExecutable, SumsOverReplicas) {
  for (const int64_t count : {1, 2, 4, 8}) {
    const pjrt::Client& client = devices(count);
    const auto sum = client.compile(all_reduce_text(count), {.num_replicas = count});
    EXPECT_EQ(sum.num_replicas(), count);
    EXPECT_EQ(sum.devices().size(), static_cast<size_t>(count));
    std::vector<pjrt::Buffer> inputs;
    for (int64_t i = 0; i < count; ++i)
      inputs.push_back(client.upload(torch::full(4, static_cast<float>(i + 1)), i));
    const auto outputs = run(sum, pointers(inputs));
    ASSERT_EQ(outputs.size(), static_cast<size_t>(2 * count));
    const int64_t total = count * (count + 1) / 2;
    for (int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<size_t>(2 * i);
      EXPECT_EQ(outputs[at].device_id(), i);
      EXPECT_TRUE(torch::equal(outputs[at].download(), torch::full(4, static_cast<float>(total))));
      EXPECT_EQ(outputs[at + 1].dtype(), torch::kUInt32);
      EXPECT_EQ(outputs[at + 1].download().to(torch::kLong).item<int64_t>(), i);
    }
  }
}

// x^T (x w), x in four parts by rows: XLA puts the sum over the parts in.
constexpr const char* kSharded =
    R"(module @sharded attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func @main(%x: tensor<8x16xf32> {mhlo.sharding = "{devices=[4,1]0,1,2,3}"},
                  %w: tensor<16x4xf32> {mhlo.sharding = "{replicated}"})
      -> (tensor<16x4xf32> {mhlo.sharding = "{replicated}"}) {
    %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    %g = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0] : (tensor<8x16xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
    return %g : tensor<16x4xf32> }})";

TEST_F(PjrtExecutable, SplitsAProgramByItsShardings) {
  const pjrt::Client& four = devices(4);
  const auto program = four.compile(kSharded, {.num_partitions = 4, .use_spmd_partitioning = true});
  EXPECT_EQ(program.num_partitions(), 4);
  EXPECT_THAT(program.optimized_text(),
              AllOf(HasSubstr("all-reduce("), HasSubstr("f32[2,16] parameter(0)")));
  const at::Tensor x = torch::rand({8, 16}), w = torch::rand({16, 4});
  std::vector<pjrt::Buffer> inputs;
  for (int64_t i = 0; i < 4; ++i) {
    inputs.push_back(four.upload(x.slice(0, 2 * i, 2 * i + 2), i));
    inputs.push_back(four.upload(w, i));
  }
  const at::Tensor wanted = x.t().matmul(x.matmul(w));
  for (const pjrt::Buffer& output : run(program, pointers(inputs))) {
    EXPECT_TRUE(torch::allclose(output.download(), wanted, 1e-5, 1e-5));
  }
}

TEST_F(PjrtExecutable, TakesADonatedArgumentOver) {
  const auto add = device().compile(add_text(16, /*donated=*/true));
  EXPECT_EQ(add.memory()->aliased, 64);
  const pjrt::Buffer x = device().upload(torch::ones(16)), y = device().upload(torch::ones(16));
  const auto sums = run(add, {&x, &y});
  EXPECT_TRUE(x.is_deleted());
  EXPECT_FALSE(y.is_deleted());
  EXPECT_THAT(error_of([&] { x.download(); }),
              StartsWith("xla.buffer: the buffer was already donated"));
  EXPECT_THAT(error_of([&] { x.await(); }),
              StartsWith("xla.buffer: the buffer was already donated"));
  EXPECT_THAT(error_of([&] { run(add, {&y, &x}); }),
              StartsWith("xla.buffer: program 'add': argument 1 of device 0 was already donated"));
}

TEST_F(PjrtExecutable, LeavesAKeptArgumentAlone) {
  const auto add = device().compile(add_text(16, /*donated=*/true));
  const pjrt::Buffer x = device().upload(torch::ones(16));
  const auto sums = run(add, {&x, &x}, {0});
  EXPECT_FALSE(x.is_deleted());
  EXPECT_TRUE(torch::equal(x.download(), torch::ones(16)));
  EXPECT_TRUE(torch::equal(sums[0].download(), torch::full(16, 2.0)));
}

TEST_F(PjrtExecutable, TakesItsOwnLastOutputs) {
  const auto add = device().compile(add_text(16, /*donated=*/true));
  const pjrt::Buffer one = device().upload(torch::ones(16));
  std::vector<pjrt::Buffer> state;
  state.push_back(device().upload(torch::zeros(16)));
  for (int i = 0; i < 100; ++i) {
    const pjrt::Buffer* arguments[] = {&state[0], &one};
    add.execute(arguments, state);
  }
  EXPECT_TRUE(torch::equal(state[0].download(), torch::full(16, 100.0)));
}

TEST_F(PjrtExecutable, OutlivesItsClientAndBuffersOutliveIt) {
  std::optional<pjrt::Client> client(pjrt::Client(pjrt::Plugin(path_), {.num_devices = 1}));
  std::optional<pjrt::Executable> add(client->compile(add_text(16)));
  const pjrt::Buffer x = client->upload(torch::ones(16));
  client.reset();
  auto sums = run(*add, {&x, &x});
  add.reset();
  EXPECT_TRUE(torch::equal(sums[0].download(), torch::full(16, 2.0)));
}

TEST_F(PjrtExecutable, RunsInSeveralThreadsAtOnce) {
  const auto add = device().compile(add_text(1024));
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const pjrt::Buffer x = device().upload(torch::full(1024, static_cast<float>(t)));
      std::vector<pjrt::Buffer> sums;
      for (int i = 0; i < 200; ++i) {
        const pjrt::Buffer* arguments[] = {&x, &x};
        add.execute(arguments, sums);
        if (sums[0].download()[5].item<float>() == static_cast<float>(2 * t)) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 800);
}

TEST_F(PjrtExecutable, SaysWhatItIs) {
  const auto add = device().compile(add_text(16));
  const auto memory = add.memory();
  ASSERT_TRUE(memory.has_value());
  EXPECT_EQ(memory->arguments, 128);
  EXPECT_EQ(memory->outputs, 64);
  EXPECT_EQ(memory->aliased, 0);
  const auto costs = add.costs();  // API 0.115 of the CPU tells none
  if (!costs.empty()) {
    EXPECT_EQ(costs.at("flops"), 16);
  }
  EXPECT_EQ(add.fingerprint(), device().compile(add_text(16)).fingerprint());
  EXPECT_THAT(add.optimized_text(),
              AllOf(StartsWith("HloModule add"), HasSubstr("ENTRY %main"),
                    HasSubstr("f32[16] parameter(0)"), HasSubstr("  ROOT %"), HasSubstr(" add(%")));
}

TEST_F(PjrtExecutable, IsLoadedFromItsBytes) {
  const std::string bytes = device().compile(add_text(16)).serialize();
  const auto add = device().load(bytes);
  EXPECT_EQ(add.name(), "add");
  const pjrt::Buffer x = device().upload(torch::ones(16));
  EXPECT_TRUE(torch::equal(run(add, {&x, &x})[0].download(), torch::full(16, 2.0)));
  EXPECT_THAT(error_of([&] { device().load(bytes.substr(0, bytes.size() / 2)); }),
              StartsWith("xla.load: a serialized program of"));
  EXPECT_THAT(error_of([&] { device().load("no program"); }), StartsWith("xla.load: "));
}

/// Run by the next test in a process of its own.
TEST_F(PjrtExecutable, DISABLED_IsSavedHere) {
  levin::test::put(std::getenv("LEVIN_TEST_FILE"),
                   devices(2).compile(all_reduce_text(2), {.num_replicas = 2}).serialize());
}

TEST_F(PjrtExecutable, IsLoadedInAnotherProcess) {
  const Scratch scratch;
  const std::string file = (scratch / "program").string();
  const Variable told("LEVIN_TEST_FILE", file);
  ASSERT_EQ(levin::test::run_in_own_process("*DISABLED_IsSavedHere", scratch / "log"), 0);
  const auto sum = devices(2).load(levin::test::get(file));
  EXPECT_THAT(sum.devices(), ElementsAre(0, 1));
  const pjrt::Buffer x = devices(2).upload(torch::ones(4), 0),
                     y = devices(2).upload(torch::ones(4), 1);
  EXPECT_TRUE(torch::equal(run(sum, {&x, &y})[2].download(), torch::full(4, 2.0)));
}

TEST_F(PjrtExecutable, ThatDoesNotCompileSaysWhere) {
  EXPECT_THAT(
      error_of([&] { device().compile("module { func.func @main() { garbage } }"); }),
      AllOf(StartsWith("xla.compile: cpu's compiler: "), Not(HasSubstr("Source Location Trace"))));
  EXPECT_THAT(error_of([&] { device().compile(""); }), StartsWith("xla.compile: "));
  EXPECT_THAT(error_of([&] { device().compile(add_text(4), {.num_replicas = 2}); }),
              StartsWith("xla.compile: "));
}

TEST_F(PjrtExecutable, NeedsSensibleOptions) {
  EXPECT_THAT(error_of([&] { device().compile(add_text(4), {.num_replicas = 0}); }),
              StartsWith("xla.option: got num_replicas 0"));
  EXPECT_THAT(error_of([&] { device().compile(add_text(4), {.device_ids = {0, 1}}); }),
              StartsWith("xla.option: got 2 device_ids"));
}

TEST_F(PjrtExecutable, NeedsItsArguments) {
  const auto add = device().compile(add_text(4));
  const pjrt::Buffer x = device().upload(torch::ones(4)), y = device().upload(torch::ones(5)),
                     empty;
  EXPECT_THAT(error_of([&] { run(add, {&x}); }), StartsWith("xla.arguments: program 'add': "));
  EXPECT_THAT(error_of([&] { run(add, {}); }), StartsWith("xla.arguments: program 'add': "));
  EXPECT_THAT(error_of([&] { run(add, {&x, &y}); }),
              AllOf(StartsWith("xla.arguments: program 'add': "), HasSubstr("size 16")));
  for (const pjrt::Buffer* none : {static_cast<const pjrt::Buffer*>(nullptr), &empty}) {
    EXPECT_THAT(error_of([&] { run(add, {&x, none}); }),
                StartsWith("xla.buffer: program 'add': argument 1 is empty"));
  }
}

// A device that began without the other would wait for it, and XLA then ends the process.
TEST_F(PjrtExecutable, BeginsOnAllDevicesOrOnNone) {
  const pjrt::Client& two = devices(2);
  const auto sum = two.compile(all_reduce_text(2), {.num_replicas = 2});
  const pjrt::Buffer x = two.upload(torch::ones(4), 0), y = two.upload(torch::ones(4), 1);
  const pjrt::Buffer longer = two.upload(torch::ones(5), 1);
  const pjrt::Buffer whole = two.upload(torch::ones(4, torch::kInt), 1);
  EXPECT_THAT(error_of([&] { run(sum, {&x}); }),
              StartsWith("xla.arguments: program 'sum': got 1 arguments for 2 devices"));
  EXPECT_THAT(
      error_of([&] { run(sum, {&x, &longer}); }),
      AllOf(StartsWith(
          "xla.arguments: program 'sum': argument 0 has sizes [5] of Float on device 1 and [4]")));
  EXPECT_THAT(error_of([&] { run(sum, {&x, &whole}); }),
              HasSubstr("has sizes [4] of Int on device 1 and [4] of Float on device 0"));
  EXPECT_THAT(
      error_of([&] { run(sum, {&x, &x}); }),
      StartsWith(
          "xla.arguments: program 'sum': argument 0 of device 1 lies on the device of id 0"));
  const auto take = two.compile(add_text(4, /*donated=*/true), {.device_ids = {1}});
  const pjrt::Buffer taken = two.upload(torch::ones(4), 1);
  run(take, {&taken, &y});
  EXPECT_THAT(error_of([&] { run(sum, {&x, &taken}); }),
              StartsWith("xla.buffer: program 'sum': argument 0 of device 1 was already donated"));
  EXPECT_TRUE(torch::equal(run(sum, {&x, &y})[0].download(), torch::full(4, 2.0)));
}

TEST_F(PjrtExecutable, OfMoreThanThereIsRunsOutOfMemory) {
  const auto huge = device().compile(
      R"(module @huge { func.func @main(%a: tensor<f32>) -> tensor<4000000000000xf32> {
    %s = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<4000000000000xf32>
    return %s : tensor<4000000000000xf32> }})");
  const pjrt::Buffer x = device().upload(torch::tensor(1.0F));
  EXPECT_THAT(error_of([&] { run(huge, {&x})[0].await(); }),
              AllOf(StartsWith("xla.memory: "), HasSubstr("huge")));
}

class FakeExecutable : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!pjrt::is_available()) GTEST_SKIP() << "levin was built without pjrt_c_api.h";
  }
  static pjrt::Executable program() {
    return pjrt::Client(pjrt::Plugin(levin::test::fake_pjrt())).compile("");
  }
};

TEST_F(FakeExecutable, ThatFailsWhileItRunsIsNamedByItsOutputs) {
  const auto outputs = run(program(), {});
  ASSERT_EQ(outputs.size(), 1U);
  const std::string wanted = "xla.execute: program 'step': the fake broke at step 7";
  EXPECT_EQ(error_of([&] { outputs[0].await(); }), wanted);
  EXPECT_EQ(error_of([&] { outputs[0].download(); }), wanted);
  pjrt::Download download = outputs[0].start_download();
  EXPECT_EQ(error_of([&] { download.wait(); }), wanted);
}

TEST_F(FakeExecutable, ThatRunsOutOfMemoryIsNamedToo) {
  const Variable does("LEVIN_FAKE_PJRT_DOES", "runs out");
  const auto outputs = run(program(), {});
  EXPECT_THAT(error_of([&] { outputs[0].await(); }),
              AllOf(StartsWith("xla.memory: program 'step'"), HasSubstr("smaller batch")));
}

TEST_F(FakeExecutable, ThatDoesNotBeginSaysSo) {
  const Variable does("LEVIN_FAKE_PJRT_DOES", "does not begin");
  EXPECT_EQ(error_of([] { run(program(), {}); }),
            "xla.execute: program 'step': the fake is asleep");
}

TEST_F(FakeExecutable, ThatTellsNothingOfItself) {
  const auto step = program();
  EXPECT_FALSE(step.memory().has_value());
  EXPECT_THAT(step.costs(), IsEmpty());
  EXPECT_EQ(step.fingerprint(), "");
  EXPECT_EQ(error_of([&] { step.serialize(); }),
            "xla.serialize: program 'step': the fake cannot write");
  EXPECT_THAT(error_of([&] { step.optimized_text(); }),
              StartsWith("xla.program: got a module of 3 bytes that is not HLO"));
  const Variable does("LEVIN_FAKE_PJRT_DOES", "own format");
  EXPECT_THAT(error_of([&] { step.optimized_text(); }),
              StartsWith("xla.program: program 'step': the plugin gives the format 'fake'"));
}

}  // namespace
