#include "levin/strategy/fsdp/gradients/gradient_ring.h"

#include <algorithm>
#include <utility>

namespace levin::fsdp {
namespace {

/// A part of a buffer that a tensor lies in, which may outlive the ring.
struct Lease {
  at::Tensor memory;
  GradientRing::Count of_buffer;
  GradientRing::Count of_borrower;

  ~Lease() {
    --*of_borrower;
    --*of_buffer;
  }
};

}  // namespace

GradientRing::GradientRing(comm::ProcessGroup group, at::ScalarType type, at::Device device,
                           int64_t numel, size_t num_buffers)
    : buffers_(num_buffers) {
  for (Buffer& buffer : buffers_) buffer.memory = group.allocate(numel, type, device);
}

bool GradientRing::fits(int64_t numel, size_t num_buffers) const {
  return num_buffers <= buffers_.size() && numel <= buffers_.front().memory.numel();
}

std::optional<size_t> GradientRing::find_free() const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (buffers_[i].state == State::kFree && *buffers_[i].num_lent == 0) return i;
  }
  return std::nullopt;
}

std::optional<size_t> GradientRing::take(bool is_sent_next) {
  const auto filling = std::ranges::count(buffers_, State::kFilling, &Buffer::state);
  const auto most = std::max<int64_t>(std::ssize(buffers_) - 1, 1);
  if (!is_sent_next && filling >= most) return std::nullopt;
  std::optional<size_t> free = find_free();
  while (!free && !under_way_.empty()) {
    Buffer& first = buffers_[under_way_.front()];
    under_way_.pop_front();
    std::exchange(first.work, {}).wait();
    first.state = State::kFree;
    free = find_free();
  }
  if (free) buffers_[*free].state = State::kFilling;
  return free;
}

void GradientRing::sent(size_t buffer, comm::Work work) {
  buffers_[buffer].state = State::kSent;
  buffers_[buffer].work = std::move(work);
  under_way_.push_back(buffer);
}

void GradientRing::drain() {
  for (const size_t buffer : std::exchange(under_way_, {})) {
    std::exchange(buffers_[buffer].work, {}).wait();
  }
  for (Buffer& buffer : buffers_) buffer.state = State::kFree;
}

at::DataPtr GradientRing::lend(size_t buffer, int64_t element, const Count& num_lent) {
  const Buffer& from = buffers_[buffer];
  auto* data = static_cast<std::byte*>(from.memory.data_ptr()) +
               element * static_cast<int64_t>(from.memory.element_size());
  ++*from.num_lent;
  ++*num_lent;
  return {data, new Lease{from.memory, from.num_lent, num_lent},
          [](void* lease) { delete static_cast<Lease*>(lease); }, from.memory.device()};
}

}  // namespace levin::fsdp
