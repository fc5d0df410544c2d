// The place of a stream in a checkpoint, from which the same ranks or others resume.

#include <ATen/ops/empty.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/data/loading/streams/stream_loader.h"

namespace levin::detail {

State StreamLoader::state_dict() const {
  const at::Tensor places =
      at::empty({std::ssize(places_), 2}, at::TensorOptions(at::kLong).device(at::kCPU));
  auto* word = places.mutable_data_ptr<int64_t>();
  for (const StreamLane::Place& place : places_) {
    *word++ = place.shard;
    *word++ = place.sample;
  }
  State state;
  state.set("epoch", epoch_)
      .set("seed", static_cast<int64_t>(seed_))
      .set("batches", batches_)
      .set("rank", slice_.rank)
      .set("world_size", slice_.world_size)
      .set("batch_size", options().batch_size)
      .set("num_shards", num_shards_)
      .set("shuffle_buffer_size", part_of(slice_, {}).shuffle_buffer_size)
      .set("turn", static_cast<int64_t>(turn_))
      .set("places", places);
  if (read_before_ != nullptr) state.set("read_before", read_before_->state_dict());
  return state;
}

namespace {

void check_same(const char* what, int64_t saved, int64_t here) {
  LEVIN_CHECK(saved == here, "data.loader.state",
              "a state within an epoch needs the same settings: {} was {} and is {} here; use the "
              "saved value",
              what, saved, here);
}

}  // namespace

void StreamLoader::check_same_shards(const State& state) const {
  check_same("the number of shards", state.integer("num_shards"), num_shards_);
  check_same("shuffle_buffer_size (0: no shuffle)", state.integer("shuffle_buffer_size"),
             part_of(slice_, {}).shuffle_buffer_size);
}

void StreamLoader::check_same_reading(const State& state) const {
  const auto same = check_same;
  same("the number of ranks", state.integer("world_size"), slice_.world_size);
  if (state.contains("batch_size")) {
    same("the batch size", state.integer("batch_size"), options().batch_size);
  }
  check_same_shards(state);
  const at::Tensor& places = state.tensor("places");
  const bool pairs = places.dim() == 2 && places.size(1) == 2 && places.scalar_type() == at::kLong;
  const auto lanes = lanes_of(slice_, state.contains("read_before"));
  same("the number of shards open at a time", pairs ? places.size(0) : -1, std::ssize(lanes));
  const at::Tensor words = places.contiguous();
  const auto* word = words.const_data_ptr<int64_t>();
  bool valid = state.integer("turn") >= 0 && state.integer("turn") < std::ssize(lanes);
  for (const auto& shards : lanes) {
    valid = valid && word[0] >= 0 && word[0] <= std::ssize(shards) && word[1] >= 0;
    word += 2;
  }
  LEVIN_CHECK(valid, "data.loader.state",
              "got positions outside of the shards, wanted positions within them");
}

// Loads the positions of another number of ranks: the rest of the epoch is split by sample over the
// present ranks, and batches are counted as if these had read all.
void StreamLoader::load_merged(const State& state) {
  check_same_shards(state);
  LEVIN_CHECK(state.integer("epoch") >= 0 && state.integer("samples") >= 0, "data.loader.state",
              "got epoch {} and {} samples, wanted a position within an epoch",
              state.integer("epoch"), state.integer("samples"));
  auto before = std::make_shared<const ReadBefore>(state.child("read_before"), num_shards_);
  seed_ = static_cast<uint64_t>(state.integer("seed"));
  jump(state.integer("epoch"));
  const int64_t each = options().batch_size * slice_.world_size;
  const std::optional<int64_t> all = size(), left = batches_left(before);
  batches_ = all ? *all - *left : (state.integer("samples") + each - 1) / each;
  batches_ = std::max<int64_t>(batches_, 1);
  start_ = batches_;
  read_before_ = std::move(before);
  places_.assign(lanes_of(slice_, true).size(), {});
}

void StreamLoader::load_state_dict(const State& state) {
  if (!state.contains("places") && state.contains("read_before")) return load_merged(state);
  const int64_t epoch = state.integer("epoch");
  const int64_t batches = state.integer("batches");
  const auto seed = static_cast<uint64_t>(state.integer("seed"));
  LEVIN_CHECK(epoch >= 0 && batches >= 0, "data.loader.state",
              "got epoch {} and {} batches, wanted a position within an epoch", epoch, batches);
  if (batches > 0) {
    check_same_reading(state);
    // Another rank's state tells the epoch of all ranks, but not this rank's position.
    const bool own = state.integer("rank") == slice_.rank;
    if (!own && epoch == epoch_ && seed == seed_ && batches_ > 0) return;
    LEVIN_CHECK(own, "data.loader.state",
                "the state is of rank {} and lies within an epoch; load each rank's own state",
                state.integer("rank"));
  }
  ReadBeforePtr before;
  if (batches > 0 && state.contains("read_before")) {
    before = std::make_shared<const ReadBefore>(state.child("read_before"), num_shards_);
  }
  seed_ = seed;
  jump(epoch);
  if (batches == 0) return;
  read_before_ = std::move(before);
  places_.assign(lanes_of(slice_, read_before_ != nullptr).size(), {});
  const at::Tensor words = state.tensor("places").contiguous();
  const auto* word = words.const_data_ptr<int64_t>();
  for (StreamLane::Place& place : places_) {
    place = {.shard = word[0], .sample = word[1]};
    word += 2;
  }
  turn_ = static_cast<size_t>(state.integer("turn"));
  batches_ = start_ = batches;
}

}  // namespace levin::detail
