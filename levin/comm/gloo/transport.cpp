#include "levin/comm/gloo/transport.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "levin/base/check.h"

namespace levin::comm {
namespace {

struct Pending {
  int64_t rank = 0;
  c10::intrusive_ptr<c10d::Work> work;
};

/// gloo tells its troubles apart by words alone.
[[noreturn]] void fail_by_gloo(const Announcement& operation, int64_t rank,
                               std::chrono::milliseconds timeout, std::string_view what) {
  const auto says = [&](std::string_view words) {
    return what.find(words) != std::string_view::npos;
  };
  LEVIN_CHECK(!says("imed out") && !says("imeout"), "comm.timeout",
              "waited {} s in {} for rank {}; see where it is, or raise the timeout",
              std::chrono::duration<double>(timeout).count(), operation.text(), rank);
  LEVIN_FAIL("comm.peer",
             "rank {} is gone, in {} over gloo ({}); look for the rank that ended first", rank,
             operation.text(), what.substr(0, what.find('\n')));
}

}  // namespace

GlooTransport::GlooTransport(c10::intrusive_ptr<c10d::Backend> connection, GlooPart part,
                             std::chrono::milliseconds timeout)
    : connection_(std::move(connection)), part_(std::move(part)), timeout_(timeout) {
  rank_ = std::ranges::find(part_.members, connection_->getRank()) - part_.members.begin();
}

void GlooTransport::exchange(const Announcement& operation, std::span<const Letter> receives,
                             std::span<const Letter> sends, int tag) {
  const std::chrono::milliseconds timeout = timeout_;
  std::vector<Pending> pending;
  int64_t rank = 0;
  const auto start = [&](std::span<const Letter> letters, auto call) {
    for (const Letter& letter : letters) {
      if (letter.rank == rank_ || letter.elements.bytes() == 0) continue;
      rank = letter.rank;
      std::vector<at::Tensor> data = {
          at::from_blob(letter.elements.data, {letter.elements.bytes()}, at::kByte)};
      const auto peer = static_cast<int>(part_.members[static_cast<size_t>(rank)]);
      pending.push_back({rank, (connection_.get()->*call)(data, peer, part_.first_tag + tag)});
    }
  };
  try {
    start(receives, &c10d::Backend::recv);
    start(sends, &c10d::Backend::send);
    for (const Pending& letter : pending) {
      rank = letter.rank;
      letter.work->wait(timeout);
    }
  } catch (const std::exception& error) {
    fail_by_gloo(operation, rank, timeout, error.what());
  }
}

}  // namespace levin::comm
