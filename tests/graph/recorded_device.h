#pragma once
// A device whose graphs are recorded, on the CPU: as CUDA's they hold addresses and numbers as
// these were at the capture, do nothing while it lasts, and keep what was allocated in its course.

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/torch.h>

#include <deque>
#include <vector>

#include "levin/graph/record/interposer.h"
#include "levin/graph/replay/device_graphs_impl.h"

namespace levin::test {

class RecordedDevice final : public graph::DeviceGraphs, private graph::OperatorHandler {
 public:
  struct Log {
    int num_warm_ups = 0;
    std::vector<int> launches = {};  ///< of each graph
  };
  explicit RecordedDevice(Log& log) : log_(log) {}

  c10::Device device() const override { return at::kCPU; }
  void warm_up(const Run& run) override {
    ++log_.num_warm_ups;
    run();
  }
  size_t capture(const Run& run) override {
    graphs_.emplace_back();
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    const at::Tensor random = generator.get_state();
    {
      const graph::HandlerScope scope(*this);
      run();
    }
    generator.set_state(random);
    log_.launches.push_back(0);
    return graphs_.size() - 1;
  }
  void launch(size_t number) override {
    ++log_.launches[number];
    for (Operator& recorded : graphs_[number]) {
      std::vector<c10::IValue> stack = recorded.arguments;
      recorded.op.callBoxed(&stack);
      for (size_t i = 0; i < recorded.results.size(); ++i) {
        if (recorded.results[i].defined()) recorded.results[i].copy_(stack[i].toTensor());
      }
    }
  }

 private:
  struct Operator {
    c10::OperatorHandle op;
    std::vector<c10::IValue> arguments;
    std::vector<at::Tensor> results;
  };

  template <class Change>
  static std::vector<c10::IValue> changed(const std::vector<c10::IValue>& stack, Change change) {
    std::vector<c10::IValue> result;
    for (const c10::IValue& value : stack) {
      if (value.isTensor() && value.toTensor().defined()) {
        result.emplace_back(change(value.toTensor()));
      } else if (value.isTensorList()) {
        std::vector<at::Tensor> tensors;
        for (const at::Tensor& tensor : value.toTensorVector()) tensors.push_back(change(tensor));
        result.emplace_back(tensors);
      } else {
        result.push_back(value);
      }
    }
    return result;
  }
  /// What lies at that address, whoever owns it.
  static at::Tensor at_address(const at::Tensor& tensor) {
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), tensor.options());
  }

  void call(graph::OperatorCall& call) override {
    std::vector<c10::IValue> copies =
        changed(call.stack(), [](const at::Tensor& tensor) { return tensor.clone(); });
    Operator recorded{call.op(), changed(call.stack(), at_address), {}};
    call.op().callBoxed(&copies);
    for (c10::IValue& result : copies) {
      if (!result.isTensor() || !result.toTensor().defined()) {
        recorded.results.emplace_back();
        continue;
      }
      const at::Tensor owned = allocated_.emplace_back(result.toTensor().clone());
      // A gradient may outlive the graphs: who holds the memory keeps it.
      result = at::from_blob(
          owned.data_ptr(), owned.sizes(), owned.strides(), [owned](void*) {}, owned.options());
      recorded.results.push_back(at_address(owned));
    }
    if (call.op().schema().is_mutable()) recorded.results.clear();
    call.stack() = std::move(copies);
    graphs_.back().push_back(std::move(recorded));
  }

  Log& log_;
  std::deque<std::vector<Operator>> graphs_;
  std::deque<at::Tensor> allocated_;
};

}  // namespace levin::test
