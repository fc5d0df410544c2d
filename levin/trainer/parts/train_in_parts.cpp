// Automatic gradient accumulation: a batch that does not fit into memory is trained on in parts.

#include <torch/nn/module.h>

#include <limits>

#include "levin/base/check.h"
#include "levin/trainer/parts/part_logs.h"
#include "levin/trainer/run.h"

namespace levin::detail {

// The parts of a batch are an accumulation window. How many there are is known with the last one.
at::Tensor Run::train_in_parts(const Batch& batch, int64_t index) {
  constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();
  part_sizes_->begin_batch(batch);
  const int64_t samples = part_sizes_->samples();
  const int64_t own = batch.size();
  const int64_t real = samples_;
  PartLogs logs(log_.train_values());
  at::Tensor mean;
  int64_t parts = 0;
  for (int64_t done = 0; done < samples || parts == 0;) {
    const int64_t size = part_sizes_->next(samples - done);
    const int64_t end = done + size;
    const bool is_last = end >= samples;
    // A rank with a smaller batch has smaller parts, some of them without a sample.
    const int64_t from = own * done / std::max<int64_t>(samples, 1);
    const int64_t length = own * end / std::max<int64_t>(samples, 1) - from;
    const double divisor =
        static_cast<double>(own) / static_cast<double>(std::max<int64_t>(length, 1));
    ++parts;
    const WindowScope window(
        engine_.stepping(),
        {.window_size = is_last ? parts : kUnknown,
         .may_weigh = true,
         .divisor = is_last && parts == 1 ? std::nullopt : std::optional(divisor)});
    engine_.note_batch_size(length);
    const int64_t counted = std::clamp<int64_t>(real - from, 0, length);
    begin_samples(counted);
    logs.begin_part(counted);
    part_sizes_->begin_part();
    const at::Tensor loss =
        length > 0 ? take_step(batch.narrow(from, length), index) : take_step(Batch(), index);
    part_sizes_->end_part(size);
    done = end;
    if (!loss.defined()) continue;
    const at::NoGradGuard no_grad;
    const at::Tensor share = parts == 1 && is_last ? loss.detach() : loss.detach() / divisor;
    mean = mean.defined() ? mean + share : share;
  }
  part_sizes_->end_batch();
  begin_samples(real);
  logs.finish();
  return mean;
}

}  // namespace levin::detail
