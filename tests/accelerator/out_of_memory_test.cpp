// A step that runs out of memory: which errors count as one, and what is said of the batch and of what helps.
#include "levin/accelerator/stepping/out_of_memory.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <new>
#include <thread>

#include "tests/accelerator/small_nets.h"

namespace out_of_memory_test {
namespace {

using levin::is_out_of_memory;
using levin::memory_hint;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// As a GPU's allocator throws it.
[[noreturn]] void throw_out_of_memory() {
  C10_THROW_ERROR(OutOfMemoryError, "CUDA out of memory. Tried to allocate 2.00 GiB.");
}

template <class Throws>
bool is_one(const Throws& throws) {
  try {
    throws();
  } catch (const std::exception& error) {
    return is_out_of_memory(error);
  }
  ADD_FAILURE() << "nothing was thrown";
  return false;
}

TEST(OutOfMemory, IsKnownByItsTypeOrItsWords) {
  EXPECT_TRUE(is_one(throw_out_of_memory));
  EXPECT_TRUE(is_one([] { throw std::bad_alloc(); }));
  EXPECT_TRUE(is_one([] { TORCH_CHECK(false, "CUDA error: out of memory"); }));
  EXPECT_TRUE(is_one([] { TORCH_CHECK(false, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when"); }));
  // 2^48 floats are more than a process can address.
  EXPECT_TRUE(is_one([] { torch::empty({int64_t{1} << 48}); }));
}

TEST(OutOfMemory, IsNoOtherError) {
  EXPECT_FALSE(is_one([] { TORCH_CHECK(false, "CUDA error: an illegal memory access"); }));
  EXPECT_FALSE(is_one([] { torch::empty({-1}); }));
  EXPECT_EQ(memory_hint(std::runtime_error("broken"), {.batch_size = 8}), "");
}

TEST(OutOfMemory, TheHintNamesTheBatchAndWhatHelps) {
  const std::string hint =
      memory_hint(std::bad_alloc(), {.device = {at::kCUDA, 1}, .batch_size = 64, .accumulated = 2});
  EXPECT_THAT(
      hint,
      StartsWith("accelerator.memory: cuda:1 ran out of memory in a step with a batch_size of "
                 "64; lower batch_size and raise accumulate_grad_batches "
                 "(gradient_accumulation_steps) from 2 by the same factor"));
  EXPECT_THAT(hint, AllOf(HasSubstr("levin::activation_checkpoint"),
                          HasSubstr("--precision bf16-mixed"), HasSubstr("--strategy fsdp")));
}

TEST(OutOfMemory, TheHintLeavesOutWhatIsSetAlready) {
  const std::string hint =
      memory_hint(std::bad_alloc(), {.batch_size = 1, .is_half = true, .divides_parameters = true});
  EXPECT_THAT(hint,
              AllOf(HasSubstr("batch_size of 1;"), HasSubstr("levin::activation_checkpoint")));
  EXPECT_THAT(hint, AllOf(Not(HasSubstr("lower batch_size")), Not(HasSubstr("bf16")),
                          Not(HasSubstr("fsdp"))));
  EXPECT_THAT(memory_hint(std::bad_alloc(), {}),
              StartsWith("accelerator.memory: cpu ran out of memory in a step; lower batch_size"));
}

/// In a thread, where no test catches it.
void end_in_a_step(const std::function<void()>& throws) {
  levin::Accelerator accelerator({.cpu = true});
  levin::DataLoader data(small_nets::dataset(32), {.batch_size = 8});
  auto [loader] = accelerator.prepare(data);
  for ([[maybe_unused]] const auto& batch : loader) std::thread(throws).join();
}

TEST(OutOfMemoryDeathTest, AProgramThatItEndsSaysTheHintBeforeTheError) {
  EXPECT_EXIT(
      end_in_a_step(throw_out_of_memory), ::testing::ExitedWithCode(1),
      "error: accelerator.memory: cpu ran out of memory in a step with a batch_size of 8; .*\n"
      "error: CUDA out of memory. Tried to allocate 2.00 GiB.");
}

TEST(OutOfMemoryDeathTest, AnotherErrorEndsItWithoutTheHint) {
  EXPECT_EXIT(end_in_a_step([] { throw std::runtime_error("broken"); }),
              ::testing::ExitedWithCode(1),
              AllOf(HasSubstr("error: broken"), Not(HasSubstr("accelerator.memory"))));
}

}  // namespace
}  // namespace out_of_memory_test
