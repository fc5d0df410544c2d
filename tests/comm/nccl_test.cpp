// The nccl backend, where levin was built with it and there are GPUs; else only what it says.
#include "levin/comm/nccl/nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "levin/comm/file_store/file_store.h"
#include "tests/support/error_of.h"
#include "tests/support/gpus.h"
#include "tests/support/world.h"

namespace {

using levin::ReduceOp;
using levin::comm::ProcessGroup;
using levin::comm::Return;
using levin::test::run_world;
using ::testing::Each;
using ::testing::StartsWith;

TEST(Nccl, GpusAreAnErrorInABuildWithoutIt) {
  if (levin::comm::has_nccl()) GTEST_SKIP() << "this build has NCCL";
  EXPECT_THAT(
      run_world(2,
                [](int64_t, const auto&) {
                  ProcessGroup::connect(levin::comm::read_environment(), {.on_gpu = true});
                  return "";
                }),
      Each(StartsWith("comm.nccl: got GPUs to connect but this build of levin has no NCCL")));
}

TEST(Nccl, IsAnErrorWithoutAGpu) {
  if (!levin::comm::has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  if (levin::test::num_gpus() > 0) GTEST_SKIP() << "there is a GPU";
  EXPECT_THAT(run_world(2,
                        [](int64_t, const auto&) {
                          ProcessGroup::connect(levin::comm::read_environment(), {.on_gpu = true});
                          return "";
                        }),
              Each(StartsWith("comm.nccl: ")));
}

std::string wrong(const char* what, const at::Tensor& got, const at::Tensor& wanted) {
  if (torch::equal(got.cpu(), wanted)) return "";
  return std::string(what) + " gave " + c10::str(got.flatten().slice(0, 0, 4).cpu());
}

TEST(Nccl, ItsCollectivesDoWhatThoseOfCpusDo) {
  const int64_t size = std::min<int64_t>(levin::test::num_gpus(), 4);
  if (!levin::comm::has_nccl() || size < 2) GTEST_SKIP() << "wants NCCL and 2 GPUs";
  const auto words = run_world(size, [size](int64_t rank, const auto&) {
    const at::Device gpu(at::kCUDA, static_cast<c10::DeviceIndex>(rank));
    auto group = ProcessGroup::connect(levin::comm::read_environment(), {.on_gpu = true});
    const auto of = [](int64_t r) { return torch::arange(1000, at::kFloat).add(r); };
    at::Tensor sum = torch::zeros({1000});
    std::vector<at::Tensor> parts;
    for (int64_t r = 0; r < size; ++r) {
      sum += of(r);
      parts.push_back(of(r));
    }
    at::Tensor data = of(rank).to(gpu);
    auto work = group.all_reduce(data, ReduceOp::kSum, Return::kAsync);
    work.wait();
    std::string all = wrong("all_reduce", data, sum);
    const at::Tensor whole = torch::empty({size * 1000}, gpu);
    group.all_gather(whole, of(rank).to(gpu));
    all += wrong("all_gather", whole, torch::cat(parts));
    const at::Tensor part = torch::empty({1000}, gpu);
    group.reduce_scatter(part, whole, ReduceOp::kMean);
    all += wrong("reduce_scatter", part, of(rank));
    std::vector<int64_t> counts(static_cast<size_t>(size), 400);
    counts[0] = 0;
    counts[1] = 900;
    const at::Tensor uneven = torch::cat(parts).slice(0, 0, 500 + 400 * (size - 1));
    const auto theirs = uneven.split_with_sizes(counts)[static_cast<size_t>(rank)];
    const at::Tensor gathered = torch::empty_like(uneven, gpu);
    group.all_gather(gathered, theirs.to(gpu), counts);
    all += wrong("uneven all_gather", gathered, uneven);
    const at::Tensor reduced = torch::empty_like(theirs, gpu);
    group.reduce_scatter(reduced, gathered, ReduceOp::kSum, counts);
    all += wrong("uneven reduce_scatter", reduced, theirs * size);
    at::Tensor from_last = of(rank).to(gpu);
    group.broadcast(from_last, size - 1);
    all += wrong("broadcast", from_last, of(size - 1));
    // Tensors on the CPU go beside them.
    at::Tensor on_cpu = of(rank);
    group.all_reduce(on_cpu, ReduceOp::kSum);
    return all + wrong("all_reduce on the CPU", on_cpu, sum);
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Nccl, AGroupOfOneGpuLeavesItsTensors) {
  if (!levin::comm::has_nccl() || levin::test::num_gpus() < 1) {
    GTEST_SKIP() << "wants NCCL and a GPU";
  }
  const auto words = levin::test::run_ranks(1, [](int64_t, const std::filesystem::path& folder) {
    const auto store = c10::make_intrusive<levin::comm::FileStore>(folder / "store", 1);
    const auto nccl = levin::comm::make_nccl_backend(store, 0, 1, std::chrono::seconds(60));
    std::vector<at::Tensor> data = {torch::ones({1000}, at::kCUDA)};
    nccl->allreduce(data)->wait();
    return wrong("all_reduce", data[0], torch::ones({1000}));
  });
  EXPECT_THAT(words, Each(""));
}

}  // namespace
