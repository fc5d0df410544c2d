#include "levin/comm/process_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "levin/base/check.h"
#include "levin/comm/announcement.h"
#include "levin/comm/backends.h"
#include "levin/comm/objects.h"
#include "levin/comm/store.h"
#include "levin/comm/watchdog.h"

namespace levin::comm {
namespace {

using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

c10d::ReduceOp torch_op(ReduceOp op) {
  constexpr std::array kOps = {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG, c10d::ReduceOp::MIN,
                               c10d::ReduceOp::MAX, c10d::ReduceOp::PRODUCT};
  return kOps[static_cast<size_t>(op)];
}

/// gloo looks at shapes, which mean nothing to the others.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor.view(-1) : tensor;
}

/// What went wrong, under levin's ids.
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
    const auto says = [&](std::string_view words) { return what.find(words) != what.npos; };
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

struct Work::Impl {
  WorkPointer work;
  const char* name = "";
  std::shared_ptr<ProcessGroup::Impl> group;
  int64_t number = 0;
  uint64_t ticket = 0;
  Tensors to_divide = {};  // by the number of ranks, where the backend knows no mean
};

Work::Work() = default;
Work::Work(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Work::~Work() = default;
Work::Work(Work&&) noexcept = default;
Work& Work::operator=(Work&&) noexcept = default;

struct ProcessGroup::Impl {
  int64_t rank = 0;
  int64_t size = 1;
  std::string name = "none";
  std::string own_address = {};  // for gloo
  std::vector<int64_t> global_ranks = {0};
  ProcessGroupOptions options = {};
  c10::intrusive_ptr<c10d::Store> store = {};
  c10::intrusive_ptr<c10d::Backend> backend = {};  // none for one rank
  int64_t num_subgroups = 0;
  std::string label = "world";
  int64_t num_calls = 0;
  std::shared_ptr<Watchdog> watchdog = {};  // one for all groups of the run

  bool alone() const { return backend == nullptr; }

  /// Called in a handler.
  [[noreturn]] void fail(const char* what, int64_t call) const {
    Trouble trouble = trouble_with(what, name);
    // Of a peer that has ended nobody need be asked.
    if (trouble.id == "comm.timeout" || trouble.id == "comm.mismatch") {
      trouble.text += "; " + watchdog->diagnose(global_ranks, label, call);
    }
    throw Error(trouble.id, trouble.text);
  }

  void check_agreement(const char* what, at::ScalarType type, int64_t count, int64_t argument);

  /// argument: root, operation: whatever else must agree.
  template <class Start>
  static Work start(const std::shared_ptr<Impl>& self, const char* what, const at::Tensor& data,
                    int64_t argument, Return when, Start start, Tensors to_divide = {}) {
    const int64_t call = ++self->num_calls;
    const auto type = data.defined() ? data.scalar_type() : at::kByte;
    const int64_t count = data.defined() ? data.numel() : 0;
    const uint64_t ticket = self->watchdog->recorder().begin(self->label, call, what, type, count);
    WorkPointer started;
    try {
      if (self->options.check) self->check_agreement(what, type, count, argument);
      started = start();
    } catch (const std::exception&) {
      self->fail(what, call);
    }
    Work work(std::make_unique<Work::Impl>(
        Work::Impl{std::move(started), what, self, call, ticket, std::move(to_divide)}));
    if (when == Return::kDone) work.wait();
    return work;
  }

  /// Between two ranks: the others know nothing of it, so that it has no number and is not
  /// compared.
  template <class Start>
  static Work start_message(const std::shared_ptr<Impl>& self, const char* what,
                            const at::Tensor& data, Return when, Start start) {
    LEVIN_CHECK(!self->alone(), "comm.backend", "got {} in a group of one rank, wanted two", what);
    const uint64_t ticket =
        self->watchdog->recorder().begin(self->label, 0, what, data.scalar_type(), data.numel());
    WorkPointer started;
    try {
      started = start();
    } catch (const std::exception&) {
      self->fail(what, 0);
    }
    Work work(
        std::make_unique<Work::Impl>(Work::Impl{std::move(started), what, self, 0, ticket, {}}));
    if (when == Return::kDone) work.wait();
    return work;
  }

  /// gloo has no mean: it sums, and we divide.
  c10d::ReduceOp op_for(ReduceOp op) const {
    return torch_op(op == ReduceOp::kMean && name == "gloo" ? ReduceOp::kSum : op);
  }
  Tensors divided_later(const Tensors& data, ReduceOp op) const {
    return op == ReduceOp::kMean && name == "gloo" ? data : Tensors();
  }
};

bool Work::done() const { return impl_ == nullptr || impl_->work->isCompleted(); }

void Work::wait() {
  if (impl_ == nullptr) return;
  const auto impl = std::exchange(impl_, nullptr);
  try {
    impl->work->wait();
  } catch (const std::exception&) {
    impl->group->fail(impl->name, impl->number);
  }
  impl->group->watchdog->recorder().end(impl->ticket);
  for (at::Tensor& tensor : impl->to_divide) tensor.div_(impl->group->size);
}

// All tell all, before any of them touches memory.
void ProcessGroup::Impl::check_agreement(const char* what, at::ScalarType type, int64_t count,
                                         int64_t argument) {
  const Announcement own = announce(what, c10::toString(type), count, argument);
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
  impl->watchdog = std::make_shared<Watchdog>(impl->store, impl->rank);
  impl->name = choose_backend(*impl->store, impl->rank, impl->size, options);
  if (impl->name == "gloo") {
    impl->own_address =
        choose_address(*impl->store, impl->rank, impl->size, environment.master_address);
  }
  impl->backend = make_backend(impl->name, {impl->store, impl->rank, impl->size, impl->global_ranks,
                                            options.timeout, impl->own_address});
  return ProcessGroup(std::move(impl));
}

int64_t ProcessGroup::rank() const { return impl_->rank; }
int64_t ProcessGroup::size() const { return impl_->size; }
const std::string& ProcessGroup::backend() const { return impl_->name; }
const std::vector<int64_t>& ProcessGroup::global_ranks() const { return impl_->global_ranks; }

Work ProcessGroup::all_reduce(const at::Tensor& data, ReduceOp op, Return when) {
  return all_reduce(Tensors{data}, op, when);
}

Work ProcessGroup::all_reduce(const Tensors& data, ReduceOp op, Return when) {
  if (impl_->alone() || data.empty()) return {};
  return Impl::start(
      impl_, "all_reduce", data.front(), static_cast<int64_t>(op), when,
      [&, tensors = data]() mutable {
        const auto torch = impl_->op_for(op);
        if (tensors.size() > 1 && impl_->name != "shm") {
          c10d::AllreduceCoalescedOptions options;
          options.reduceOp = torch;
          return impl_->backend->allreduce_coalesced(tensors, options);
        }
        c10d::AllreduceOptions options;
        options.reduceOp = torch;
        options.asyncOp = when == Return::kStarted;
        return impl_->backend->allreduce(tensors, options);
      },
      impl_->divided_later(data, op));
}

Work ProcessGroup::broadcast(const at::Tensor& data, int64_t root, Return when) {
  if (impl_->alone()) return {};
  return Impl::start(impl_, "broadcast", data, root, when, [&, tensors = Tensors{data}]() mutable {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    options.asyncOp = when == Return::kStarted;
    return impl_->backend->broadcast(tensors, options);
  });
}

Work ProcessGroup::all_gather(const at::Tensor& whole, const at::Tensor& part, Return when) {
  if (impl_->alone()) {
    whole.view_as(part).copy_(part);
    return {};
  }
  return Impl::start(impl_, "all_gather", part, 0, when,
                     [&, to = flat(whole), from = flat(part)]() mutable {
                       c10d::AllgatherOptions options;
                       options.asyncOp = when == Return::kStarted;
                       return impl_->backend->_allgather_base(to, from, options);
                     });
}

Work ProcessGroup::reduce_scatter(const at::Tensor& part, const at::Tensor& whole, ReduceOp op,
                                  Return when) {
  if (impl_->alone()) {
    part.copy_(whole.view_as(part));
    return {};
  }
  return Impl::start(
      impl_, "reduce_scatter", part, static_cast<int64_t>(op), when,
      [&, to = flat(part), from = flat(whole)]() mutable {
        c10d::ReduceScatterOptions options;
        options.reduceOp = impl_->op_for(op);
        options.asyncOp = when == Return::kStarted;
        return impl_->backend->_reduce_scatter_base(to, from, options);
      },
      impl_->divided_later({part}, op));
}

Work ProcessGroup::gather(const Tensors& wholes, const at::Tensor& part, int64_t root,
                          Return when) {
  if (impl_->alone()) {
    wholes.at(0).copy_(part);
    return {};
  }
  return Impl::start(impl_, "gather", part, root, when, [&, from = Tensors{part}]() mutable {
    std::vector<Tensors> to;
    if (impl_->rank == root) to.push_back(wholes);
    c10d::GatherOptions options;
    options.rootRank = root;
    options.asyncOp = when == Return::kStarted;
    return impl_->backend->gather(to, from, options);
  });
}

Work ProcessGroup::scatter(const at::Tensor& part, const Tensors& wholes, int64_t root,
                           Return when) {
  if (impl_->alone()) {
    part.copy_(wholes.at(0));
    return {};
  }
  return Impl::start(impl_, "scatter", part, root, when, [&, to = Tensors{part}]() mutable {
    std::vector<Tensors> from;
    if (impl_->rank == root) from.push_back(wholes);
    c10d::ScatterOptions options;
    options.rootRank = root;
    options.asyncOp = when == Return::kStarted;
    return impl_->backend->scatter(to, from, options);
  });
}

Work ProcessGroup::all_to_all(const Tensors& received, const Tensors& sent, Return when) {
  if (impl_->alone()) {
    received.at(0).copy_(sent.at(0));
    return {};
  }
  // gloo has the flat form alone.
  Tensors flat_parts;
  std::vector<int64_t> out, in;
  for (const at::Tensor& tensor : sent) {
    flat_parts.push_back(tensor.reshape({-1}));
    in.push_back(tensor.numel());
  }
  int64_t total = 0;
  for (const at::Tensor& tensor : received) total += out.emplace_back(tensor.numel());
  const at::Tensor from = at::cat(flat_parts);
  const at::Tensor to = at::empty({total}, from.options());
  auto start = [&, to = to, from = from, out_sizes = out, in_sizes = in]() mutable {
    return impl_->backend->alltoall_base(to, from, out_sizes, in_sizes, {});  // which may take them
  };
  Work work = Impl::start(impl_, "all_to_all", {}, 0, Return::kDone, start);
  const auto pieces = to.split_with_sizes(out);
  for (size_t i = 0; i < received.size(); ++i) received[i].copy_(pieces[i].view_as(received[i]));
  return work;
}

Work ProcessGroup::send(const at::Tensor& data, int64_t to, int64_t tag, Return when) {
  return Impl::start_message(impl_, "send", data, when, [&, tensors = Tensors{data}]() mutable {
    return impl_->backend->send(tensors, static_cast<int>(to), static_cast<int>(tag));
  });
}

Work ProcessGroup::recv(const at::Tensor& data, int64_t from, int64_t tag, Return when) {
  return Impl::start_message(impl_, "recv", data, when, [&, tensors = Tensors{data}]() mutable {
    return impl_->backend->recv(tensors, static_cast<int>(from), static_cast<int>(tag));
  });
}

void ProcessGroup::barrier() {
  if (impl_->alone()) return;
  Impl::start(impl_, "barrier", {}, 0, Return::kDone, [&] {
    c10d::BarrierOptions options;
    options.asyncOp = false;
    return impl_->backend->barrier(options);
  });
}

State ProcessGroup::broadcast(const State& object, int64_t root) {
  if (impl_->alone()) return object;
  at::Tensor bytes = rank() == root ? bytes_of(object) : at::Tensor();
  const at::Tensor length = at::zeros({1}, at::kLong);
  if (bytes.defined()) length.fill_(bytes.numel());
  broadcast(length, root);
  if (!bytes.defined()) bytes = at::empty({length.item<int64_t>()}, at::kByte);
  broadcast(bytes, root);
  return rank() == root ? object : state_of(bytes);
}

std::vector<State> ProcessGroup::all_gather(const State& object) {
  if (impl_->alone()) return {object};
  const at::Tensor bytes = bytes_of(object);
  const at::Tensor lengths = at::zeros({size()}, at::kLong);
  all_gather(lengths, at::full({1}, bytes.numel(), at::kLong));
  const int64_t longest = lengths.max().item<int64_t>();
  const at::Tensor padded = at::zeros({longest}, at::kByte);
  padded.narrow(0, 0, bytes.numel()).copy_(bytes);
  const at::Tensor all = at::empty({size(), longest}, at::kByte);
  all_gather(all, padded);
  std::vector<State> states;
  for (int64_t from = 0; from < size(); ++from) {
    states.push_back(state_of(all[from].narrow(0, 0, lengths[from].item<int64_t>())));
  }
  return states;
}

bool ProcessGroup::any(bool flag) {
  if (impl_->alone()) return flag;
  const at::Tensor word = at::full({1}, flag ? 1 : 0, at::kInt);
  all_reduce(word, ReduceOp::kMax);
  return word.item<int>() != 0;
}

at::Tensor ProcessGroup::allocate(int64_t count, at::ScalarType type) {
  const at::TensorOptions options(type);
  if (impl_->alone() || !impl_->backend->supportsTensorAlloc(0)) return at::empty({count}, options);
  return impl_->backend->allocateTensor(count, options);
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
                "got rank {} for a part of a group of {}, wanted 0 to {}", member, size(),
                size() - 1);
    const auto first = std::find(ranks.begin(), ranks.end(), member);
    LEVIN_CHECK(first == ranks.begin() + i, "comm.subgroup", "got rank {} twice, wanted it once",
                member);
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
  part->label = fmt::format("{}/part{}", impl_->label, number);
  part->store = c10::make_intrusive<c10d::PrefixStore>(fmt::format("part{}", number), impl_->store);
  part->backend = make_backend(part->name, {part->store, own, part->size, part->global_ranks,
                                            part->options.timeout, part->own_address});
  return ProcessGroup(std::move(part));
}

}  // namespace levin::comm
