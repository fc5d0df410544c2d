#include "levin/comm/collectives/queued_backend.h"

#include <algorithm>
#include <string_view>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/comm/collectives/pieces.h"

namespace levin::comm {
namespace {

using c10d::OpType;
using Tensors = QueuedBackend::Tensors;
using WorkPointer = QueuedBackend::WorkPointer;

Reduction reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return Reduction::kSum;
    case c10d::ReduceOp::AVG:
      return Reduction::kMean;
    case c10d::ReduceOp::MIN:
      return Reduction::kMin;
    case c10d::ReduceOp::MAX:
      return Reduction::kMax;
    case c10d::ReduceOp::PRODUCT:
      return Reduction::kProduct;
    case c10d::ReduceOp::BAND:
      return Reduction::kAnd;
    case c10d::ReduceOp::BOR:
      return Reduction::kOr;
    case c10d::ReduceOp::BXOR:
      return Reduction::kXor;
    default:
      LEVIN_FAIL("comm.reduce",
                 "got a reduction that this backend does not have; use sum, mean, min, max, "
                 "product or a bitwise one");
  }
}

class LaneWork final : public c10d::Work {
 public:
  LaneWork(c10::intrusive_ptr<c10d::Backend> backend, OpType type,
           std::shared_ptr<SerialQueue::Call> call)
      : Work(backend->getRank(), type), backend_(std::move(backend)), call_(std::move(call)) {}

  bool isCompleted() override { return call_ == nullptr || call_->done(); }
  bool isSuccess() const override { return call_ == nullptr || (call_->done() && !call_->error()); }
  std::exception_ptr exception() const override {
    return call_ == nullptr ? nullptr : call_->error();
  }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(std::chrono::milliseconds) override {
    if (call_ != nullptr) call_->wait();
    return true;
  }

 private:
  c10::intrusive_ptr<c10d::Backend> backend_;  // the backend whose queue runs the call
  std::shared_ptr<SerialQueue::Call> call_;    // none when it has run
};

}  // namespace

QueuedBackend::QueuedBackend(std::string name, int64_t rank, int64_t size,
                             std::unique_ptr<Collectives> group)
    : Backend(static_cast<int>(rank), static_cast<int>(size)),
      name_(std::move(name)),
      group_(std::move(group)) {}

void QueuedBackend::setTimeout(std::chrono::milliseconds timeout) {
  queue_.run([&] { group_->set_timeout(timeout); });
}

WorkPointer QueuedBackend::barrier(const c10d::BarrierOptions& options) {
  return call(OpType::BARRIER, options.asyncOp, [this] { group_->barrier(); });
}

WorkPointer QueuedBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return call(OpType::ALLREDUCE, options.asyncOp,
              [this, pieces = pieces_of(tensors), by = reduction_of(options.reduceOp)] {
                all_reduce_each(all_of(pieces), by);
                give_back(pieces);
              });
}

void QueuedBackend::all_reduce_each(const std::vector<Elements>& all, Reduction by) {
  constexpr int64_t kMostJoined = int64_t{32} << 20;  // one call more is nothing beside it
  const int64_t most = group_->bytes_to_join();
  const auto joins = [&](size_t i, at::ScalarType type) {
    return i < all.size() && all[i].type == type && all[i].bytes() <= most;
  };
  for (size_t i = 0, end = 0; i < all.size(); i = end) {
    int64_t bytes = all[i].bytes();
    end = i + 1;
    if (joins(i, all[i].type)) {
      for (; joins(end, all[i].type) && bytes <= kMostJoined; ++end) bytes += all[end].bytes();
    }
    all_reduce_together(std::span(all).subspan(i, end - i), by);
  }
}

void QueuedBackend::all_reduce_together(std::span<const Elements> all, Reduction by) {
  Elements whole = all.front();
  bool lie_together = true;
  for (const Elements& next : all.subspan(1)) {
    lie_together = lie_together && next.data == whole.data + whole.bytes();
    whole.count += next.count;
  }
  if (lie_together) return group_->all_reduce(whole, by);
  joined_.resize(std::max(joined_.size(), static_cast<size_t>(whole.bytes())));
  whole.data = joined_.data();
  std::byte* place = joined_.data();
  for (const Elements& each : all) {
    copy_bytes(place, each.data, each.bytes());
    place += each.bytes();
  }
  group_->all_reduce(whole, by);
  place = joined_.data();
  for (const Elements& each : all) {
    copy_bytes(each.data, place, each.bytes());
    place += each.bytes();
  }
}

WorkPointer QueuedBackend::allreduce_coalesced(Tensors& tensors,
                                               const c10d::AllreduceCoalescedOptions& options) {
  return allreduce(tensors, options);
}

WorkPointer QueuedBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return call(OpType::REDUCE, options.asyncOp,
              [this, pieces = pieces_of(tensors), root = options.rootRank,
               by = reduction_of(options.reduceOp)] {
                for (const Piece& piece : pieces) group_->reduce(piece, root, by);
                give_back(pieces);
              });
}

WorkPointer QueuedBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return call(OpType::BROADCAST, options.asyncOp,
              [this, pieces = pieces_of(tensors), root = options.rootRank] {
                for (const Piece& piece : pieces) group_->broadcast(piece, root);
                give_back(pieces);
              });
}

WorkPointer QueuedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                           const c10d::AllgatherOptions& options) {
  check_sizes("all_gather", output, input);
  return call(OpType::_ALLGATHER_BASE, options.asyncOp,
              [this, result = Piece(output), part = Piece(input),
               counts = equal_counts(getSize(), input.numel())] {
                group_->all_gather(result, part, counts);
                result.give_back();
              });
}

WorkPointer QueuedBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& options) {
  for (size_t i = 0; i < inputs.size(); ++i) check_sizes("all_gather", outputs[i], inputs[i]);
  return call(OpType::COALESCED, options.asyncOp,
              [this, results = pieces_of(outputs), parts = pieces_of(inputs)] {
                for (size_t i = 0; i < parts.size(); ++i) {
                  const Elements part = parts[i];
                  group_->all_gather(results[i], part, equal_counts(getSize(), part.count));
                }
                give_back(results);
              });
}

WorkPointer QueuedBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                     const c10d::AllgatherOptions& options) {
  Whole results("all_gather", outputs.at(0));
  check_parts("all_gather", results, results.counts(), inputs.at(0));
  return call(OpType::ALLGATHER, options.asyncOp,
              [this, results = std::move(results), part = Piece(inputs.at(0))] {
                group_->all_gather(results, part, results.counts());
                results.give_back();
              });
}

WorkPointer QueuedBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::GatherOptions& options) {
  const Tensors none;
  const bool is_root = options.rootRank == getRank();
  return call(OpType::GATHER, options.asyncOp,
              [this, results = pieces_of(is_root ? outputs.at(0) : none),
               part = Piece(inputs.at(0)), root = options.rootRank] {
                group_->gather(all_of(results), part, root);
                give_back(results);
              });
}

WorkPointer QueuedBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ScatterOptions& options) {
  const Tensors none;
  const bool is_root = options.rootRank == getRank();
  return call(OpType::SCATTER, options.asyncOp,
              [this, result = Piece(outputs.at(0)),
               parts = pieces_of(is_root ? inputs.at(0) : none), root = options.rootRank] {
                group_->scatter(result, all_of(parts), root);
                result.give_back();
              });
}

WorkPointer QueuedBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::ReduceScatterOptions& options) {
  check_sizes("reduce_scatter", input, output);
  return call(
      OpType::_REDUCE_SCATTER_BASE, options.asyncOp,
      [this, result = Piece(output), data = Piece(input),
       counts = equal_counts(getSize(), output.numel()), by = reduction_of(options.reduceOp)] {
        group_->reduce_scatter(result, data, counts, by);
        result.give_back();
      });
}

WorkPointer QueuedBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                          const c10d::ReduceScatterOptions& options) {
  Whole data("reduce_scatter", inputs.at(0));
  check_parts("reduce_scatter", data, data.counts(), outputs.at(0));
  return call(OpType::REDUCE_SCATTER, options.asyncOp,
              [this, result = Piece(outputs.at(0)), data = std::move(data),
               by = reduction_of(options.reduceOp)] {
                group_->reduce_scatter(result, data, data.counts(), by);
                result.give_back();
              });
}

WorkPointer QueuedBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  for (size_t i = 0; i < inputs.size(); ++i) check_sizes("reduce_scatter", inputs[i], outputs[i]);
  return call(OpType::COALESCED, options.asyncOp,
              [this, results = pieces_of(outputs), data = pieces_of(inputs),
               by = reduction_of(options.reduceOp)] {
                for (size_t i = 0; i < data.size(); ++i) {
                  const Elements result = results[i];
                  group_->reduce_scatter(result, data[i], equal_counts(getSize(), result.count),
                                         by);
                }
                give_back(results);
              });
}

WorkPointer QueuedBackend::alltoall(Tensors& outputs, Tensors& inputs,
                                    const c10d::AllToAllOptions& options) {
  return call(OpType::ALLTOALL, options.asyncOp,
              [this, results = pieces_of(outputs), parts = pieces_of(inputs)] {
                group_->all_to_all(all_of(results), all_of(parts));
                give_back(results);
              });
}

WorkPointer QueuedBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                         std::vector<int64_t>& output_lengths,
                                         std::vector<int64_t>& input_lengths,
                                         const c10d::AllToAllOptions& options) {
  return call(OpType::ALLTOALL_BASE, options.asyncOp,
              [this, result = Piece(output), data = Piece(input), to = rows(output, output_lengths),
               from = rows(input, input_lengths)] {
                group_->all_to_all(cut(result, to), cut(data, from));
                result.give_back();
              });
}

WorkPointer QueuedBackend::send(Tensors& tensors, int to, int tag) {
  return work_of(OpType::SEND,
                 queue_of(to, Way::kTo).start([this, pieces = pieces_of(tensors), to, tag] {
                   for (const Piece& piece : pieces) group_->send(piece, to, tag);
                 }));
}

WorkPointer QueuedBackend::recv(Tensors& tensors, int from, int tag) {
  return work_of(OpType::RECV,
                 queue_of(from, Way::kFrom).start([this, pieces = pieces_of(tensors), from, tag] {
                   for (const Piece& piece : pieces) group_->receive(piece, from, tag);
                   give_back(pieces);
                 }));
}

WorkPointer QueuedBackend::recvAnysource(Tensors&, int) {
  LEVIN_FAIL("comm.unsupported",
             "the {} backend cannot receive from an arbitrary rank; call recv with the source rank",
             name_);
}

WorkPointer QueuedBackend::call(OpType type, bool is_async, std::function<void()> body) {
  // In another thread, or in this one when it is about something else. The queue's thread may also
  // run what this thread waits for.
  auto labelled = [label = current_label(), body = std::move(body)] {
    const LabelScope scope(label);
    body();
  };
  if (is_async) return work_of(type, queue_.start(std::move(labelled)));
  queue_.run(std::move(labelled));
  return work_of(type, nullptr);
}

WorkPointer QueuedBackend::work_of(OpType type, std::shared_ptr<SerialQueue::Call> call) {
  return c10::make_intrusive<LaneWork>(c10::intrusive_ptr<c10d::Backend>::reclaim_copy(this), type,
                                       std::move(call));
}

SerialQueue& QueuedBackend::queue_of(int64_t peer, Way way) {
  LEVIN_CHECK(
      peer >= 0 && peer < getSize() && peer != getRank(), "comm.rank",
      "rank {} of {} cannot send to or receive from rank {}; name another rank of the group",
      getRank(), getSize(), peer);
  const std::lock_guard lock(mutex_);
  return queues_[{peer, way}];
}

void QueuedBackend::check_sizes(std::string_view name, const at::Tensor& whole,
                                const at::Tensor& part) const {
  LEVIN_CHECK(
      whole.numel() == part.numel() * getSize() && whole.scalar_type() == part.scalar_type(),
      "comm.tensor",
      "{}: got a full tensor of {} elements of {} and parts of {} elements of {} on each of {} "
      "ranks, wanted parts of the same dtype that fill the full tensor",
      name, whole.numel(), c10::toString(whole.scalar_type()), part.numel(),
      c10::toString(part.scalar_type()), getSize());
}

void QueuedBackend::check_parts(std::string_view name, Elements whole, Counts counts,
                                const at::Tensor& part) const {
  const auto own = static_cast<size_t>(getRank());
  LEVIN_CHECK(std::ssize(counts) == getSize() && counts[own] == part.numel() &&
                  whole.type == part.scalar_type(),
              "comm.tensor",
              "{}: got parts of {} x {} for {} ranks and a part of {} x {} on rank {}, wanted one "
              "count per rank that matches its part",
              name, to_text(std::vector<int64_t>(counts.begin(), counts.end())),
              c10::toString(whole.type), getSize(), part.numel(), c10::toString(part.scalar_type()),
              getRank());
}

/// Elements for each rank: of rows as many as given, or all in equal parts.
std::vector<int64_t> QueuedBackend::rows(const at::Tensor& tensor,
                                         const std::vector<int64_t>& lengths) const {
  const int64_t size = getSize();
  const int64_t all = tensor.dim() == 0 ? 1 : tensor.size(0);
  std::vector<int64_t> counts = lengths;
  if (counts.empty()) counts.assign(static_cast<size_t>(size), all / size);
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  LEVIN_CHECK(std::ssize(counts) == size && total == all, "comm.tensor",
              "all_to_all: got {} rows and {} split sizes that sum to {}, wanted one split size "
              "per rank that sum to the rows",
              all, counts.size(), total);
  for (int64_t& count : counts) count *= all == 0 ? 0 : tensor.numel() / all;
  return counts;
}

}  // namespace levin::comm
