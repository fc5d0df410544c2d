// Epochs whose batches nobody has counted: a stream's, which end when they end.

#include "levin/base/check.h"
#include "levin/trainer/run.h"

namespace levin::detail {

// A group of batches that the epoch's end cuts short is updated by all the same, so that the end
// must be seen when its last batch is at hand. All ranks see it at the same batch.
void Run::look_for_end(int64_t batches) {
  if (limits_.counted || batches >= limits_.train_batches || !train_loader_->at_end()) return;
  LEVIN_CHECK(batches > 0, "trainer.dataloader", "the stream of training data gave no batch{}",
              accelerator_.rank().world_size == 1 ? ""
                                                  : " to some rank; see IterableDataset's "
                                                    "num_shards, or set dispatch_batches");
  limits_.ended_after = batches;
}

// Losses of an uncounted epoch were divided by the size of a whole group, whether it came or not.
double Run::cut_short() const {
  const int64_t batches = progress_.batch % limits_.accumulate + 1;
  if (limits_.counted || !module_->automatic_optimization) return 1.0;
  return static_cast<double>(limits_.accumulate) / static_cast<double>(batches);
}

}  // namespace levin::detail
