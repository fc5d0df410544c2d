#pragma once
// QueuedBackend: c10d's interface over Collectives. Collectives run one after the other through a
// queue; sends and receives of each peer through queues of their own, so that they wait for nobody
// else.

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "levin/comm/collectives/collectives.h"
#include "levin/comm/collectives/serial_queue.h"

namespace levin::comm {

/// CPU tensors of any layout. asyncOp=false runs a collective in the caller's thread.
class QueuedBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  QueuedBackend(std::string name, int64_t rank, int64_t size, std::unique_ptr<Collectives> group);

  const std::string getBackendName() const override { return name_; }
  void setTimeout(std::chrono::milliseconds timeout) override;

  WorkPointer barrier(const c10d::BarrierOptions& options) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) override;
  /// outputs[0] are parts of any lengths, which every rank names; none is copied where they lie one
  /// behind the other.
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs,
                     const c10d::GatherOptions& options) override;
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const c10d::ScatterOptions& options) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override;
  /// The parts may have any lengths, as in allgather.
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& options) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& options) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_lengths,
                            std::vector<int64_t>& input_lengths,
                            const c10d::AllToAllOptions& options) override;
  WorkPointer send(Tensors& tensors, int to, int tag) override;
  WorkPointer recv(Tensors& tensors, int from, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

 protected:
  /// Runs a body after the collectives that were asked for before.
  void run(std::function<void()> body) { queue_.run(std::move(body)); }

 private:
  enum class Way { kTo, kFrom };

  WorkPointer call(c10d::OpType type, bool is_async, std::function<void()> body);
  WorkPointer work_of(c10d::OpType type, std::shared_ptr<SerialQueue::Call> call);
  SerialQueue& queue_of(int64_t peer, Way way);
  /// Each of them, some together: which, depends on types and sizes alone, as on all ranks. In the
  /// queue.
  void all_reduce_each(const std::vector<Elements>& all, Reduction by);
  void all_reduce_together(std::span<const Elements> all, Reduction by);
  void check_sizes(std::string_view name, const at::Tensor& whole, const at::Tensor& part) const;
  void check_parts(std::string_view name, Elements whole, Counts counts,
                   const at::Tensor& part) const;
  std::vector<int64_t> rows(const at::Tensor& tensor, const std::vector<int64_t>& lengths) const;

  std::string name_;
  std::unique_ptr<Collectives> group_;
  std::mutex mutex_;  ///< guards queues_
  // Last: they run to their end while the group is there.
  SerialQueue queue_;
  std::vector<std::byte> joined_;
  std::map<std::pair<int64_t, Way>, SerialQueue> queues_;
};

}  // namespace levin::comm
