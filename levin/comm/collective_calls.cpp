// ProcessGroup's collectives, messages and objects, in c10d's terms.

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/comm/collectives/chunks.h"
#include "levin/comm/objects.h"
#include "levin/comm/process_group_impl.h"

namespace levin::comm {
namespace {

using Tensors = std::vector<at::Tensor>;

/// nccl looks at shapes, which mean nothing to the others.
at::Tensor flat(const at::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor.view(-1) : tensor;
}

c10d::ReduceOp torch_op(ReduceOp op) {
  constexpr std::array kOps = {c10d::ReduceOp::SUM, c10d::ReduceOp::AVG, c10d::ReduceOp::MIN,
                               c10d::ReduceOp::MAX, c10d::ReduceOp::PRODUCT};
  return kOps[static_cast<size_t>(op)];
}

/// Views of a flat tensor.
Tensors parts_of(const at::Tensor& whole, Counts counts) {
  return whole.split_with_sizes({counts.data(), counts.size()});
}

void check_counts(const ProcessGroup& group, std::string_view name, const at::Tensor& whole,
                  const at::Tensor& part, Counts counts) {
  const auto own = static_cast<size_t>(group.rank());
  const bool fits = std::ssize(counts) == group.size() && std::ranges::min(counts) >= 0 &&
                    sum_of(counts) == whole.numel() && counts[own] == part.numel() &&
                    whole.scalar_type() == part.scalar_type();
  LEVIN_CHECK(
      fits, "comm.tensor",
      "{}: got a full tensor of {} elements of {} and a part of {} elements of {} on rank {} "
      "of {}, wanted parts of {} elements",
      name, whole.numel(), c10::toString(whole.scalar_type()), part.numel(),
      c10::toString(part.scalar_type()), group.rank(), group.size(),
      to_text(std::vector<int64_t>(counts.begin(), counts.end())));
  LEVIN_CHECK(whole.is_contiguous() || are_equal(counts), "comm.tensor",
              "{}: got a full tensor that is not contiguous and parts of different lengths; gather "
              "into a contiguous tensor",
              name);
}

void check_exchange(const ProcessGroup& group, std::string_view what, const at::Tensor& tensor,
                    Counts counts) {
  const bool fits = std::ssize(counts) == group.size() && std::ranges::min(counts) >= 0 &&
                    sum_of(counts) == tensor.numel() && tensor.is_contiguous();
  LEVIN_CHECK(fits, "comm.tensor",
              "all_to_all: got {} {} elements on rank {} of {}, wanted a contiguous tensor with "
              "parts of {} elements",
              what, tensor.numel(), group.rank(), group.size(),
              to_text(std::vector<int64_t>(counts.begin(), counts.end())));
}

void check_two(const ProcessGroup& group, std::string_view what) {
  LEVIN_CHECK(group.size() > 1, "comm.backend",
              "got {} in a group of 1 rank, wanted at least 2 ranks", what);
}

}  // namespace

Work ProcessGroup::all_reduce(const at::Tensor& data, ReduceOp op, Return when) {
  return all_reduce(Tensors{data}, op, when);
}

Work ProcessGroup::all_reduce(const Tensors& data, ReduceOp op, Return when) {
  if (impl_->alone() || data.empty()) return {};
  return Impl::start(
      impl_, {.name = "all_reduce", .data = data.front(), .argument = static_cast<int64_t>(op)},
      when, [&, tensors = data]() mutable {
        c10d::AllreduceCoalescedOptions options;
        options.reduceOp = torch_op(op);
        options.asyncOp = when == Return::kAsync;
        return tensors.size() > 1
                   ? impl_->backend_of(tensors.front()).allreduce_coalesced(tensors, options)
                   : impl_->backend_of(tensors.front()).allreduce(tensors, options);
      });
}

Work ProcessGroup::broadcast(const at::Tensor& data, int64_t root, Return when) {
  if (impl_->alone()) return {};
  return Impl::start(impl_, {.name = "broadcast", .data = data, .argument = root}, when,
                     [&, tensors = Tensors{data}]() mutable {
                       c10d::BroadcastOptions options;
                       options.rootRank = root;
                       options.asyncOp = when == Return::kAsync;
                       return impl_->backend_of(tensors.front()).broadcast(tensors, options);
                     });
}

Work ProcessGroup::all_gather(const at::Tensor& whole, const at::Tensor& part, Return when) {
  return all_gather(whole, part, equal_counts(size(), part.numel()), when);
}

Work ProcessGroup::reduce_scatter(const at::Tensor& part, const at::Tensor& whole, ReduceOp op,
                                  Return when) {
  return reduce_scatter(part, whole, op, equal_counts(size(), part.numel()), when);
}

Work ProcessGroup::all_gather(const at::Tensor& whole, const at::Tensor& part,
                              std::span<const int64_t> counts, Return when) {
  check_counts(*this, "all_gather", whole, part, counts);
  if (impl_->alone()) {
    whole.view_as(part).copy_(part);
    return {};
  }
  return Impl::start(impl_, {.name = "all_gather", .data = part, .counts = counts}, when,
                     [&, to = flat(whole), from = flat(part)]() mutable {
                       c10d::AllgatherOptions options;
                       options.asyncOp = when == Return::kAsync;
                       c10d::Backend& backend = impl_->backend_of(from);
                       if (are_equal(counts)) return backend._allgather_base(to, from, options);
                       std::vector<Tensors> parts = {parts_of(to, counts)};
                       Tensors own = {from};
                       return backend.allgather(parts, own, options);
                     });
}

Work ProcessGroup::reduce_scatter(const at::Tensor& part, const at::Tensor& whole, ReduceOp op,
                                  std::span<const int64_t> counts, Return when) {
  check_counts(*this, "reduce_scatter", whole, part, counts);
  if (impl_->alone()) {
    part.copy_(whole.view_as(part));
    return {};
  }
  return Impl::start(impl_,
                     {.name = "reduce_scatter",
                      .data = part,
                      .argument = static_cast<int64_t>(op),
                      .counts = counts},
                     when, [&, to = flat(part), from = flat(whole)]() mutable {
                       c10d::ReduceScatterOptions options;
                       options.reduceOp = torch_op(op);
                       options.asyncOp = when == Return::kAsync;
                       c10d::Backend& backend = impl_->backend_of(from);
                       if (are_equal(counts))
                         return backend._reduce_scatter_base(to, from, options);
                       std::vector<Tensors> parts = {parts_of(from, counts)};
                       Tensors own = {to};
                       return backend.reduce_scatter(own, parts, options);
                     });
}

Work ProcessGroup::gather(const Tensors& wholes, const at::Tensor& part, int64_t root,
                          Return when) {
  if (impl_->alone()) {
    wholes.at(0).copy_(part);
    return {};
  }
  return Impl::start(impl_, {.name = "gather", .data = part, .argument = root}, when,
                     [&, from = Tensors{part}]() mutable {
                       std::vector<Tensors> to;
                       if (impl_->rank == root) to.push_back(wholes);
                       c10d::GatherOptions options;
                       options.rootRank = root;
                       options.asyncOp = when == Return::kAsync;
                       return impl_->backend_of(from.front()).gather(to, from, options);
                     });
}

Work ProcessGroup::scatter(const at::Tensor& part, const Tensors& wholes, int64_t root,
                           Return when) {
  if (impl_->alone()) {
    part.copy_(wholes.at(0));
    return {};
  }
  return Impl::start(impl_, {.name = "scatter", .data = part, .argument = root}, when,
                     [&, to = Tensors{part}]() mutable {
                       std::vector<Tensors> from;
                       if (impl_->rank == root) from.push_back(wholes);
                       c10d::ScatterOptions options;
                       options.rootRank = root;
                       options.asyncOp = when == Return::kAsync;
                       return impl_->backend_of(to.front()).scatter(to, from, options);
                     });
}

Work ProcessGroup::all_to_all(const Tensors& received, const Tensors& sent, Return when) {
  if (impl_->alone()) {
    received.at(0).copy_(sent.at(0));
    return {};
  }
  // nccl wants the flat form.
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
    return impl_->backend_of(from).alltoall_base(to, from, out_sizes, in_sizes,
                                                 {});  // it may take the vectors
  };
  Work work = Impl::start(impl_, {.name = "all_to_all"}, Return::kDone, start);
  const auto pieces = to.split_with_sizes(out);
  for (size_t i = 0; i < received.size(); ++i) received[i].copy_(pieces[i].view_as(received[i]));
  return work;
}

Work ProcessGroup::all_to_all(const at::Tensor& received, const at::Tensor& sent,
                              std::span<const int64_t> received_counts,
                              std::span<const int64_t> sent_counts, Return when) {
  check_exchange(*this, "received", received, received_counts);
  check_exchange(*this, "sent", sent, sent_counts);
  LEVIN_CHECK(received.scalar_type() == sent.scalar_type(), "comm.tensor",
              "all_to_all: got {} to send and {} to receive, wanted one dtype",
              c10::toString(sent.scalar_type()), c10::toString(received.scalar_type()));
  if (impl_->alone()) {
    received.view(-1).copy_(sent.view(-1));
    return {};
  }
  return Impl::start(impl_, {.name = "all_to_all"}, when,
                     [&, to = flat(received), from = flat(sent),
                      to_counts = std::vector(received_counts.begin(), received_counts.end()),
                      from_counts = std::vector(sent_counts.begin(), sent_counts.end())]() mutable {
                       c10d::AllToAllOptions options;
                       options.asyncOp = when == Return::kAsync;
                       return impl_->backend_of(from).alltoall_base(to, from, to_counts,
                                                                    from_counts, options);
                     });
}

Work ProcessGroup::send(const at::Tensor& data, int64_t to, int64_t tag, Return when) {
  check_two(*this, "send");
  return Impl::start(impl_, {.name = "send", .data = data, .between_two = true}, when,
                     [&, tensors = Tensors{data}]() mutable {
                       return impl_->backend_of(tensors.front())
                           .send(tensors, static_cast<int>(to), static_cast<int>(tag));
                     });
}

Work ProcessGroup::recv(const at::Tensor& data, int64_t from, int64_t tag, Return when) {
  check_two(*this, "recv");
  return Impl::start(impl_, {.name = "recv", .data = data, .between_two = true}, when,
                     [&, tensors = Tensors{data}]() mutable {
                       return impl_->backend_of(tensors.front())
                           .recv(tensors, static_cast<int>(from), static_cast<int>(tag));
                     });
}

void ProcessGroup::barrier() {
  if (impl_->alone()) return;
  Impl::start(impl_, {.name = "barrier"}, Return::kDone, [&] {
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
  const auto* counts = lengths.const_data_ptr<int64_t>();
  const std::vector<int64_t> parts(counts, counts + size());
  const at::Tensor all = at::empty({sum_of(parts)}, at::kByte);
  all_gather(all, bytes, parts);
  std::vector<State> states;
  for (const at::Tensor& part : parts_of(all, parts)) states.push_back(state_of(part));
  return states;
}

bool ProcessGroup::any(bool flag) {
  if (impl_->alone()) return flag;
  const at::Tensor word = at::full({1}, flag ? 1 : 0, at::kInt);
  all_reduce(word, ReduceOp::kMax);
  return word.item<int>() != 0;
}

std::vector<CollectiveTotal> ProcessGroup::totals() const {
  if (impl_->watchdog == nullptr) return {};
  std::vector<CollectiveTotal> totals;
  for (const auto& [name, total] : impl_->watchdog->recorder().totals()) {
    totals.push_back({name, total.calls, total.bytes});
  }
  return totals;
}

}  // namespace levin::comm
