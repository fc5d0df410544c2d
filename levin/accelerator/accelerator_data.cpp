// The place of a user's own loop in its data, and the results of evaluation put together over the
// ranks.

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "levin/accelerator/accelerator.h"
#include "levin/accelerator/engine/engine.h"
#include "levin/base/check.h"

namespace levin {

PreparedLoader Accelerator::skip_first_batches(PreparedLoader loader, int64_t num_batches) {
  LEVIN_CHECK(num_batches >= 0, "accelerator.skip", "got {} batches to skip, wanted 0 or more",
              num_batches);
  DataLoader& inner = loader.loader();
  if (num_batches < inner.batches_done()) {
    // Further back in this epoch; where it has ended, in the next.
    inner.set_epoch(inner.epoch() + (inner.at_end() ? 1 : 0));
  }
  const bool is_there = num_batches == inner.batches_done();
  if (!is_there && inner.dataset() != nullptr) {  // nothing need be read
    LEVIN_CHECK(num_batches <= inner.size(), "accelerator.skip",
                "got {} batches to skip, but the epoch has {}; skip fewer", num_batches,
                inner.size());
    State state = inner.state_dict();
    const int64_t samples =
        num_batches * inner.options().batch_size * engine_->strategy_->slice().world_size;
    inner.load_state_dict(state.set("samples", std::min(samples, state.integer("size"))));
    return loader;
  }
  Batch batch;
  while (inner.batches_done() < num_batches) {
    const int64_t done = inner.batches_done();
    LEVIN_CHECK(inner.next(batch), "accelerator.skip",
                "got {} batches to skip, but the stream has {}; skip fewer", num_batches, done);
  }
  inner.load_state_dict(inner.state_dict());  // stands there, to go on
  return loader;
}

at::Tensor Accelerator::gather_for_metrics(const at::Tensor& rows_of_batch) {
  LEVIN_CHECK(rows_of_batch.dim() > 0, "accelerator.gather",
              "got a scalar, wanted a tensor with a row for each sample of the batch");
  const auto loop = engine_->in_use_->current();
  const int64_t added = loop == nullptr ? 0 : loop->added();
  const at::Tensor value =
      added == 0 ? rows_of_batch
                 : rows_of_batch.narrow(0, 0, std::max<int64_t>(rows_of_batch.size(0) - added, 0));
  const int64_t repeated = loop == nullptr ? 0 : loop->padding();
  const auto without_repeated = [repeated](const at::Tensor& all) {
    return all.narrow(0, 0, std::max<int64_t>(all.size(0) - repeated, 0));
  };
  if (num_processes() == 1) return repeated == 0 ? value : without_repeated(value);
  const at::Tensor counts = gather(at::full({1}, value.size(0), at::kLong));
  const int64_t most = counts.max().item<int64_t>();
  std::vector<int64_t> sizes = value.sizes().vec();
  sizes.front() = most;
  const at::Tensor padded = at::zeros(sizes, value.options());
  padded.narrow(0, 0, value.size(0)).copy_(value);
  sizes.insert(sizes.begin(), num_processes());
  // Sample k of rank r is number k * world_size + r of the batches together.
  const at::Tensor rows = gather(padded).view(sizes).transpose(0, 1);
  const at::Tensor is_there = at::arange(most).unsqueeze(1).lt(counts.unsqueeze(0));
  return without_repeated(rows.index({is_there.to(value.device())}));
}

}  // namespace levin
