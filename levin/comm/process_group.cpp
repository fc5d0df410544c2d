#include "levin/comm/process_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/comm/backends.h"
#include "levin/comm/collectives/announcement.h"
#include "levin/comm/collectives/chunks.h"
#include "levin/comm/nccl/nccl.h"
#include "levin/comm/process_group_impl.h"
#include "levin/comm/shm/backend.h"
#include "levin/comm/store.h"

namespace levin::comm {
namespace {

constexpr std::chrono::seconds kGoodbye(2);

/// An error's id and text.
struct Trouble {
  std::string id;
  std::string text;
};

Trouble trouble_with(const std::string& name, const std::string& backend) {
  try {
    throw;
  } catch (const Error& error) {
    return {error.id(), error.text()};
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    const auto says = [&](std::string_view words) {
      return what.find(words) != std::string_view::npos;
    };
    const bool late = says("imed out") || says("imeout");
    const bool closed = says("losed by peer") || says("reset by peer") || says("roken pipe");
    return {late     ? "comm.timeout"
            : closed ? "comm.peer"
                     : "comm.failed",
            fmt::format("{} over {} failed: {}; look for the rank that ended first", name, backend,
                        what.substr(0, what.find('\n')))};
  }
}

}  // namespace

Work::Work() = default;
Work::Work(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Work::~Work() = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&&) noexcept = default;

bool Work::done() const { return impl_ == nullptr || is_done(impl_->work); }

void Work::wait() {
  if (impl_ == nullptr) return;
  const auto impl = std::exchange(impl_, nullptr);
  try {
    wait_for(impl->work);
  } catch (const std::exception&) {
    impl->group->fail(impl->name, impl->number);
  }
  impl->group->watchdog->recorder().end(impl->ticket);
}

void ProcessGroup::Impl::make_backends() {
  backend = make_backend(name, {store, rank, size, global_ranks, options.timeout, own_address});
  if (!options.on_gpu) return;
  gpu_backend = make_nccl_backend(c10::make_intrusive<c10d::PrefixStore>("nccl", store), rank, size,
                                  options.timeout);
  communicators->add(gpu_backend);
}

ProcessGroup::Impl::~Impl() {
  const bool well = std::uncaught_exceptions() == 0;
  if (communicators != nullptr) communicators->end(std::exchange(gpu_backend, {}), well);
  if (label == "world" && watchdog != nullptr && well) say_goodbye();
}

// Without this, the other ranks' watchdogs would find the store gone, and LibTorch would log it.
void ProcessGroup::Impl::say_goodbye() noexcept {
  try {
    watchdog.reset();
    store->add("left", 1);
    const auto deadline = std::chrono::steady_clock::now() + kGoodbye;
    while (serves_store && store->add("left", 0) < size &&
           std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const std::exception&) {
    return;  // then there is nobody to say it to
  }
}

void ProcessGroup::Impl::fail(const char* what, int64_t call) const {
  // The call may have been one of the GPUs' tensors.
  Trouble trouble = trouble_with(what, gpu_backend == nullptr ? name : name + " and nccl");
  const bool is_rank_gone =
      trouble.id == "comm.timeout" || trouble.id == "comm.peer" || trouble.id == "comm.failed";
  if (is_rank_gone && communicators != nullptr) communicators->abort();
  // After a timeout or a mismatch this rank asks the others; a peer's end needs no question.
  if (trouble.id == "comm.timeout" || trouble.id == "comm.mismatch") {
    trouble.text += "; " + watchdog->diagnose(global_ranks, label, call);
  } else if (trouble.id == "comm.peer") {
    if (const auto heard = watchdog->heard(label, call)) trouble.text += "; " + *heard;
  }
  throw Error(trouble.id, trouble.text);
}

// All ranks tell all others, before any of them touches memory.
void ProcessGroup::Impl::check_agreement(const Call& call) const {
  const auto type = call.data.defined() ? call.data.scalar_type() : at::kByte;
  const int64_t count = call.data.defined() ? call.data.numel() : 0;
  const Announcement own =
      call.counts.empty()
          ? announce(call.name, c10::toString(type), count, call.argument)
          : announce_parts(call.name, c10::toString(type), call.counts, call.argument);
  const auto bytes = static_cast<int64_t>(sizeof own);
  at::Tensor mine = at::empty({bytes}, at::kByte);
  at::Tensor all = at::empty({bytes * size}, at::kByte);
  std::memcpy(mine.data_ptr(), &own, sizeof own);
  backend->_allgather_base(all, mine, {})->wait();
  for (int64_t other = 0; other < size; ++other) {
    Announcement theirs;
    std::memcpy(&theirs, all.const_data_ptr<uint8_t>() + other * bytes, sizeof theirs);
    check_same(own, rank, theirs, other, num_calls);
  }
}

ProcessGroup::ProcessGroup() : impl_(std::make_shared<Impl>()) {}
ProcessGroup::ProcessGroup(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

ProcessGroup ProcessGroup::connect(const Environment& environment,
                                   const ProcessGroupOptions& options) {
  auto impl = std::make_shared<Impl>();
  impl->rank = environment.rank.rank;
  impl->size = environment.rank.world_size;
  impl->options = options;
  impl->global_ranks.resize(static_cast<size_t>(impl->size));
  std::iota(impl->global_ranks.begin(), impl->global_ranks.end(), 0);
  if (impl->size == 1) return ProcessGroup(std::move(impl));
  impl->store = connect_store(environment, options.connect_timeout);
  // Each rank counts for itself how often it has connected, so that a second run in one process
  // has keys of its own.
  const int64_t number = impl->store->add(fmt::format("connects/{}", impl->rank), 1);
  impl->store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("world{}", number), impl->store);
  impl->serves_store = environment.rank.is_global_zero() && !environment.launcher_hosts_store;
  impl->watchdog = std::make_shared<Watchdog>(impl->store, impl->rank);
  if (options.on_gpu) impl->communicators = std::make_shared<Communicators>();
  impl->name = choose_backend(*impl->store, impl->rank, impl->size, options);
  if (impl->name == "gloo" || impl->name == "hierarchical") {
    impl->own_address =
        choose_address(*impl->store, impl->rank, impl->size, environment.master_address);
  }
  impl->make_backends();
  return ProcessGroup(std::move(impl));
}

int64_t ProcessGroup::rank() const { return impl_->rank; }
int64_t ProcessGroup::size() const { return impl_->size; }
const std::string& ProcessGroup::backend() const { return impl_->name; }
c10::intrusive_ptr<c10d::Store> ProcessGroup::store(const std::string& prefix) const {
  if (impl_->store == nullptr) return {};
  return c10::make_intrusive<c10d::PrefixStore>(prefix, impl_->store);
}

const std::vector<int64_t>& ProcessGroup::global_ranks() const { return impl_->global_ranks; }

at::Tensor ProcessGroup::allocate(int64_t count, at::ScalarType type, at::Device device) {
  const at::TensorOptions options = at::TensorOptions(type).device(device);
  if (!device.is_cpu() || impl_->alone() || !impl_->backend->supportsTensorAlloc(0))
    return at::empty({count}, options);
  return impl_->backend->allocateTensor(count, options);
}

SharedTensor ProcessGroup::share(std::span<const int64_t> counts, at::ScalarType type) {
  LEVIN_CHECK(std::ssize(counts) == size() && std::ranges::min(counts) >= 0, "comm.tensor",
              "share: got part sizes {} for {} ranks, wanted one size per rank, 0 or more",
              to_text(std::vector<int64_t>(counts.begin(), counts.end())), size());
  const auto width = static_cast<int64_t>(c10::elementSize(type));
  const int64_t own = counts[static_cast<size_t>(rank())], all = sum_of(counts);
  auto memory = [&]() -> std::shared_ptr<shm::SharedMemory> {
    if (!impl_->alone()) return share_memory(*impl_->backend, type, counts);
    auto segment = shm::Segment::create(static_cast<size_t>(std::max<int64_t>(all * width, 1)));
    return std::make_shared<shm::SharedMemory>(std::move(segment), 0, all * width);
  }();
  const auto tensor = [&](const std::byte* data, int64_t count) {
    return at::from_blob(
        const_cast<std::byte*>(data), {count}, [memory](void*) mutable { memory = nullptr; },
        at::TensorOptions(type));
  };
  return {.whole = tensor(memory->whole(), all), .own = tensor(memory->own(), own)};
}

ProcessGroup ProcessGroup::subgroup(const std::vector<int64_t>& ranks) {
  auto part = std::make_shared<Impl>();
  part->options = impl_->options;
  part->size = std::ssize(ranks);
  part->global_ranks.clear();
  const int64_t number = impl_->num_subgroups++;
  int64_t own = -1;
  for (int64_t i = 0; i < std::ssize(ranks); ++i) {
    const int64_t member = ranks[static_cast<size_t>(i)];
    LEVIN_CHECK(member >= 0 && member < size(), "comm.subgroup",
                "got rank {} for a subgroup of a group of {} ranks, wanted 0 to {}", member, size(),
                size() - 1);
    const auto first = std::find(ranks.begin(), ranks.end(), member);
    LEVIN_CHECK(first == ranks.begin() + i, "comm.subgroup",
                "got rank {} twice for a subgroup, wanted each rank once", member);
    if (member == rank()) own = i;
    part->global_ranks.push_back(impl_->global_ranks[static_cast<size_t>(member)]);
  }
  if (own < 0 || part->size <= 1) {
    auto alone = std::make_shared<Impl>();
    alone->global_ranks = {impl_->global_ranks[static_cast<size_t>(rank())]};
    return ProcessGroup(std::move(alone));
  }
  part->rank = own;
  part->name = impl_->name;
  part->own_address = impl_->own_address;
  part->watchdog = impl_->watchdog;
  part->communicators = impl_->communicators;
  part->label = fmt::format("{}/part{}", impl_->label, number);
  part->store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("part{}", number), impl_->store);
  part->make_backends();
  return ProcessGroup(std::move(part));
}

}  // namespace levin::comm
