#include "levin/accelerator/compiled/loop_recording.h"

#include <utility>

#include "levin/accelerator/compiled/graph_file.h"

namespace levin::detail {

LoopRecording::LoopRecording(std::function<Tensors()> tensors, std::function<void()> describe)
    : is_on_(!graph_file().empty()), tensors_(std::move(tensors)), describe_(std::move(describe)) {}

void LoopRecording::take_input(const Batch& batch) {
  if (!is_on_) return;
  batch_ = batch;
  if (session_ != nullptr) add_inputs(batch);
}

void LoopRecording::begin_batch() {
  if (first_ == nullptr) return;
  is_of_batch_ = true;
  start();
}

void LoopRecording::end_step(const optim::Optimizer& optimizer) {
  if (!is_on_) return;
  if (first_ == nullptr) {
    first_ = last_ = &optimizer;
    return start();
  }
  if (!is_of_batch_ && &optimizer != first_) last_ = &optimizer;
  if (&optimizer != (is_of_batch_ ? last_ : first_)) return;
  keep_graph(session_->finish(), describe_);
  start();
}

void LoopRecording::start() {
  session_.reset();  // one at a time
  const Tensors tensors = tensors_();
  session_ = std::make_unique<graph::RecordingSession>(tensors.state);
  num_batches_ = 0;
  add_inputs(batch_);
  for (const NamedTensor& parameter : tensors.parameters) {
    if (!parameter.tensor.grad().defined()) continue;
    session_->add_input("gradient of " + parameter.name, parameter.tensor.grad());
  }
}

void LoopRecording::add_inputs(const Batch& batch) {
  const std::string number = num_batches_ == 0 ? "" : "_" + std::to_string(num_batches_);
  ++num_batches_;
  for (const auto& [name, tensor] : batch) session_->add_input(name + number, tensor);
}

}  // namespace levin::detail
