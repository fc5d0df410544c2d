// 2: the Accelerator and the Trainer place batches: from pinned memory, by copies that do not wait, one a tensor.
#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "levin/accelerator/engine/batch_placement.h"
#include "levin/accelerator/engine/engine.h"
#include "levin/graph/record/interposer.h"
#include "tests/gpu/tasks.h"

namespace levin::test::gpu {
namespace placement_test {
namespace {

using ::testing::Each;
using ::testing::IsEmpty;

/// Copies from the CPU to another device, in the thread that looks.
struct CopyCounter final : graph::OperatorHandler {
  struct Copy {
    at::Device to = at::kCPU;
    bool is_pinned = false;
    bool non_blocking = false;
    int64_t bytes = 0;
  };
  std::vector<Copy> copies;

  void call(graph::OperatorCall& call) override {
    if (call.op().schema().name() == "aten::_to_copy") {
      const auto& stack = call.stack();
      const at::Tensor from = stack[0].toTensor();
      const size_t count = call.op().schema().arguments().size();
      const auto argument = [&](const char* name) {
        const auto place = call.op().schema().argumentIndexWithName(name);
        return stack[stack.size() - count + static_cast<size_t>(place.value())];
      };
      const c10::IValue to = argument("device");
      if (from.is_cpu() && to.isDevice() && !to.toDevice().is_cpu()) {
        copies.push_back({.to = to.toDevice(),
                          .is_pinned = !is_dry_run() && from.is_pinned(),
                          .non_blocking = argument("non_blocking").toBool(),
                          .bytes = static_cast<int64_t>(from.nbytes())});
      }
    }
    call.proceed();
  }
};

/// A CPU has no other memory to copy to: its dry run copies to the meta device.
at::Device other_device() { return is_dry_run() ? at::Device(at::kMeta) : device(); }

Batch batch_of_three() {
  return {{"x", torch::randn({8, 6})},
          {"y", torch::zeros({8}, torch::kLong)},
          {"mask", torch::ones({8, 2}, torch::kBool)}};
}

class Gpu2Placement : public OnGpu {};

TEST_F(Gpu2Placement, CopiesEachTensorOnceAndDoesNotWait) {
  const BatchPlacement placement(other_device(), nullptr);
  CopyCounter counter;
  const Batch batch = is_dry_run() ? batch_of_three() : batch_of_three().pin_memory();
  Batch there;
  {
    const graph::HandlerScope scope(counter);
    there = placement.to_device(batch);
  }
  ASSERT_EQ(counter.copies.size(), 3U);
  for (const auto& copy : counter.copies) {
    EXPECT_EQ(copy.to.type(), other_device().type());
    EXPECT_TRUE(copy.non_blocking);
    EXPECT_EQ(copy.is_pinned, !is_dry_run());
  }
  for (const auto& [name, tensor] : there) {
    EXPECT_EQ(tensor.device().type(), other_device().type()) << name;
    if (!is_dry_run()) {
      EXPECT_TRUE(at::equal(tensor.cpu(), batch[name])) << name;
    }
  }
}

TEST_F(Gpu2Placement, CopiesNothingThatIsThere) {
  const BatchPlacement placement(other_device(), nullptr);
  const Batch there = placement.to_device(batch_of_three());
  CopyCounter counter;
  {
    const graph::HandlerScope scope(counter);
    const Batch again = placement.to_device(there);
    EXPECT_TRUE(again["x"].is_same(there["x"]));
  }
  EXPECT_THAT(counter.copies, IsEmpty());
}

/// What a loader of pinned batches hands out, over workers and none.
TEST_F(Gpu2Placement, APreparedLoaderCopiesFromPinnedMemory) {
  for (const int64_t workers : {0, 2}) {
    Accelerator accelerator({.accelerator = gpu::accelerator()});
    const DatasetPtr data = small_run::numbered(40);
    auto [loader] = accelerator.prepare(
        DataLoader(data, {.batch_size = 8, .shuffle = true, .num_workers = workers}));
    CopyCounter counter;
    std::vector<at::Tensor> numbers;
    {
      const graph::HandlerScope scope(counter);
      for (int epoch = 0; epoch < 2; ++epoch) {
        for (const auto& batch : loader) {
          for (const auto& [name, tensor] : batch) EXPECT_EQ(tensor.device(), device()) << name;
          numbers.push_back(batch["number"]);
        }
      }
    }
    const size_t copied = is_dry_run() ? 0 : 2 * 5 * 3;
    EXPECT_EQ(counter.copies.size(), copied) << workers << " workers";
    for (const auto& copy : counter.copies) {
      EXPECT_TRUE(copy.is_pinned && copy.non_blocking) << workers << " workers";
    }
    // A batch's memory is not used again before its copy has ended.
    const at::Tensor all = torch::cat(numbers).cpu();
    for (int epoch = 0; epoch < 2; ++epoch) {
      EXPECT_TRUE(at::equal(std::get<0>(all.slice(0, 40 * epoch, 40 * (epoch + 1)).sort()),
                            torch::arange(40)))
          << workers << " workers";
    }
  }
}

/// Copies that are under way while the loader goes on: large batches, little work, many epochs.
TEST_F(Gpu2Placement, BatchesUnderWayAreNotWrittenOver) {
  const int64_t rows = is_dry_run() ? 64 : 4096;
  const at::Tensor x = torch::arange(8 * rows).unsqueeze(1).expand({-1, 256}).contiguous();
  Accelerator accelerator({.accelerator = gpu::accelerator()});
  auto [loader] = accelerator.prepare(
      DataLoader(off_disk(data::tensors({{"x", x}})), {.batch_size = rows, .num_workers = 2}));
  for (int epoch = 0; epoch < 4; ++epoch) {
    std::vector<at::Tensor> smallest, largest;
    for (const auto& batch : loader) {
      smallest.push_back(batch["x"].amin(1));
      largest.push_back(batch["x"].amax(1));
    }
    EXPECT_TRUE(at::equal(torch::cat(smallest).cpu(), x.select(1, 0))) << "epoch " << epoch;
    EXPECT_TRUE(at::equal(torch::cat(largest).cpu(), x.select(1, 0))) << "epoch " << epoch;
  }
}

struct Watching : TaskModule {
  using TaskModule::TaskModule;
  CopyCounter counter;
  std::optional<graph::HandlerScope> scope;
  int64_t num_pinned = 0, num_batches = 0;

  Batch on_before_batch_transfer(Batch batch) override {
    ++num_batches;
    EXPECT_TRUE(batch["x"].is_cpu());
    if (!is_dry_run() && batch["x"].is_pinned()) ++num_pinned;
    scope.emplace(counter);
    return batch;
  }
  Batch on_after_batch_transfer(Batch batch) override {
    scope.reset();
    return batch;
  }
};

TEST_F(Gpu2Placement, TheTrainerCopiesFromPinnedMemory) {
  const Scratch scratch;
  TrainerOptions options = small_run::quiet(scratch.str());
  options.accelerator = gpu::accelerator();
  options.max_epochs = 2;
  options.enable_checkpointing = false;
  const auto module = std::make_shared<Watching>(built(mlp));
  Trainer trainer(options);
  trainer.fit(module, DataLoader(data_of(module->task),
                                 {.batch_size = kGlobalBatch, .shuffle = true, .num_workers = 2}));
  EXPECT_EQ(module->num_batches, 2 * kSteps);
  EXPECT_THAT(module->devices, Each(device().str()));
  const int64_t copied = is_dry_run() ? 0 : 2 * kSteps;
  EXPECT_EQ(std::ssize(module->counter.copies), copied);
  EXPECT_EQ(module->num_pinned, copied);
  for (const auto& copy : module->counter.copies) EXPECT_TRUE(copy.is_pinned && copy.non_blocking);
}

TEST_F(Gpu2Placement, ModulesAndOptimizersAreOnTheDevice) {
  Accelerator accelerator({.accelerator = gpu::accelerator()});
  EXPECT_EQ(accelerator.device(), device());
  const Task task = built(cnn);
  auto [model, optimizer] = accelerator.prepare(task.module, optim::adamw({.lr = 1e-3}));
  accelerator.backward(task.loss(task.inputs(0).to(device())));
  optimizer.step();
  for (const NamedTensor& tensor : engine_of(accelerator).named_state()) {
    // Fused Adam counts its steps where its parameters are; a learning rate stays on the host.
    if (tensor.tensor.dim() > 0) {
      EXPECT_EQ(tensor.tensor.device(), device()) << tensor.name;
    }
  }
  for (const at::Tensor& parameter : task.module->parameters()) {
    EXPECT_EQ(parameter.grad().device(), device());
  }
}

TEST_F(Gpu2Placement, ALoopWithoutCopiesDoesNotWaitForTheCard) {
  LEVIN_NEEDS_A_CARD("stream to wait for");
  // What is read on the host in a step would be seen as an operator.
  struct Reads final : graph::OperatorHandler {
    std::mutex mutex;
    int64_t count = 0;
    void call(graph::OperatorCall& call) override {
      if (call.op().schema().name() == "aten::_local_scalar_dense") {
        const std::scoped_lock lock(mutex);
        ++count;
      }
      call.proceed();
    }
  } reads;
  const Scratch scratch;
  TrainerOptions options = small_run::quiet(scratch.str());
  options.accelerator = gpu::accelerator();
  options.max_epochs = 1;
  options.log_every_n_steps = 1000;
  options.enable_checkpointing = false;
  const auto module = std::make_shared<TaskModule>(built(gpt));
  Trainer trainer(options);
  {
    const graph::HandlerScope scope(reads);
    trainer.fit(module, DataLoader(data_of(module->task), {.batch_size = kGlobalBatch}));
  }
  // At the epoch's end what was logged is read; in the ten steps nothing is.
  EXPECT_LE(reads.count, 2);
}

}  // namespace
}  // namespace placement_test
}  // namespace levin::test::gpu
