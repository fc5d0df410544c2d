// Several processes, each with XLA devices of its own, train as one does. The plugin joins CPUs,
// see tests/xla/joined_plugin.cpp.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/strategy/xla/training.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/joined_plugin.h"
#include "tests/support/replayed.h"
#include "tests/support/world.h"

namespace {

using levin::test::num_replayed;
using levin::test::Training;
using levin::test::XlaCase;
using ::testing::Each;
using ::testing::HasSubstr;
namespace xla = levin::xla;

constexpr int64_t kRanks = 2;
constexpr int64_t kJoinedSteps = 20;

std::shared_ptr<xla::Runtime> open_joined(
    const levin::comm::ProcessGroup& group, int64_t devices,
    std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  return xla::Runtime::open({.plugin = levin::test::joined_plugin(devices),
                             .num_devices = devices,
                             .rank = group.rank(),
                             .world_size = group.size(),
                             .store = group.store("xla"),
                             .timeout = timeout});
}

/// The mean of the ranks' losses.
std::vector<double> losses_of(Training& training, levin::comm::ProcessGroup& group) {
  std::vector<double> losses;
  for (int64_t i = 0; i < kJoinedSteps; ++i) {
    const at::Tensor loss = at::full({1}, training.step(i), at::kDouble);
    group.all_reduce(loss, levin::ReduceOp::kMean);
    losses.push_back(loss.item<double>());
  }
  return losses;
}

struct JoinedCase {
  XlaCase training;
  int64_t devices;
  bool sync_batchnorm = false;
};

void PrintTo(const JoinedCase& c, std::ostream* out) { *out << c.training.name; }

class JoinedProcesses : public ::testing::TestWithParam<JoinedCase> {};

/// ddp on ranks of the CPU, whose buffers are rank 0's too: the losses of each are the same.
TEST_P(JoinedProcesses, TrainAsRanksOfDdp) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const auto words = levin::test::run_world(kRanks, [](int64_t, const auto&) -> std::string {
    levin::comm::ProcessGroup group = levin::test::connect();
    Training plain(GetParam().training, nullptr, group);
    if (GetParam().sync_batchnorm) plain.synced = &group;
    const std::vector<double> wanted = losses_of(plain, group);
    Training joined(GetParam().training, open_joined(group, GetParam().devices), group);
    joined.synced = plain.synced;
    const std::vector<double> got = losses_of(joined, group);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (std::abs(got[i] - wanted[i]) > 1e-5) {
        return fmt::format("step {}: {}, wanted {}", i, got[i], wanted[i]);
      }
    }
    const auto& report = joined.compiled->report();
    if (!report.refusals.empty()) return report.refusals.front();
    if (num_replayed(report) < kJoinedSteps - 4) return fmt::format("{} replayed", report.replayed);
    const auto& device = joined.runtime->report();
    return device.host_fallbacks == 0 ? "" : fmt::format("{} on the host", device.host_fallbacks);
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(
    Table, JoinedProcesses,
    ::testing::Values(JoinedCase{{"MlpAdamW", levin::test::mlp, "adamw"}, 1},
                      JoinedCase{{"MlpOnTwoDevicesEach", levin::test::mlp, "sgd"}, 2},
                      JoinedCase{{"CnnWithBatchNorm", levin::test::cnn, "adam"}, 1},
                      JoinedCase{{"CnnWithSyncBatchNorm", levin::test::cnn, "adam"}, 2, true},
                      JoinedCase{{"GptOnTwoDevicesEach", levin::test::gpt, "adamw"}, 2}),
    [](const auto& info) { return info.param.training.name; });

TEST(JoinedProcesses, OfOtherBatchesSayWhatDiffers) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const auto words = levin::test::run_world(kRanks, [](int64_t rank, const auto&) -> std::string {
    levin::comm::ProcessGroup group = levin::test::connect();
    Training training({"mlp", levin::test::mlp, "sgd"}, open_joined(group, 1), group);
    training.task.inputs = [rank](int64_t step) {
      return levin::test::drawn(step, {24 + 8 * rank, 6});
    };
    training.step(0);
    return "trained";
  });
  EXPECT_THAT(words[0],
              AllOf(HasSubstr("xla.programs: process 1 runs another program"),
                    HasSubstr("it takes x tensor<16x6xf32>, this one x tensor<12x6xf32>")));
  EXPECT_THAT(words[1], HasSubstr("xla.programs: process 0 runs another program"));
}

TEST(JoinedProcesses, SayWhoDoesNotCome) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const auto words = levin::test::run_world(kRanks, [](int64_t rank, const auto&) -> std::string {
    levin::comm::ProcessGroup group = levin::test::connect();
    Training training({"mlp", levin::test::mlp, "sgd"},
                      open_joined(group, 1, std::chrono::seconds(1)), group);
    if (rank == 1) return "";
    training.step(0);
    return "trained";
  });
  EXPECT_THAT(words[0],
              HasSubstr("xla.peers: process 1 did not answer process 0 about the program 0"));
}

/// As rank 0 reads a value that the others do not look at.
TEST(JoinedProcesses, RunByThemselvesWhatExchangesNothing) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const auto words = levin::test::run_world(kRanks, [](int64_t rank, const auto&) -> std::string {
    levin::comm::ProcessGroup group = levin::test::connect();
    const auto runtime = open_joined(group, 1);
    const at::Tensor x = at::full({3}, rank + 1.0).to(runtime->device());
    const auto own = rank == 0 ? 2.0 : (x * x).sum().item<double>();
    group.barrier();
    return own == (rank == 0 ? 2.0 : 12.0) ? "" : std::to_string(own);
  });
  EXPECT_THAT(words, Each(""));
}

/// What has not been looked at yet would else be computed by the next program.
TEST(JoinedProcesses, KeepWhatOneComputesBetweenStepsOutOfTheSteps) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const auto words = levin::test::run_world(kRanks, [](int64_t rank, const auto&) -> std::string {
    levin::comm::ProcessGroup group = levin::test::connect();
    Training training({"mlp", levin::test::mlp, "sgd"}, open_joined(group, 1), group);
    double norm = 0.0;
    for (int64_t step = 0; step < 3; ++step) {
      at::Tensor own;
      if (rank == 1) own = training.task.module->parameters()[0].detach().norm();
      const levin::Batch batch = levin::BatchPlacement(training.runtime->device(), training.runtime)
                                     .to_device(levin::Batch({{"x", training.inputs(step)}}));
      static_cast<void>(training.step_eagerly(batch["x"]).item<double>());
      if (rank == 1) norm = own.item<double>();
    }
    return rank == 0 || norm > 0.0 ? "" : "no norm";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(JoinedProcesses, WithOtherNumbersOfDevicesAreAnError) {
  LEVIN_NEEDS_CPU_PLUGIN();
  const auto words = levin::test::run_world(kRanks, [](int64_t rank, const auto&) -> std::string {
    levin::comm::ProcessGroup group = levin::test::connect();
    xla::Runtime::open({.plugin = levin::test::joined_plugin(2),
                        .num_devices = 1 + rank,
                        .rank = rank,
                        .world_size = kRanks,
                        .store = group.store("xla")});
    return "opened";
  });
  EXPECT_THAT(words, Each(HasSubstr("set devices to one number on all processes")));
}

}  // namespace
