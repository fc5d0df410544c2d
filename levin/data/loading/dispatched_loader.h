#pragma once
// dispatched: a loader whose data rank 0 alone reads and hands out to all ranks.
// Accelerate's DataLoaderDispatcher; made by the engine for dispatch_batches.
//
//   DataLoader loader = dispatched(loader_of_the_data, world, /*even=*/true);

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/data/loader.h"

namespace levin {

/// Makes a loader whose batches rank 0 reads for all ranks. All ranks call it, and then next() and
/// at_end() equally often. Rank 0 reads batches of batch_size * world_size samples, the others
/// never touch their data set; sample i of such a batch goes to rank i % world_size, as
/// distributed_sampler deals them out, so that every rank gets the batches it would read itself.
/// even (training): a short last batch is filled up with samples from the epoch's start
/// (Uneven::kPad); else no sample is repeated and the last batch of a rank may be a sample shorter,
/// or missing. A stream is read with open_shards = 1, and batches that it makes itself are split
/// over the ranks. An error in reading is thrown on every rank, and all ranks keep their place.
/// Throws Error "data.loader.dispatch" for a batch without samples, and for one of fewer than there
/// are ranks in the middle of an evaluation.
LEVIN_API DataLoader dispatched(const DataLoader& loader, comm::ProcessGroup group, bool even);

}  // namespace levin
