// The steps of a rank that may run out of memory alone: nothing in them waits for other ranks.

#include <torch/nn/module.h>

#include <exception>

#include "levin/accelerator/stepping/out_of_memory.h"
#include "levin/base/check.h"
#include "levin/trainer/run.h"

namespace levin::detail {

bool Run::fits_alone(DataLoader training, std::shared_ptr<DataModule> data, int64_t steps) {
  const Active active(active_);
  bool fits = true;
  try {
    set_up(std::move(data), "");
    prepare_fit(std::move(training), {});
    call(&Module::on_fit_start, &Callback::on_fit_start);
    std::exception_ptr failure;
    try {
      take_steps_alone(steps);
    } catch (const std::exception& error) {
      fits = false;
      if (!is_out_of_memory(error)) failure = std::current_exception();
    }
    engine_.all_or_throw([&] {
      if (failure) std::rethrow_exception(failure);
    });
    fits = !engine_.world().any(!fits);
    call(&Module::on_fit_end, &Callback::on_fit_end);
    tear_down();
  } catch (const std::exception& error) {
    report(error);
    throw;
  }
  return fits;
}

// Gradients are neither exchanged nor clipped, and batch norm is of this rank's samples.
void Run::take_steps_alone(int64_t steps) {
  log_.collect_in(&log_.train_values());
  module_->on_train_start();
  module_->on_train_epoch_start();
  int64_t index = 0;
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t part = 0; part < limits_.accumulate; ++part, ++index) {
      Batch batch;
      if (!train_loader_->next(batch)) {
        index = 0;
        LEVIN_CHECK(train_loader_->next(batch), "trainer.dataloader",
                    "the training loader has no batch; give it data");
      }
      batch = to_device(std::move(batch));
      log_.begin_batch(log_.train_values(), batch.size());
      at::Tensor loss;
      {
        const ForwardGuards guards = engine_.evaluation_guards();
        loss = module_->training_step(batch, index);
      }
      if (loss.defined()) engine_.strategy().backward(loss, /*synchronize=*/false);
      engine_.placement().end_batch();
    }
    for (const PreparedOptimizer& optimizer : optimizers_) {
      optimizer.optimizer().step();
      optimizer.optimizer().zero_grad();
    }
  }
  log_.collect_in(nullptr);
}

}  // namespace levin::detail
