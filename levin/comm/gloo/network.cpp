#include "levin/comm/gloo/network.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/comm/collectives/queued_backend.h"
#include "levin/comm/descriptors.h"
#include "levin/comm/gloo/broken_pipe.h"
#include "levin/comm/gloo/gloo.h"
#include "levin/comm/gloo/transport.h"
#include "levin/comm/messages/collectives.h"
#include "levin/comm/roll_call.h"

namespace levin::comm {
namespace {

/// BatchScheduling: gloo's thread polls without a pause for as long as another thread holds the lock of a connection.
/// Woken by that thread's own message, it would interrupt it, lock in hand, and poll for the rest of its time slice: on a
/// machine whose cores are all busy that is most of a small step's time. Threads that are started while one of these
/// lives interrupt nobody (SCHED_BATCH of sched(7)); a core that is free runs them at once, as before.
class BatchScheduling {
 public:
  /// Changes nothing for a thread to which somebody gave another policy than the usual one.
  BatchScheduling()
      : changed_(::sched_getscheduler(0) == SCHED_OTHER &&
                 ::sched_setscheduler(0, SCHED_BATCH, &kNoPriority) == 0) {}
  ~BatchScheduling() {
    if (changed_) ::sched_setscheduler(0, SCHED_OTHER, &kNoPriority);
  }
  BatchScheduling(const BatchScheduling&) = delete;
  BatchScheduling& operator=(const BatchScheduling&) = delete;

 private:
  static constexpr sched_param kNoPriority = {};
  bool changed_;
};

/// gloo's keys are "0/12" or "0//12".
size_t rank_in(const std::string& key) {
  const size_t at = key.rfind('/') + 1;
  size_t rank = std::string::npos;
  std::from_chars(key.data() + at, key.data() + key.size(), rank);
  return rank;
}

[[noreturn]] void refuse(const std::string& key) {
  LEVIN_FAIL("comm.gloo",
             "gloo asked its rendezvous store for '{}', which levin does not support; use a "
             "LibTorch version that the README names",
             key);
}

/// AddressBook: the store that gloo is given to find its peers with. gloo leaves its own address
/// there and then asks for everybody's; here the first is a roll call of all, and the answers are
/// what came of it: no rank asks the run's store for each of the others.
class AddressBook final : public c10d::Store {
 public:
  using Bytes = std::vector<uint8_t>;
  /// Given this rank's word, everybody's, by rank.
  using Meet = std::function<std::vector<std::string>(const std::string& own)>;

  explicit AddressBook(Meet meet) : meet_(std::move(meet)) {}

  /// The exception of meet, which gloo would take for trouble of its own.
  std::exception_ptr failure() const { return failure_; }
  /// gloo keeps its store when it has no more to ask.
  void close() {
    words_.clear();
    meet_ = nullptr;
  }

  using c10d::Store::set;
  // gloo takes a runtime_error for its own and logs it; anything else comes through.
  void set(const std::string& key, const Bytes& own) override {
    if (rank_in(key) == std::string::npos) refuse(key);
    try {
      words_ = meet_({own.begin(), own.end()});
    } catch (...) {
      failure_ = std::current_exception();
      throw std::bad_exception();
    }
  }

  /// The word of the rank that the key's last word names.
  Bytes get(const std::string& key) override {
    const size_t rank = rank_in(key);
    if (rank >= words_.size()) refuse(key);
    return {words_[rank].begin(), words_[rank].end()};
  }

  void wait(const std::vector<std::string>& keys) override {
    if (!check(keys)) refuse(keys.front());
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }
  bool check(const std::vector<std::string>& keys) override {
    return std::ranges::all_of(keys, [&](const auto& key) { return rank_in(key) < words_.size(); });
  }

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::intrusive_ptr<c10d::Store>::reclaim_copy(this);
  }
  int64_t add(const std::string& key, int64_t) override { refuse(key); }
  bool deleteKey(const std::string& key) override { refuse(key); }
  int64_t getNumKeys() override { return std::ssize(words_); }

 private:
  Meet meet_;
  std::vector<std::string> words_;
  std::exception_ptr failure_;
};

using c10d::ProcessGroupGloo;

// To a rank that has come; gloo tries again till then.
constexpr std::chrono::milliseconds kLeastToConnect(2000), kMostToConnect(20000);
constexpr size_t kBytesOfAHost = 1024;     // gloo's own description of a host,
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
    return make_gloo_transport(std::move(connection), timeout);
  } catch (const std::exception& error) {
    if (book->failure() == nullptr) {
      const std::string_view what = error.what();  // frames follow
      LEVIN_FAIL("comm.gloo", "rank {} of {} cannot connect to the other ranks of {}: {}{}", rank_,
                 size, to_text(peers.members), what.substr(0, what.find('\n')),
                 shortage_of_descriptors(needed));
    }
  }
  try {
    std::rethrow_exception(book->failure());
  } catch (const Absence& missing) {
    LEVIN_FAIL("comm.timeout",
               "waited {} s to connect ranks {} over gloo, but rank {} did not connect; check what "
               "that rank is doing, or raise the timeout",
               seconds(timeout), to_text(peers.members), missing.ranks);
  }
}

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
