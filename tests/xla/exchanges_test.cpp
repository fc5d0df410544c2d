// Exchanges between replicas as they are lowered, on replicas of one device and of two.
#include <gmock/gmock.h>

#include "levin/comm/operators.h"
#include "levin/graph/record/trace.h"
#include "levin/xla/stablehlo/program.h"
#include "tests/xla/plugins.h"

namespace {

using levin::ReduceOp;
using levin::comm::ProcessGroup;

class Exchanges : public levin::test::OnCpuDevices {
 protected:
  /// What each of two replicas of `num_partitions` devices gets back, the first device's.
  std::vector<at::Tensor> run(const std::function<at::Tensor(const at::Tensor&)>& function,
                              const std::vector<at::Tensor>& values, int64_t num_partitions) {
    const auto traced = levin::trace(function, {values[0]});
    const int64_t count = 2 * num_partitions;
    const auto program = levin::xla::lower(
        traced.graph(), {.num_replicas = 2,
                         .num_partitions = num_partitions,
                         .split_dim = [](const levin::graph::Node&) { return 0; }});
    EXPECT_EQ(program.num_replicas, 2);
    const auto& client = devices(count);
    const auto executable = client.compile(
        program.text, {.num_replicas = 2,
                       .num_partitions = num_partitions,
                       .use_spmd_partitioning = num_partitions > 1,
                       .device_ids = num_partitions > 1 ? std::vector<int64_t>{0, 1, 2, 3}
                                                        : std::vector<int64_t>{}});
    std::vector<levin::xla::pjrt::Buffer> given;
    for (int64_t device = 0; device < count; ++device) {
      const at::Tensor& value = values[static_cast<size_t>(device / num_partitions)];
      const auto parts = value.chunk(num_partitions);
      given.push_back(
          client.upload(parts[static_cast<size_t>(device % num_partitions)].contiguous(), device));
    }
    std::vector<const levin::xla::pjrt::Buffer*> arguments;
    for (const auto& buffer : given) arguments.push_back(&buffer);
    const auto outputs = levin::test::run(executable, arguments);
    const size_t place = static_cast<size_t>(num_partitions) * program.outputs.size();
    return {outputs[0].download(), outputs[place].download()};
  }
};

at::Tensor averaged(const at::Tensor& x) {
  const at::Tensor twice = x * 2;
  levin::comm::call_all_reduce({twice}, ProcessGroup(), ReduceOp::kMean);
  return twice;
}

TEST_F(Exchanges, AveragesOverReplicas) {
  const at::Tensor a = torch::randn({4, 3}), b = torch::randn({4, 3});
  for (const int64_t partitions : {1, 2}) {
    for (const at::Tensor& got : run(averaged, {a, b}, partitions)) {
      EXPECT_TRUE(torch::allclose(got, a + b)) << partitions << " devices each";
    }
  }
}

/// As of a loss over a batch that lies over the devices of each.
TEST_F(Exchanges, AveragesWhatEachReplicaSummedOverItsDevices) {
  const at::Tensor a = torch::randn({4, 3}), b = torch::randn({4, 3});
  const auto total = [](const at::Tensor& x) {
    const at::Tensor sum = x.sum(0);
    levin::comm::call_all_reduce({sum}, ProcessGroup(), ReduceOp::kSum);
    return sum;
  };
  for (const at::Tensor& got : run(total, {a, b}, 2)) {
    EXPECT_TRUE(torch::allclose(got, (a + b).sum(0), 1e-5, 1e-5));
  }
}

TEST_F(Exchanges, BroadcastsFromAReplica) {
  const at::Tensor some = torch::tensor({1.5, -2.0, 3e30, -0.25}), others = torch::rand(4);
  for (const int64_t root : {0, 1}) {
    const auto from_root = [root](const at::Tensor& x) {
      const at::Tensor y = x.clone();
      levin::comm::call_broadcast({y}, ProcessGroup(), root);
      return y;
    };
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong, at::kBool}) {
      const std::vector<at::Tensor> values = {some.clamp(-1e9, 1e9).to(type), others.to(type)};
      for (const int64_t partitions : {1, 2}) {
        for (const at::Tensor& got : run(from_root, values, partitions)) {
          EXPECT_TRUE(torch::equal(got, values[static_cast<size_t>(root)]))
              << at::toString(type) << " from " << root << ", " << partitions << " devices each";
        }
      }
    }
  }
}

}  // namespace
