#pragma once
// The card that the tests of this folder compute on, and the CPU in its place.
//
// LEVIN_GPU_TESTS_DEVICE=cpu makes a dry run: each test that can do so makes the same assertions on the CPU,
// which shows that the test itself is right before there is a card. Without it and without a card a test is
// skipped.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/scratch.h"

namespace levin::test::gpu {

inline bool is_dry_run() {
  const char* device = std::getenv("LEVIN_GPU_TESTS_DEVICE");
  return device != nullptr && std::string_view(device) == "cpu";
}
inline at::Device device() {
  return is_dry_run() ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0);
}
/// As --accelerator takes it.
inline std::string accelerator() { return is_dry_run() ? "cpu" : "gpu"; }

/// Until all that was started on the card is done.
inline void synchronize() {
  if (!is_dry_run()) torch::cuda::synchronize();
}

/// Sets the precision of products and the choice of kernels for each test: no TF32, and kernels that give the
/// same bits in each run.
class OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_dry_run() && !torch::cuda::is_available()) {
      GTEST_SKIP() << "no GPU: LibTorch sees none"
                   << "; LEVIN_GPU_TESTS_DEVICE=cpu runs this on the CPU";
    }
    at::globalContext().setAllowTF32CuBLAS(false);
    at::globalContext().setAllowTF32CuDNN(false);
    at::globalContext().setDeterministicCuDNN(true);
    at::globalContext().setBenchmarkCuDNN(false);
    // Attention's and scatter's backward add up in any order else. What has no such kernel only warns.
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(false);
    torch::manual_seed(1);
  }
};

/// For what a CPU has nothing like.
#define LEVIN_NEEDS_A_CARD(what) \
  if (levin::test::gpu::is_dry_run()) GTEST_SKIP() << "dry run: the CPU has no " what

/// Variables of the environment by name.
using Variables = std::map<std::string, std::string>;

/// Runs a disabled test of this program in `size` processes that are the ranks of one run, each with these
/// variables and LEVIN_GPU_TESTS_FOLDER, where it leaves its word (say()). A process that has used CUDA cannot
/// fork ranks that use it too, so that these are started anew. Returns each rank's word, "" for all well, else
/// the end of what it printed.
std::vector<std::string> run_program(int64_t size, const std::string& test,
                                     const Variables& variables = {});

/// In a rank of run_program: the folder that all ranks share.
std::filesystem::path shared_folder();
/// What run_program returns of this rank.
void say(const std::string& word);
/// Says what the body returns, or throws.
void say_of(const std::function<std::string()>& body);

/// One process of the same kind that is killed by SIGKILL as soon as `file` is in the folder. Returns minus the
/// signal that ended it, or its code where it ended before.
int run_and_kill(const std::string& test, const std::filesystem::path& folder,
                 const std::string& file, const Variables& variables = {});

/// Bytes of the card's memory that tensors have now, and that they had at most since the last reset_peak().
int64_t allocated_bytes();
int64_t peak_bytes();
void reset_peak();

/// The two as near as that, relative to the larger of 1 and the wanted one's largest element: "" or by how much
/// not.
std::string off_by(const at::Tensor& got, const at::Tensor& wanted, double tolerance);

}  // namespace levin::test::gpu
