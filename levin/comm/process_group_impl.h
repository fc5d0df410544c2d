#pragma once
// ProcessGroup's inside: what a group is, and how a call of its backend is begun, written down and
// waited for.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "levin/comm/collectives/chunks.h"
#include "levin/comm/collectives/named_group.h"
#include "levin/comm/nccl/communicators.h"
#include "levin/comm/process_group.h"
#include "levin/comm/watchdog/watchdog.h"

namespace levin::comm {

/// NCCL gives no work for a collective that it has put on the caller's own stream, as it does where nothing
/// was to be started only: what comes on that stream waits for it.
inline bool is_done(const c10::intrusive_ptr<c10d::Work>& work) {
  return work == nullptr || work->isCompleted();
}
inline void wait_for(const c10::intrusive_ptr<c10d::Work>& work) {
  if (work != nullptr) work->wait();
}

struct Work::Impl {
  c10::intrusive_ptr<c10d::Work> work;
  const char* name = "";
  std::shared_ptr<ProcessGroup::Impl> group;
  int64_t number = 0;
  uint64_t ticket = 0;
};

struct ProcessGroup::Impl {
  int64_t rank = 0;
  int64_t size = 1;
  std::string name = "none";
  std::string own_address = {};  ///< for gloo
  std::vector<int64_t> global_ranks = {0};
  ProcessGroupOptions options = {};
  c10::intrusive_ptr<c10d::Store> store = {};
  c10::intrusive_ptr<c10d::Backend> backend = {};      ///< none for one rank
  c10::intrusive_ptr<c10d::Backend> gpu_backend = {};  ///< for tensors on GPUs, where there are any
  std::shared_ptr<Communicators> communicators = {};   // shared by all groups of the run
  int64_t num_subgroups = 0;
  std::string label = "world";
  int64_t num_calls = 0;
  std::shared_ptr<Watchdog> watchdog = {};  // one for all groups of the run

  std::once_flag naming;  ///< sets named
  c10::intrusive_ptr<NamedGroup> named = {};

  bool serves_store = false;  ///< the store must outlast the other ranks' last look

  ~Impl();

  bool alone() const { return backend == nullptr; }
  c10d::Backend& backend_of(const at::Tensor& tensor) const {
    return tensor.is_cuda() && gpu_backend != nullptr ? *gpu_backend : *backend;
  }

  void make_backends();
  void say_goodbye() noexcept;
  /// Called in a handler.
  [[noreturn]] void fail(const char* what, int64_t call) const;

  /// One call as all ranks of the group should make it.
  struct Call {
    const char* name = "";
    at::Tensor data = {};
    int64_t argument = 0;                  ///< root, operation: whatever else must agree
    std::span<const int64_t> counts = {};  ///< elements of each rank's part, if there are parts
    bool between_two = false;  ///< the other ranks know nothing of it: no number, no comparison
  };
  void check_agreement(const Call& call) const;
  template <class Start>
  static Work start(const std::shared_ptr<Impl>& self, const Call& call, Return when, Start start) {
    const int64_t number = call.between_two ? 0 : ++self->num_calls;
    const auto type = call.data.defined() ? call.data.scalar_type() : at::kByte;
    const int64_t count = call.data.defined() ? call.data.numel() : 0;
    const int64_t whole = call.counts.empty() ? count : sum_of(call.counts);
    const uint64_t ticket =
        self->watchdog->recorder().begin(self->label, number, call.name, type, count, whole);
    c10::intrusive_ptr<c10d::Work> started;
    try {
      // The backends of CPUs compare for themselves.
      const bool on_gpu = call.data.defined() && call.data.is_cuda();
      if (self->options.check && on_gpu && !call.between_two) self->check_agreement(call);
      started = start();
    } catch (const std::exception&) {
      self->fail(call.name, number);
    }
    Work work(std::make_unique<Work::Impl>(
        Work::Impl{std::move(started), call.name, self, number, ticket}));
    if (when == Return::kDone) work.wait();
    return work;
  }
};

}  // namespace levin::comm
