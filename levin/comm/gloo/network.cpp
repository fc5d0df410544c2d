#include "levin/comm/gloo/network.h"

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/comm/descriptors.h"
#include "levin/comm/gloo/address_book.h"
#include "levin/comm/gloo/batch_scheduling.h"
#include "levin/comm/gloo/broken_pipe.h"
#include "levin/comm/gloo/transport.h"
#include "levin/comm/roll_call.h"

namespace levin::comm {
namespace {

using c10d::ProcessGroupGloo;

// To a rank that has come; gloo tries again till then.
constexpr std::chrono::milliseconds kLeastToConnect(2000), kMostToConnect(20000);
constexpr size_t kBytesOfAHost = 1024;     // of what gloo says of itself,
constexpr size_t kBytesOfAnAddress = 256;  // for each peer
constexpr int64_t kMostInATable = 64;      // a store takes values of up to 8 MiB

double seconds(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

}  // namespace

GlooNetwork::GlooNetwork(c10::intrusive_ptr<c10d::Store> store, int64_t rank, std::string host)
    : store_(std::move(store)), rank_(rank), host_(std::move(host)) {}

std::shared_ptr<gloo::transport::Device> GlooNetwork::device() {
  const std::lock_guard lock(mutex_);
  if (device_ == nullptr) {
    const NoBrokenPipe no_signal;  // for its thread
    const BatchScheduling no_interruption;
    device_ = host_.empty() ? ProcessGroupGloo::createDefaultDevice()
                            : ProcessGroupGloo::createDeviceForHostname(host_);
  }
  return device_;
}

std::vector<std::string> GlooNetwork::meet(const RollCall& call, const GlooPeers& peers,
                                           std::chrono::milliseconds timeout,
                                           const std::string& word) {
  if (call.size <= kMostInATable) return call_roll_late(store_, call, word, timeout, peers.look);
  const auto key = [&](int64_t rank) { return fmt::format("{}word{}", call.topic, rank); };
  store_->set(key(call.rank), word);
  call_roll_late(store_, call, "", timeout, peers.look);
  std::vector<std::string> words;
  for (int64_t rank = 0; rank < call.size; ++rank) words.push_back(store_->get_to_str(key(rank)));
  return words;
}

std::unique_ptr<Transport> GlooNetwork::connect(const GlooPeers& peers,
                                                std::chrono::milliseconds timeout) {
  const auto size = std::ssize(peers.members);
  const int64_t needed = 2 * size;  // a socket for each peer, and while they meet another
  allow_descriptors(needed);
  const int64_t own = std::ranges::find(peers.members, rank_) - peers.members.begin();
  const RollCall call = {.topic = "gloo/" + peers.name + "/",
                         .rank = own,
                         .size = size,
                         .names = peers.members,
                         .longest_word = kBytesOfAHost + kBytesOfAnAddress * peers.members.size()};
  const auto book = c10::make_intrusive<AddressBook>(
      [&](const std::string& word) { return meet(call, peers, timeout, word); });
  try {
    const NoBrokenPipe guard;
    const auto options =
        ProcessGroupGloo::Options::create(std::clamp(timeout, kLeastToConnect, kMostToConnect));
    options->threads = 1;  // they carry gloo's own collectives
    options->devices.push_back(device());
    auto connection = c10::make_intrusive<ProcessGroupGloo>(book, static_cast<int>(own),
                                                            static_cast<int>(size), options);
    book->close();
    return std::make_unique<GlooTransport>(std::move(connection), timeout);
  } catch (const std::exception& error) {
    if (book->failure() == nullptr) {
      const std::string_view what = error.what();  // frames follow
      LEVIN_FAIL("comm.gloo", "rank {} of {} found no way to the others, ranks {}: {}{}", rank_,
                 size, to_text(peers.members), what.substr(0, what.find('\n')),
                 shortage_of_descriptors(needed));
    }
  }
  try {
    std::rethrow_exception(book->failure());
  } catch (const Absence& missing) {
    LEVIN_FAIL("comm.timeout",
               "waited {} s to connect ranks {} by gloo, and rank {} did not come; see where it "
               "is, or raise the timeout",
               seconds(timeout), to_text(peers.members), missing.ranks);
  }
}

}  // namespace levin::comm
