#include "levin/data/loading/streams/stream_lane.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/random.h"
#include "levin/data/loading/worker_thread.h"
#include "levin/data/sample_random.h"

namespace levin::detail {
namespace {

/// A stream in a random order, as far as a buffer of its samples allows; Hugging Face's
/// IterableDataset.shuffle(buffer_size=...).
/// Gives a sample drawn from a buffer and puts the next of the stream in its place. The order is a
/// pure function of stream, capacity and seed, so that standing at a place again means replaying.
class ShuffleBuffer final : public SampleStream {
 public:
  ShuffleBuffer(std::unique_ptr<SampleStream> stream, int64_t capacity, uint64_t seed)
      : stream_(std::move(stream)), capacity_(static_cast<size_t>(capacity)), random_(seed) {}

  bool next(data::Sample& sample) override {
    data::Sample read;
    while (!ended_ && buffer_.size() < capacity_) {
      ended_ = !stream_->next(read);
      if (!ended_) buffer_.push_back(std::move(read));
    }
    if (buffer_.empty()) return false;
    // The remainder, unlike std::uniform_int_distribution, is the same with every C++ library.
    const size_t drawn = random_() % buffer_.size();
    sample = std::exchange(buffer_[drawn], std::move(buffer_.back()));
    buffer_.pop_back();
    return true;
  }

 private:
  std::unique_ptr<SampleStream> stream_;
  size_t capacity_;
  std::mt19937_64 random_;
  std::vector<data::Sample> buffer_;
  bool ended_ = false;
};

/// The next sample that is the rank's, from sample number `sample` of the shard on.
int64_t next_own(const StreamPart& part, int64_t shard, int64_t sample) {
  const int64_t off = (part.offset - shard - sample) % part.stride;
  return sample + (off < 0 ? off + part.stride : off);
}

/// Returns the next of the rank's samples that was not read before; nullopt if there is none.
std::optional<int64_t> next_kept(const StreamPart& part, int64_t shard, int64_t sample) {
  int64_t next = next_own(part, shard, sample);
  if (part.read_before == nullptr) return next;
  const ReadBefore& before = *part.read_before;
  const int64_t settled = std::max(next, before.settled_at(shard)) + part.stride * before.period();
  for (; before.has(shard, next); next += part.stride) {
    if (next > settled) return std::nullopt;
  }
  return next;
}

/// The samples of a shard, each with draws of its own.
class DrawingStream final : public SampleStream {
 public:
  DrawingStream(std::unique_ptr<SampleStream> stream, int64_t shard)
      : stream_(std::move(stream)), shard_(shard) {}

  bool next(data::Sample& sample) override {
    const ItemScope draws(DrawsOf::kSample, shard_, place_++);
    return stream_->next(sample);
  }
  int64_t skip(int64_t count) override {
    const ItemScope draws(DrawsOf::kSample, shard_, place_);
    place_ += count;
    return stream_->skip(count);
  }

 private:
  std::unique_ptr<SampleStream> stream_;
  int64_t shard_;
  int64_t place_ = 0;
};

}  // namespace

int64_t kept_of(const StreamPart& part, int64_t shard, int64_t size) {
  const int64_t first = next_own(part, shard, 0);
  if (part.read_before == nullptr) {
    return std::max<int64_t>(size - first + part.stride - 1, 0) / part.stride;
  }
  int64_t kept = 0;
  for (int64_t sample = first; sample < size; sample += part.stride) {
    kept += part.read_before->has(shard, sample) ? 0 : 1;
  }
  return kept;
}

StreamLane::StreamLane(IterableDatasetPtr dataset, std::vector<int64_t> shards,
                       const StreamPart& part, const DrawContext& context, Place place)
    : dataset_(std::move(dataset)),
      shards_(std::move(shards)),
      part_(part),
      context_(context),
      place_(place) {}

bool StreamLane::read(Batch& batch, Batch reuse) {
  const DrawScope draws(context_, DrawsOf::kBatch, shard_here(), place_.sample);
  std::vector<data::Sample> samples;
  std::vector<int64_t> numbers;
  try {
    data::Sample sample;
    for (int64_t number = 0; std::ssize(samples) < part_.batch_size && next(sample, number);) {
      samples.push_back(std::exchange(sample, {}));
      numbers.push_back(number);
    }
    const int64_t least = part_.drop_last ? part_.batch_size : 1;
    if (std::ssize(samples) < least) return false;
    batch = dataset_->in_batches()
                ? std::move(samples.front())
                : dataset_->collate(std::move(samples), numbers, std::move(reuse));
    return true;
  } catch (const Error& error) {
    if (error.id() == "data.stream.size") throw;
    blame(current_message());
  } catch (...) {
    blame(current_message());
  }
}

void StreamLane::blame(const std::string& message) const {
  const int64_t last = std::ssize(shards_) - 1;  // a collate may fail behind the lane's end
  const int64_t shard = shards_[static_cast<size_t>(std::min(place_.shard, last))];
  LEVIN_FAIL("data.loader.sample", "shard {}, sample {}: {}", shard, place_.sample, message);
}

/// The one that is read next; none at the lane's end.
std::span<const int64_t> StreamLane::shard_here() const {
  const std::span<const int64_t> left =
      std::span(shards_).subspan(static_cast<size_t>(std::min(place_.shard, std::ssize(shards_))));
  return left.first(std::min<size_t>(left.size(), 1));
}

bool StreamLane::next(data::Sample& sample, int64_t& number) {
  while (place_.shard < std::ssize(shards_)) {
    const int64_t shard = shards_[static_cast<size_t>(place_.shard)];
    const std::optional<int64_t> kept = next_kept(part_, shard, place_.sample);
    if (!kept) {  // its rest was read before, whatever its size
      stream_.reset();
      place_ = {.shard = place_.shard + 1};
      continue;
    }
    if (stream_ == nullptr) open();
    const int64_t ahead = *kept - place_.sample;
    const int64_t passed = ahead == 0 ? 0 : stream_->skip(ahead);
    place_.sample += passed;
    if (passed == ahead && stream_->next(sample)) {
      number = place_.sample++;
      return true;
    }
    end_shard();
  }
  return false;
}

void StreamLane::open() {
  const int64_t shard = shards_[static_cast<size_t>(place_.shard)];
  {
    const ItemScope draws(DrawsOf::kShard, shard);
    stream_ = dataset_->open(shard, context_);
  }
  LEVIN_CHECK(
      stream_ != nullptr, "data.stream.open",
      "open() returned a null pointer; return a stream that ends at once for an empty shard");
  stream_ = std::make_unique<DrawingStream>(std::move(stream_), shard);
  if (part_.shuffle_buffer_size > 0) {
    const uint64_t seed = derive_seed(context_.seed, static_cast<uint64_t>(context_.epoch),
                                      static_cast<uint64_t>(shard));
    stream_ = std::make_unique<ShuffleBuffer>(std::move(stream_), part_.shuffle_buffer_size, seed);
  }
  const int64_t there = place_.sample == 0 ? 0 : stream_->skip(place_.sample);
  LEVIN_CHECK(there == place_.sample, "data.stream.size",
              "shard {} ended after {} samples, but {} were read before the save; resume with the "
              "same data",
              shard, there, place_.sample);
}

void StreamLane::end_shard() {
  const int64_t shard = shards_[static_cast<size_t>(place_.shard)];
  const std::optional<int64_t> size = dataset_->shard_size(shard);
  LEVIN_CHECK(!size || *size == place_.sample, "data.stream.size",
              "shard {} ended after {} samples, but its shard_size() is {}", shard, place_.sample,
              size.value_or(0));
  stream_.reset();
  place_ = {.shard = place_.shard + 1};
}

}  // namespace levin::detail
