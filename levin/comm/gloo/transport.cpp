#include "levin/comm/gloo/transport.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "levin/base/awake.h"
#include "levin/base/check.h"
#include "levin/comm/gloo/broken_pipe.h"

namespace levin::comm {
namespace {

// gloo takes a duration for the wall clock, and closes all connections when it is over.
constexpr std::chrono::hours kForEver(24 * 365);

/// Patience: waits for gloo's messages no longer than a time in which this process ran. gloo itself
/// goes by the clock on the wall, on which the peers of a machine that slept are late.
class Patience {
 public:
  Patience() : thread_([this] { look(); }) {}
  ~Patience() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    end_.notify_all();
    thread_.join();
  }

  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  /// A point of the time that this process ran: so much from now, and up to two looks later.
  std::chrono::nanoseconds after(std::chrono::milliseconds time) const {
    return awake_.load() + kLook + time;
  }

  /// Waits for the work of gloo's Backend::send or recv. False: it was given up then. Throws what
  /// the work throws.
  bool wait(c10d::Work& work, std::chrono::nanoseconds until) {
    std::list<Waiting>::iterator own;
    {
      const std::lock_guard lock(mutex_);
      own = waiting_.insert(waiting_.end(), {&work, until});
    }
    struct Leave {
      Patience& patience;
      std::list<Waiting>::iterator own;
      ~Leave() {
        const std::lock_guard lock(patience.mutex_);
        patience.waiting_.erase(own);
      }
    } const leave{*this, own};
    return work.wait(kForEver);
  }

 private:
  static constexpr std::chrono::milliseconds kLook{100};

  struct Waiting {
    c10d::Work* work;
    std::chrono::nanoseconds until;
  };

  void look() {
    levin::detail::AwakeTime awake;
    std::unique_lock lock(mutex_);
    while (!end_.wait_for(lock, kLook, [this] { return is_ending_; })) {
      awake_ = awake.look();
      for (const Waiting& waiting : waiting_) {
        if (awake_.load() > waiting.until) waiting.work->abort();
      }
    }
  }

  std::atomic<std::chrono::nanoseconds> awake_ = std::chrono::nanoseconds(0);
  std::mutex mutex_;
  std::condition_variable end_;
  bool is_ending_ = false;
  std::list<Waiting> waiting_;
  std::thread thread_;
};

constexpr int kNobodysTag = (1 << 30) + 1;

/// gloo tells its troubles apart by words alone.
[[noreturn]] void fail_by_gloo(const Announcement& operation, int64_t rank,
                               std::chrono::milliseconds timeout, std::string_view what) {
  const auto says = [&](std::string_view words) {
    return what.find(words) != std::string_view::npos;
  };
  LEVIN_CHECK(!says("imed out") && !says("imeout"), "comm.timeout",
              "waited {} s in {} for rank {}; check what that rank is doing, or raise the timeout",
              std::chrono::duration<double>(timeout).count(), operation.text(), rank);
  LEVIN_FAIL("comm.peer",
             "rank {} ended or left during {} over gloo ({}); look for the rank that ended first",
             rank, operation.text(), what.substr(0, what.find('\n')));
}

class GlooExchange final : public Transport::Exchange {
 public:
  GlooExchange(c10d::Backend& connection, Patience& patience, const Announcement& operation,
               std::chrono::milliseconds timeout)
      : connection_(connection), patience_(patience), operation_(operation), timeout_(timeout) {}

  /// start() gives c10d's work.
  template <class Start>
  void add(int64_t rank, const Start& start) {
    at(rank, [&] { letters_.push_back({rank, start()}); });
  }
  /// One timeout applies to all letters together.
  void wait() override {
    const NoBrokenPipe guard;
    const auto until = patience_.after(timeout_);
    for (const Pending& letter : letters_) {
      at(letter.rank, [&] {
        if (patience_.wait(*letter.work, until)) return;
        hang_up();
        LEVIN_FAIL("comm.timeout", "timed out");
      });
    }
  }

 private:
  struct Pending {
    int64_t rank = 0;
    c10::intrusive_ptr<c10d::Work> work;
  };

  /// gloo closes all connections, so that the peers need not wait as long, when a message does not
  /// come in a time of its own.
  void hang_up() {
    const int peer = connection_.getRank() == 0 ? 1 : 0;
    at::Tensor byte = at::empty({1}, at::kByte);
    std::vector<at::Tensor> data = {byte};
    try {
      connection_.recv(data, peer, kNobodysTag)->wait(std::chrono::milliseconds(1));
    } catch (const std::exception&) {
      return;  // the exception is gloo's way to say that it has hung up
    }
  }

  template <class Body>
  void at(int64_t rank, const Body& body) const {
    try {
      body();
    } catch (const std::exception& error) {
      fail_by_gloo(operation_, rank, timeout_, error.what());
    }
  }

  c10d::Backend& connection_;
  Patience& patience_;
  Announcement operation_;
  std::chrono::milliseconds timeout_;
  std::vector<Pending> letters_;
};

class GlooTransport final : public Transport {
 public:
  GlooTransport(c10::intrusive_ptr<c10d::Backend> connection, std::chrono::milliseconds timeout)
      : connection_(std::move(connection)), timeout_(timeout) {}

  int64_t rank() const override { return connection_->getRank(); }
  int64_t size() const override { return connection_->getSize(); }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }

  /// Empty letters are not sent.
  std::unique_ptr<Exchange> start(const Announcement& operation, std::span<const Letter> receives,
                                  std::span<const Letter> sends, int tag) override {
    const NoBrokenPipe guard;
    auto exchange = std::make_unique<GlooExchange>(*connection_, patience_, operation, timeout_);
    const auto add = [&](std::span<const Letter> letters, auto call) {
      for (const Letter& letter : letters) {
        if (letter.rank == rank() || letter.elements.bytes() == 0) continue;
        std::vector<at::Tensor> data = {
            at::from_blob(letter.elements.data, {letter.elements.bytes()}, at::kByte)};
        const auto peer = static_cast<int>(letter.rank);
        exchange->add(letter.rank, [&] { return (connection_.get()->*call)(data, peer, tag); });
      }
    };
    add(receives, &c10d::Backend::recv);
    add(sends, &c10d::Backend::send);
    return exchange;
  }

 private:
  c10::intrusive_ptr<c10d::Backend> connection_;
  std::atomic<std::chrono::milliseconds> timeout_;  ///< time in which this process is awake
  Patience patience_;
};

}  // namespace

std::unique_ptr<Transport> make_gloo_transport(c10::intrusive_ptr<c10d::Backend> connection,
                                               std::chrono::milliseconds timeout) {
  return std::make_unique<GlooTransport>(std::move(connection), timeout);
}

}  // namespace levin::comm
