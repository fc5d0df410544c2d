#include "levin/comm/gloo/gloo.h"

#include <memory>
#include <numeric>
#include <utility>

#include "levin/comm/collectives/queued_backend.h"
#include "levin/comm/gloo/network.h"
#include "levin/comm/messages/collectives.h"

namespace levin::comm {

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int64_t rank, int64_t size,
                                                    std::chrono::milliseconds timeout,
                                                    const std::string& host) {
  GlooPeers all = {.name = "all"};
  all.members.resize(static_cast<size_t>(size));
  std::iota(all.members.begin(), all.members.end(), 0);
  auto transport = GlooNetwork(store, rank, host).connect(all, timeout);
  return c10::make_intrusive<QueuedBackend>(
      "gloo", rank, size, make_message_collectives(std::move(transport), Carrier::kGloo));
}

}  // namespace levin::comm
