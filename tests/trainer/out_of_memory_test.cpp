// A step of a Trainer that runs out of memory: the error passes as it is, and the log names the batch.
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/trainer/small_run.h"

namespace trainer_out_of_memory_test {
namespace {

using namespace small_run;  // NOLINT
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct FullNet : Net {
  std::function<void()> step;  ///< throws
  using Net::training_step;
  at::Tensor training_step(const levin::Batch& batch) override {
    step();
    return Net::training_step(batch);
  }
  void validation_step(const levin::Batch&, int64_t) override { step(); }
};

/// What the log says of a fit, or of a validation, whose step throws.
std::string said_of(const std::function<void()>& step, bool validates = false) {
  const Scratch scratch;
  levin::Trainer trainer(quiet(scratch.str()));
  auto net = std::make_shared<FullNet>();
  net->step = step;
  ::testing::internal::CaptureStderr();
  try {
    if (validates) {
      trainer.validate(net, levin::DataLoader(dataset(20), {.batch_size = 5}));
    } else {
      trainer.fit(net, levin::DataLoader(dataset(32), {.batch_size = 16}));
    }
  } catch (const c10::OutOfMemoryError&) {
    return ::testing::internal::GetCapturedStderr();
  } catch (const std::exception& error) {
    return ::testing::internal::GetCapturedStderr() + error.what();
  }
  return "nothing was thrown";
}

void run_out_of_memory() { C10_THROW_ERROR(OutOfMemoryError, "CUDA out of memory."); }

TEST(TrainerOutOfMemory, NamesTheBatchSizeAndWhatHelps) {
  EXPECT_THAT(
      said_of(run_out_of_memory),
      AllOf(HasSubstr("accelerator.memory: "), HasSubstr("a batch_size of 16; lower batch_size"),
            HasSubstr("accumulate_grad_batches"), HasSubstr("levin::activation_checkpoint"),
            HasSubstr("--precision bf16-mixed"), HasSubstr("--strategy fsdp")));
}

TEST(TrainerOutOfMemory, OfAnEvaluationIsOfItsBatch) {
  EXPECT_THAT(said_of(run_out_of_memory, /*validates=*/true), HasSubstr("a batch_size of 5;"));
}

TEST(TrainerOutOfMemory, OfTheCpuIsKnownByItsWords) {
  EXPECT_THAT(
      said_of([] { torch::empty({int64_t{1} << 48}); }),
      HasSubstr("accelerator.memory: cpu ran out of memory in a step with a batch_size of 16"));
}

TEST(TrainerOutOfMemory, OtherErrorsSayNothingOfIt) {
  EXPECT_THAT(said_of([] { throw std::runtime_error("broken"); }),
              AllOf(HasSubstr("broken"), Not(HasSubstr("accelerator.memory"))));
}

}  // namespace
}  // namespace trainer_out_of_memory_test
