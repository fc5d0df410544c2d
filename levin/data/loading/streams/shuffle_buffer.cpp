#include "levin/data/loading/streams/shuffle_buffer.h"

#include <utility>

namespace levin::detail {

ShuffleBuffer::ShuffleBuffer(std::unique_ptr<SampleStream> stream, int64_t capacity, uint64_t seed)
    : stream_(std::move(stream)), capacity_(static_cast<size_t>(capacity)), random_(seed) {}

bool ShuffleBuffer::next(data::Sample& sample) {
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

}  // namespace levin::detail
