#pragma once
// StagedBackend: collectives of the card's tensors by way of the host, over a backend for CPUs. NCCL refuses
// two ranks on one card; with it two processes can run what levin does on GPUs, on one. Each call waits for
// the card and returns when it is done.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/torch.h>

#include <functional>
#include <utility>
#include <vector>

#include "levin/comm/process_group.h"

namespace levin::test::gpu {

class StagedBackend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;

  explicit StagedBackend(c10::intrusive_ptr<c10d::Backend> below)
      : Backend(below->getRank(), below->getSize()), below_(std::move(below)) {}
  const std::string getBackendName() const override { return "staged"; }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return staged(tensors, [&](Tensors& copies) { return below_->allreduce(copies, options); });
  }
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override {
    return staged(tensors,
                  [&](Tensors& copies) { return below_->allreduce_coalesced(copies, options); });
  }
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    return staged(tensors, [&](Tensors& copies) { return below_->broadcast(copies, options); });
  }
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override {
    Tensors both = {output, input};
    return staged(both, [&](Tensors& copies) {
      return below_->_allgather_base(copies[0], copies[1], options);
    });
  }
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override {
    Tensors all = outputs.at(0);
    all.push_back(inputs.at(0));
    return staged(all, [&](Tensors& copies) {
      Tensors own = {copies.back()};
      std::vector<Tensors> parts = {Tensors(copies.begin(), copies.end() - 1)};
      return below_->allgather(parts, own, options);
    });
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override {
    Tensors both = {output, input};
    return staged(both, [&](Tensors& copies) {
      return below_->_reduce_scatter_base(copies[0], copies[1], options);
    });
  }
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override {
    Tensors all = inputs.at(0);
    all.push_back(outputs.at(0));
    return staged(all, [&](Tensors& copies) {
      Tensors own = {copies.back()};
      std::vector<Tensors> parts = {Tensors(copies.begin(), copies.end() - 1)};
      return below_->reduce_scatter(own, parts, options);
    });
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                            const c10d::AllToAllOptions& options) override {
    Tensors both = {output, input};
    return staged(both, [&](Tensors& copies) {
      return below_->alltoall_base(copies[0], copies[1], output_splits, input_splits, options);
    });
  }

 private:
  /// Work that has ended.
  struct Done final : c10d::Work {
    bool isCompleted() override { return true; }
    bool isSuccess() const override { return true; }
    bool wait(std::chrono::milliseconds) override { return true; }
    void synchronize() override {}
  };

  template <class Call>
  WorkPointer staged(Tensors& tensors, const Call& call) {
    const at::NoGradGuard no_grad;
    Tensors copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(tensor.cpu().contiguous());
    call(copies)->wait();
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(copies[i]);
    return c10::make_intrusive<Done>();
  }

  c10::intrusive_ptr<c10d::Backend> below_;
};

/// The group with its tensors on the card staged over its backend for CPUs.
comm::ProcessGroup staged(const comm::ProcessGroup& group);

}  // namespace levin::test::gpu
