#include "levin/data/loading/streams/read_before.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/random.h"

namespace levin::detail {
namespace {

constexpr uint64_t kShardStream = 0x7368617264;  // "shard"
constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
// More than any run has: what lies beyond was not written by one.
constexpr int64_t kMostRanks = 1 << 20;
constexpr int64_t kMostPlaces = 1 << 28;  // shards, each of which all ranks read
constexpr int64_t kLongestPeriod = 1 << 30;

/// Each by each; the same with every C++ library, unlike std::shuffle.
void permute(std::vector<int64_t>& shards, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t left = shards.size(); left > 1; --left) {
    std::swap(shards[left - 1], shards[random() % left]);
  }
}

at::Tensor tensor_of_numbers(const std::vector<int64_t>& numbers) {
  at::Tensor tensor =
      at::empty({std::ssize(numbers)}, at::TensorOptions(at::kLong).device(at::kCPU));
  std::ranges::copy(numbers, tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

std::vector<int64_t> numbers_of(const at::Tensor& tensor, int64_t count) {
  const bool fits = tensor.defined() && tensor.scalar_type() == at::kLong && tensor.dim() == 1 &&
                    tensor.numel() == count;
  LEVIN_CHECK(fits, "data.loader.state",
              "the state lacks the {} numbers that say which samples were read; load another state",
              count);
  const at::Tensor words = tensor.contiguous();
  const auto* word = words.const_data_ptr<int64_t>();
  return {word, word + count};
}

}  // namespace

// Shards that were partly read have different numbers of samples left, so a rank with own shards
// would end before the others, and end the epoch.
bool have_own_shards(int64_t num_shards, int64_t world_size, bool some_read_before) {
  return num_shards % world_size == 0 && !some_read_before;
}

std::vector<std::vector<int64_t>> lanes_of_shards(int64_t num_shards, DataSlice slice,
                                                  bool own_shards, int64_t open_shards) {
  const int64_t first = own_shards ? slice.rank : 0, step = own_shards ? slice.world_size : 1;
  const int64_t count = num_shards / step;
  std::vector<std::vector<int64_t>> lanes(static_cast<size_t>(std::min(count, open_shards)));
  for (int64_t i = 0; i < count; ++i) {
    lanes[static_cast<size_t>(i) % lanes.size()].push_back(first + i * step);
  }
  return lanes;
}

void shuffle_lane(std::vector<int64_t>& shards, uint64_t seed, int64_t epoch, int64_t lane) {
  permute(shards, derive_seed(derive_seed(seed, static_cast<uint64_t>(epoch)), kShardStream,
                              static_cast<uint64_t>(lane)));
}

ReadBefore::ReadBefore(const State& state, int64_t num_shards) {
  int64_t period = 1;
  for (const auto& [number, value] : state.values()) {
    const State& one = state.child(number);
    const int64_t num_ranks = one.integer("num_ranks");
    LEVIN_CHECK(num_ranks > 0 && num_ranks <= kMostRanks && num_shards <= kAll / num_ranks,
                "data.loader.state", "got a state of {} ranks, wanted 1 to {}", num_ranks,
                kMostRanks);
    period = std::lcm(period, num_ranks);
    LEVIN_CHECK(
        period <= kLongestPeriod, "data.loader.state",
        "got states of world sizes that have no common multiple up to {}; load another state",
        kLongestPeriod);
    readings_.push_back({num_ranks, numbers_of(one.tensor("bounds"), num_shards * num_ranks)});
  }
}

bool ReadBefore::has(int64_t shard, int64_t sample) const {
  return std::ranges::any_of(readings_, [&](const Reading& one) {
    const int64_t of = shard * one.num_ranks + (shard + sample) % one.num_ranks;
    return sample < one.bounds[static_cast<size_t>(of)];
  });
}

int64_t ReadBefore::settled_at(int64_t shard) const {
  int64_t last = 0;
  for (const Reading& one : readings_) {
    for (int64_t i = 0; i < one.num_ranks; ++i) {
      const int64_t bound = one.bounds[static_cast<size_t>(shard * one.num_ranks + i)];
      if (bound != kAll) last = std::max(last, bound);
    }
  }
  return last;
}

int64_t ReadBefore::period() const {
  int64_t period = 1;
  for (const Reading& one : readings_) period = std::lcm(period, one.num_ranks);
  return period;
}

State ReadBefore::state_dict() const {
  State state;
  for (size_t i = 0; i < readings_.size(); ++i) {
    State one;
    one.set("num_ranks", readings_[i].num_ranks);
    one.set("bounds", tensor_of_numbers(readings_[i].bounds));
    state.set(fmt::format("{:03}", i), std::move(one));
  }
  return state;
}

void ReadBefore::add(const std::vector<const State*>& ranks) {
  const State& first = *ranks.front();
  const int64_t num_shards = first.integer("num_shards"), num_ranks = std::ssize(ranks);
  const bool are_own = have_own_shards(num_shards, num_ranks, !empty());
  Reading reading{num_ranks, std::vector<int64_t>(static_cast<size_t>(num_shards * num_ranks), 0)};
  for (const State* state : ranks) {
    const int64_t rank = state->integer("rank");
    const at::Tensor& pairs = state->tensor("places");
    const int64_t lanes = pairs.dim() == 2 && pairs.size(1) == 2 ? pairs.size(0) : 0;
    LEVIN_CHECK(lanes > 0 && rank >= 0 && rank < num_ranks, "data.loader.state",
                "got {} positions of rank {} of {}, wanted at least 1 and a rank of the world",
                lanes, rank, num_ranks);
    const std::vector<int64_t> places = numbers_of(pairs.reshape({-1}), 2 * lanes);
    auto shards = lanes_of_shards(num_shards, {rank, num_ranks}, are_own, lanes);
    for (size_t lane = 0; lane < shards.size(); ++lane) {
      if (first.integer("shuffle_buffer_size") > 0) {
        shuffle_lane(shards[lane], static_cast<uint64_t>(first.integer("seed")),
                     first.integer("epoch"), static_cast<int64_t>(lane));
      }
      for (int64_t i = 0; i < std::ssize(shards[lane]) && i <= places[2 * lane]; ++i) {
        const int64_t bound = i < places[2 * lane] ? kAll : places[2 * lane + 1];
        const int64_t shard = shards[lane][static_cast<size_t>(i)];
        auto* bounds = &reading.bounds[static_cast<size_t>(shard * num_ranks)];
        if (are_own) {
          std::fill(bounds, bounds + num_ranks, bound);
        } else {
          bounds[rank] = bound;
        }
      }
    }
  }
  readings_.push_back(std::move(reading));
}

State merged_places(const std::vector<State>& ranks) {
  std::vector<const State*> readers;  // with dispatched batches rank 0 alone
  int64_t samples = 0;
  for (const State& state : ranks) {
    if (!state.contains("places")) continue;
    readers.push_back(&state);
    int64_t own = 0;
    const bool is_count =
        state.integer("batches") >= 0 && state.integer("batch_size") >= 0 &&
        !__builtin_mul_overflow(state.integer("batches"), state.integer("batch_size"), &own) &&
        !__builtin_add_overflow(samples, own, &samples);
    LEVIN_CHECK(is_count, "data.loader.state",
                "got {} batches of {} samples, wanted a position within an epoch",
                state.integer("batches"), state.integer("batch_size"));
  }
  if (readers.empty() || samples == 0) return ranks.front();
  const State& first = *readers.front();
  LEVIN_CHECK(
      std::ssize(readers) == first.integer("world_size"), "data.loader.state",
      "got the positions of {} ranks in a dataset that {} ranks read, wanted those of all ranks",
      readers.size(), first.integer("world_size"));
  const int64_t num_shards = first.integer("num_shards");
  LEVIN_CHECK(num_shards > 0 && num_shards <= kMostPlaces / std::ssize(readers),
              "data.loader.state", "got {} shards read by {} ranks, wanted 1 to {} shards",
              num_shards, readers.size(), kMostPlaces / std::ssize(readers));
  ReadBefore before;
  if (first.contains("read_before")) {
    before = ReadBefore(first.child("read_before"), first.integer("num_shards"));
  }
  before.add(readers);
  State state;
  for (const char* key : {"epoch", "seed", "num_shards", "shuffle_buffer_size"}) {
    state.set(key, first.integer(key));
  }
  state.set("samples", samples).set("read_before", before.state_dict());
  return state;
}

}  // namespace levin::detail
