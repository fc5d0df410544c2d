#include "levin/comm/gloo/gloo.h"

#include <memory>
#include <numeric>
#include <string_view>
#include <utility>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "levin/base/check.h"
#include "levin/comm/collectives/queued_backend.h"
#include "levin/comm/descriptors.h"
#include "levin/comm/gloo/transport.h"
#include "levin/comm/messages/collectives.h"

namespace levin::comm {

c10::intrusive_ptr<c10d::Backend> connect_by_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                                  int64_t rank, int64_t size,
                                                  std::chrono::milliseconds timeout,
                                                  const std::string& host) {
  using c10d::ProcessGroupGloo;
  const int64_t needed = 2 * size;  // a socket for each other rank, and while they meet another
  allow_descriptors(needed);
  const auto options = ProcessGroupGloo::Options::create(timeout);
  try {
    options->devices.push_back(host.empty() ? ProcessGroupGloo::createDefaultDevice()
                                            : ProcessGroupGloo::createDeviceForHostname(host));
    return c10::make_intrusive<ProcessGroupGloo>(store, static_cast<int>(rank),
                                                 static_cast<int>(size), options);
  } catch (const std::exception& error) {
    const std::string_view what = error.what();  // frames follow
    LEVIN_FAIL("comm.gloo", "rank {} of {} found no way to the others: {}{}", rank, size,
               what.substr(0, what.find('\n')), shortage_of_descriptors(needed));
  }
}

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    int64_t rank, int64_t size,
                                                    std::chrono::milliseconds timeout,
                                                    const std::string& host) {
  GlooPart all;
  all.members.resize(static_cast<size_t>(size));
  std::iota(all.members.begin(), all.members.end(), 0);
  auto transport = std::make_unique<GlooTransport>(
      connect_by_gloo(store, rank, size, timeout, host), std::move(all), timeout);
  return c10::make_intrusive<QueuedBackend>(
      "gloo", rank, size,
      std::make_unique<MessageCollectives>(std::move(transport),
                                           algorithms_of(Carrier::kGloo, size)));
}

}  // namespace levin::comm
