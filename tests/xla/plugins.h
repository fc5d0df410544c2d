#pragma once
// The plugins that the tests of this room run on, and the programs that they run.

#include <gtest/gtest.h>
#include <torch/types.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "levin/base/error.h"
#include "levin/xla/pjrt/client.h"
#include "tests/support/child_process.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/variable.h"

namespace levin::test {

namespace pjrt = xla::pjrt;

/// Skips without a CPU plugin. Clients are made once a program: making one starts threads.
class OnCpuDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    const auto path = cpu_plugin(why);
    if (!path) GTEST_SKIP() << why;
    path_ = *path;
  }

  const pjrt::Client& devices(int64_t count) {
    static std::map<int64_t, pjrt::Client> clients;
    const auto found = clients.find(count);
    if (found != clients.end()) return found->second;
    const pjrt::ClientOptions options{.num_devices = count};
    return clients.emplace(count, pjrt::Client(pjrt::Plugin(path_), options)).first->second;
  }
  const pjrt::Client& device() { return devices(1); }

  std::string path_;
};

/// f32[n] + f32[n]; the sum takes the place of the first where it is donated.
inline std::string add_text(int64_t n, bool donated = false, const std::string& name = "add") {
  const std::string type = "tensor<" + std::to_string(n) + "xf32>";
  return "module @" + name + " { func.func @main(%a: " + type +
         (donated ? " {tf.aliasing_output = 0 : i32}" : "") + ", %b: " + type + ") -> " + type +
         " { %s = stablehlo.add %a, %b : " + type + " return %s : " + type + " }}";
}

/// f32[4] summed over replicas, and the replica's number.
inline std::string all_reduce_text(int64_t replicas) {
  std::string group;
  for (int64_t i = 0; i < replicas; ++i) group += (i > 0 ? "," : "") + std::to_string(i);
  return R"(module @sum { func.func @main(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<ui32>) {
  %r = "stablehlo.all_reduce"(%a) ({
   ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %z = stablehlo.add %x, %y : tensor<f32>
    stablehlo.return %z : tensor<f32>
  }) {replica_groups = dense<[[)" +
         group + "]]> : tensor<1x" + std::to_string(replicas) +
         R"(xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<4xf32>) -> tensor<4xf32>
  %id = stablehlo.replica_id : tensor<ui32>
  return %r, %id : tensor<4xf32>, tensor<ui32> }})";
}

/// One run with one argument list on one device; waits for nothing.
inline std::vector<pjrt::Buffer> run(const pjrt::Executable& program,
                                     const std::vector<const pjrt::Buffer*>& arguments,
                                     const std::vector<int64_t>& kept = {}) {
  std::vector<pjrt::Buffer> outputs;
  program.execute(arguments, outputs, kept);
  return outputs;
}

}  // namespace levin::test
