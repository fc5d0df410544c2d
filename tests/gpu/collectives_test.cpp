// 4: collectives of the card's tensors: NCCL of one rank, and what two ranks on one card get.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/accelerator/accelerator.h"
#include "levin/comm/file_store/file_store.h"
#include "levin/comm/nccl/nccl.h"
#include "levin/comm/shm/backend.h"
#include "tests/gpu/device.h"
#include "tests/gpu/staged_backend.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace levin::test::gpu {
namespace collectives_test {
namespace {

using comm::ProcessGroup;
using comm::Return;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Tensors = std::vector<at::Tensor>;

at::Tensor numbers(int64_t rank = 0, int64_t count = 1000) {
  return torch::arange(count, at::kFloat).add(static_cast<double>(rank)).to(device());
}

std::string wrong(const std::string& what, const at::Tensor& got, const at::Tensor& wanted) {
  if (at::equal(got.cpu(), wanted.cpu())) return "";
  return what + " gave " + c10::str(got.flatten().slice(0, 0, 4).cpu()) + "; ";
}

class Gpu4Collectives : public OnGpu {};

TEST_F(Gpu4Collectives, AllOfOneRankLeaveOrCopyItsTensors) {
  if (!is_dry_run() && !comm::has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  const Scratch scratch;
  const auto store = c10::make_intrusive<comm::FileStore>(scratch / "store", 1);
  const std::chrono::milliseconds timeout = std::chrono::seconds(60);
  const auto backend = is_dry_run() ? comm::make_shm_backend(store, 0, 1, timeout)
                                    : comm::make_nccl_backend(store, 0, 1, timeout);
  const at::Tensor wanted = numbers();
  Tensors data = {numbers()}, pair = {numbers(), numbers(1)};
  backend->allreduce(data, {})->wait();
  EXPECT_EQ(wrong("allreduce", data[0], wanted), "");
  backend->allreduce_coalesced(pair, {})->wait();
  EXPECT_EQ(wrong("allreduce_coalesced", pair[1], numbers(1)), "");
  backend->broadcast(data, {})->wait();
  EXPECT_EQ(wrong("broadcast", data[0], wanted), "");
  backend->reduce(data, {})->wait();
  EXPECT_EQ(wrong("reduce", data[0], wanted), "");
  at::Tensor whole = torch::zeros_like(wanted), part = numbers();
  backend->_allgather_base(whole, part, {})->wait();
  EXPECT_EQ(wrong("_allgather_base", whole, wanted), "");
  std::vector<Tensors> parts = {{torch::zeros_like(wanted)}};
  backend->allgather(parts, data, {})->wait();
  EXPECT_EQ(wrong("allgather", parts[0][0], wanted), "");
  at::Tensor own = torch::zeros_like(wanted);
  backend->_reduce_scatter_base(own, part, {})->wait();
  EXPECT_EQ(wrong("_reduce_scatter_base", own, wanted), "");
  Tensors owns = {torch::zeros_like(wanted)};
  parts = {{numbers()}};
  backend->reduce_scatter(owns, parts, {})->wait();
  EXPECT_EQ(wrong("reduce_scatter", owns[0], wanted), "");
  parts = {{torch::zeros_like(wanted)}};
  backend->gather(parts, data, {})->wait();
  EXPECT_EQ(wrong("gather", parts[0][0], wanted), "");
  owns = {torch::zeros_like(wanted)};
  parts = {{numbers()}};
  backend->scatter(owns, parts, {})->wait();
  EXPECT_EQ(wrong("scatter", owns[0], wanted), "");
  std::vector<int64_t> all = {1000};
  own = torch::zeros_like(wanted);
  backend->alltoall_base(own, part, all, all, {})->wait();
  EXPECT_EQ(wrong("alltoall_base", own, wanted), "");
  backend->barrier({})->wait();
  synchronize();
}

TEST_F(Gpu4Collectives, OfAGroupAloneCopyAndReturn) {
  ProcessGroup alone;
  at::Tensor data = numbers();
  alone.all_reduce(data, ReduceOp::kMean);
  alone.broadcast(data, 0);
  EXPECT_EQ(wrong("all_reduce", data, numbers()), "");
  const at::Tensor whole = torch::zeros({1000}, device());
  alone.all_gather(whole, data);
  EXPECT_EQ(wrong("all_gather", whole, data), "");
  alone.reduce_scatter(data, whole.add(1), ReduceOp::kSum);
  EXPECT_EQ(wrong("reduce_scatter", data, whole.add(1)), "");
  EXPECT_EQ(alone.allocate(10, at::kFloat, device()).device(), device());
}

/// The calls of a group, each held to what arithmetic says; "" for all well.
std::string all_collectives(ProcessGroup group) {
  const int64_t rank = group.rank(), size = group.size();
  Tensors parts;
  at::Tensor sum = torch::zeros({1000}, device());
  for (int64_t r = 0; r < size; ++r) {
    parts.push_back(numbers(r));
    sum += numbers(r);
  }
  std::string all;
  at::Tensor data = numbers(rank);
  group.all_reduce(data, ReduceOp::kSum, Return::kAsync).wait();
  all += wrong("all_reduce", data, sum);
  const Tensors pair = {numbers(rank), numbers(rank + 1)};
  group.all_reduce(pair, ReduceOp::kSum);
  all += wrong("all_reduce of two", pair[1], sum + static_cast<double>(size));
  const at::Tensor whole = torch::empty({size * 1000}, device());
  group.all_gather(whole, numbers(rank));
  all += wrong("all_gather", whole, torch::cat(parts));
  const at::Tensor part = torch::empty({1000}, device());
  group.reduce_scatter(part, whole, ReduceOp::kMean);
  all += wrong("reduce_scatter", part, numbers(rank));
  std::vector<int64_t> counts(static_cast<size_t>(size), 400);
  counts[0] = 0;
  const at::Tensor uneven = torch::cat(parts).slice(0, 0, 400 * (size - 1));
  const at::Tensor theirs = uneven.split_with_sizes(counts)[static_cast<size_t>(rank)];
  const at::Tensor gathered = torch::empty_like(uneven);
  group.all_gather(gathered, theirs.clone(), counts);
  all += wrong("uneven all_gather", gathered, uneven);
  // Rank r gives its r-th part of 500 elements to each.
  const at::Tensor exchanged = torch::empty({size * 500}, device());
  const std::vector<int64_t> halves(static_cast<size_t>(size), 500);
  group.all_to_all(exchanged, numbers(rank, size * 500), halves, halves);
  Tensors given;
  for (int64_t r = 0; r < size; ++r) {
    given.push_back(numbers(r, size * 500).slice(0, rank * 500, (rank + 1) * 500));
  }
  all += wrong("all_to_all", exchanged, torch::cat(given));
  at::Tensor from_last = numbers(rank);
  group.broadcast(from_last, size - 1);
  all += wrong("broadcast", from_last, numbers(size - 1));
  at::Tensor on_cpu = numbers(rank).cpu();  // goes beside them
  group.all_reduce(on_cpu, ReduceOp::kSum);
  return all + wrong("all_reduce on the CPU", on_cpu, sum);
}

/// A rank of two on one card, over NCCL.
TEST_F(Gpu4Collectives, DISABLED_RankOfNccl) {
  say_of([] {
    auto group = ProcessGroup::connect(
        comm::read_environment(), {.on_gpu = !is_dry_run(), .timeout = std::chrono::seconds(60)});
    return all_collectives(group);
  });
}

TEST_F(Gpu4Collectives, TwoRanksOnOneCardComputeOrAreToldByNccl) {
  if (!is_dry_run() && !comm::has_nccl()) GTEST_SKIP() << "this build has no NCCL";
  const auto words =
      run_program(2, "Gpu4Collectives.DISABLED_RankOfNccl", {{"NCCL_DEBUG", "WARN"}});
  // The rank whose call fails first may end before the other has asked.
  EXPECT_THAT(words, Each(AnyOf(std::string(""), StartsWith("comm."))));
  if (words != std::vector<std::string>{"", ""}) {
    EXPECT_FALSE(is_dry_run()) << words[0] << words[1];
    RecordProperty("nccl", words[0] + words[1]);
    std::fprintf(stderr, "two ranks on one card over NCCL: %s\n", words[0].c_str());
  }
}

TEST_F(Gpu4Collectives, DISABLED_RankOverTheHost) {
  say_of([]() -> std::string {
    auto group = connect(std::getenv("LEVIN_GPU_TESTS_BACKEND"));
    at::Tensor there = is_dry_run() ? torch::empty({4}, at::kMeta) : numbers(0, 4);
    const std::string wanted = "comm.tensor: got a Strided tensor on " + there.device().str() +
                               ", wanted a dense one on the CPU; use nccl for GPUs";
    const std::string told = told_by([&] { group.all_reduce(there, ReduceOp::kSum); });
    return told == wanted ? "" : told;
  });
}

/// Backends for CPUs do not take the card's tensors by way of the host: they say so.
TEST_F(Gpu4Collectives, BackendsForCpusRefuseTheCardsTensors) {
  for (const char* backend : {"shm", "gloo"}) {
    EXPECT_THAT(run_program(2, "Gpu4Collectives.DISABLED_RankOverTheHost",
                            {{"LEVIN_GPU_TESTS_BACKEND", backend}}),
                Each(""))
        << backend;
  }
}

TEST_F(Gpu4Collectives, DISABLED_RankThatStages) {
  say_of([] { return all_collectives(is_dry_run() ? connect("shm") : staged(connect("shm"))); });
}

/// What the tests of sharded strategies stand on.
TEST_F(Gpu4Collectives, StagedOverTheHostDoWhatThoseOfCpusDo) {
  EXPECT_THAT(run_program(2, "Gpu4Collectives.DISABLED_RankThatStages"), Each(""));
}

TEST_F(Gpu4Collectives, DISABLED_RankOfAnAccelerator) {
  say_of([] {
    return told_by([] {
      // The other one does not come.
      Accelerator accelerator(
          {.accelerator = gpu::accelerator(), .engine = {.comm = {.connect_timeout_s = 5}}});
    });
  });
}

TEST_F(Gpu4Collectives, AnAcceleratorWantsACardForEachProcess) {
  LEVIN_NEEDS_A_CARD("number of cards");
  const auto cards = static_cast<int64_t>(torch::cuda::device_count());
  if (cards > 1) GTEST_SKIP() << "there are " << cards << " cards";
  const auto words = run_program(2, "Gpu4Collectives.DISABLED_RankOfAnAccelerator");
  EXPECT_THAT(words[1],
              StartsWith("accelerator.device: got process 1 of this machine, but 1 CUDA devices; "
                         "every process needs its own, so set --devices 1, or --accelerator cpu"));
  EXPECT_THAT(words[0], HasSubstr("comm."));  // who waited for it says so
}

}  // namespace
}  // namespace collectives_test
}  // namespace levin::test::gpu
