#include "levin/shard/exchange.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <span>

#include "levin/base/check.h"

namespace levin::shard {
namespace {

using Tensors = std::vector<at::Tensor>;

void check_type(const Plan& plan, at::ScalarType type) {
  for (const Reduction& reduction : plan.reductions()) {
    const bool orders = reduction.op == ReduceOp::kMin || reduction.op == ReduceOp::kMax;
    const bool is_number = at::isFloatingType(type) || at::isComplexType(type);
    const bool fits = reduction.op == ReduceOp::kMean ? is_number
                      : orders                        ? !at::isComplexType(type)
                                                      : true;
    LEVIN_CHECK(fits, "shard.reduce", "{} is not defined for {}; convert the tensor first",
                to_text(reduction.op), c10::toString(type));
  }
}

/// In the order of the parts. Half types are computed in float and rounded once: the bits of
/// comm::reduce, and so of an all_reduce.
at::Tensor reduced(std::span<const at::Tensor> parts, ReduceOp op) {
  const at::ScalarType type = parts.front().scalar_type();
  const bool is_half = type == at::kHalf || type == at::kBFloat16;
  const at::ScalarType wide = is_half ? at::kFloat : type;
  at::Tensor result = parts.front().to(wide, /*non_blocking=*/false, /*copy=*/true);
  for (const at::Tensor& next : parts.subspan(1)) {
    const at::Tensor part = next.to(wide);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kMean:
        result.add_(part);
        break;
      case ReduceOp::kMin:
        at::minimum_out(result, result, part);
        break;
      case ReduceOp::kMax:
        at::maximum_out(result, result, part);
        break;
      case ReduceOp::kProduct:
        result.mul_(part);
        break;
    }
  }
  if (op == ReduceOp::kMean) result.mul_(1.0 / static_cast<double>(parts.size()));
  return result.to(type);
}

at::Tensor reduced(Tensors parts, const std::vector<Reduction>& reductions) {
  for (const auto& [op, count] : reductions) {
    const std::span<const at::Tensor> all = parts;
    const auto length = static_cast<size_t>(count);
    Tensors results;
    for (size_t i = 0; i < all.size(); i += length) {
      results.push_back(reduced(all.subspan(i, length), op));
    }
    parts = std::move(results);
  }
  return parts.front();
}

Tensors empty_for(const Plan& plan, int64_t rank, const at::TensorOptions& options) {
  Tensors received(static_cast<size_t>(plan.num_ranks()), at::empty({0}, options));
  for (const Move& move : plan.moves_to(rank)) {
    if (move.from == rank) continue;
    received[static_cast<size_t>(move.from)] = at::empty({move.slice.numel()}, options);
  }
  return received;
}

}  // namespace

Tensors pack(const Plan& plan, int64_t rank, const at::Tensor& local) {
  Tensors sent(static_cast<size_t>(plan.num_ranks()), at::empty({0}, local.options()));
  for (const Move& move : plan.moves_from(rank)) {
    if (move.to == rank) continue;
    sent[static_cast<size_t>(move.to)] = part_of(local, plan.held(rank), move.slice);
  }
  return sent;
}

at::Tensor unpack(const Plan& plan, int64_t rank, const at::Tensor& local,
                  const Tensors& received) {
  const Slice& wanted = plan.wanted(rank);
  if (const auto fill = plan.fill(rank)) return at::full(wanted.sizes, *fill, local.options());
  at::Tensor result = at::empty(wanted.sizes, local.options());
  const std::vector<Move> moves = plan.moves_to(rank);
  const auto num_parts = static_cast<size_t>(plan.num_parts());
  for (size_t first = 0; first < moves.size(); first += num_parts) {
    const Slice& slice = moves[first].slice;
    Tensors parts;
    for (const Move& move : std::span(moves).subspan(first, num_parts)) {
      parts.push_back(move.from == rank
                          ? part_of(local, plan.held(rank), slice)
                          : received[static_cast<size_t>(move.from)].reshape(slice.sizes));
    }
    part_of(result, wanted, slice).copy_(reduced(std::move(parts), plan.reductions()));
  }
  return result;
}

at::Tensor exchange(const Plan& plan, const at::Tensor& local, comm::ProcessGroup& group) {
  const at::NoGradGuard no_grad;
  check_type(plan, local.scalar_type());
  const int64_t rank = group.rank();
  const Tensors received = empty_for(plan, rank, local.options());
  if (!plan.is_local()) group.all_to_all(received, pack(plan, rank, local));
  return unpack(plan, rank, local, received);
}

}  // namespace levin::shard
