// The strategy table on the CPU plugin: 1, 2, 4 and 8 devices give the losses of one process that
// knows nothing of XLA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/graph/compiled.h"
#include "levin/optim/optim.h"
#include "levin/strategy/strategy.h"
#include "levin/xla/device/runtime.h"
#include "levin/xla/device/step.h"
#include "levin/xla/pjrt/plugin.h"
#include "tests/strategy/tasks.h"

namespace {

using levin::Batch;
using levin::OptimizerConfig;
using levin::Strategy;
using levin::test::Task;
namespace xla = levin::xla;

constexpr int64_t kXlaSteps = 50;

struct XlaCase {
  std::string name;
  Task (*task)();
  std::string optimizer;
};

void PrintTo(const XlaCase& c, std::ostream* out) { *out << c.name; }

OptimizerConfig optimizer_named(const std::string& name) {
  if (name == "adam") return levin::optim::adam({.lr = 1e-3});
  if (name == "adamw") return levin::optim::adamw({.lr = 1e-3, .weight_decay = 0.1});
  return levin::optim::sgd({.lr = 0.1, .momentum = 0.9});
}

bool has_cpu_plugin() {
  return xla::pjrt::is_available() &&
         std::ranges::any_of(xla::pjrt::found_plugins(),
                             [](const auto& file) { return file.kind == "cpu"; });
}

#define LEVIN_NEEDS_CPU_PLUGIN() \
  if (!has_cpu_plugin()) GTEST_SKIP() << "there is no CPU plugin; make xla fetches one"

/// A task under a strategy; on XLA its steps are recorded, as the engine does it.
struct Training {
  Training(const XlaCase& c, std::shared_ptr<xla::Runtime> on = nullptr)
      : runtime(std::move(on)),
        task((torch::manual_seed(1), c.task())),
        strategy(levin::make_strategy("auto", {.xla = runtime})) {
    const at::Device device = runtime ? runtime->device() : at::Device(at::kCPU);
    strategy->setup(*task.module, device);
    optimizer = strategy->build_optimizer(optimizer_named(c.optimizer),
                                          levin::named_parameters(*task.module));
    if (!runtime) return;
    optimizer->set_capturable(true);
    compiled = std::make_unique<levin::graph::Compiled>(
        "the step", levin::graph::CompiledOptions{.engine = xla::make_engine(runtime)});
  }

  at::Tensor step_eagerly(const at::Tensor& inputs) {
    optimizer->zero_grad();
    const at::Tensor loss = task.loss(inputs);
    strategy->backward(loss, /*synchronize=*/true);
    strategy->update(*optimizer);
    return loss.detach();
  }

  double step(int64_t number) {
    if (!runtime) return step_eagerly(task.inputs(number)).item<double>();
    const Batch batch = strategy->to_device(Batch({{"x", task.inputs(number)}}), runtime->device());
    const at::Tensor x = batch["x"];
    return (*compiled)({.inputs = {x}, .names = {"x"}}, [&] {
      std::vector<at::Tensor> losses = {step_eagerly(x)};
      if (auto* recording = compiled->recording()) recording->before(optimizer->host_part());
      return losses;
    })[0].item<double>();
  }

  std::shared_ptr<xla::Runtime> runtime;
  Task task;
  std::unique_ptr<Strategy> strategy;
  std::unique_ptr<levin::optim::Optimizer> optimizer;
  std::unique_ptr<levin::graph::Compiled> compiled;
};

class XlaTable : public ::testing::TestWithParam<XlaCase> {};

TEST_P(XlaTable, DevicesTogetherEqualOneProcessWithoutXla) {
  LEVIN_NEEDS_CPU_PLUGIN();
  std::vector<double> alone;
  Training single(GetParam());
  for (int64_t i = 0; i < kXlaSteps; ++i) alone.push_back(single.step(i));
  for (const int64_t count : {1, 2, 4, 8}) {
    Training spread(GetParam(), xla::Runtime::open({.plugin = "cpu", .num_devices = count}));
    for (int64_t i = 0; i < kXlaSteps; ++i) {
      ASSERT_NEAR(spread.step(i), alone[i], 1e-5) << count << " devices, step " << i;
    }
    EXPECT_EQ(spread.runtime->report().host_fallbacks, 0);
    EXPECT_GE(spread.compiled->report().replayed, kXlaSteps - 4) << count << " devices";
    EXPECT_THAT(spread.compiled->report().refusals, ::testing::IsEmpty());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Xla, XlaTable,
    ::testing::Values(XlaCase{"MlpSgd", levin::test::mlp, "sgd"},
                      XlaCase{"MlpAdam", levin::test::mlp, "adam"},
                      XlaCase{"MlpAdamW", levin::test::mlp, "adamw"},
                      XlaCase{"CnnSgd", levin::test::cnn, "sgd"},
                      XlaCase{"CnnAdam", levin::test::cnn, "adam"},
                      XlaCase{"CnnAdamW", levin::test::cnn, "adamw"},
                      XlaCase{"LstmSgd", levin::test::lstm, "sgd"},
                      XlaCase{"LstmAdam", levin::test::lstm, "adam"},
                      XlaCase{"LstmAdamW", levin::test::lstm, "adamw"},
                      XlaCase{"GptSgd", levin::test::gpt, "sgd"},
                      XlaCase{"GptAdam", levin::test::gpt, "adam"},
                      XlaCase{"GptAdamW", levin::test::gpt, "adamw"}),
    [](const auto& info) { return info.param.name; });

/// Of a fixed shape: what the first two steps compiled does for all that come.
TEST(XlaSteps, NothingIsCompiledAfterTheSecondOfAThousand) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const XlaCase c{"MlpAdam", levin::test::mlp, "adam"};
  Training training(c, xla::Runtime::open({.plugin = "cpu", .num_devices = 2}));
  const auto programs = [&] {
    const xla::RuntimeReport report = training.runtime->report();
    return report.compilations + report.disk_cache_hits;
  };
  training.step(0);
  training.step(1);
  const int64_t after_two = programs();
  for (int64_t i = 2; i < 1000; ++i) training.step(i % 20);
  EXPECT_EQ(programs(), after_two);
}

TEST(XlaStrategy, WantsTheDeviceXla) {
  EXPECT_THAT([] { levin::make_strategy("xla", {}); },
              ::testing::ThrowsMessage<levin::Error>(::testing::HasSubstr("strategy.xla")));
}

}  // namespace
