// The end of a recording: its program runs.
#include <algorithm>

#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {

SplitDim split_dims(const Binding& binding) {
  return [&](const graph::Node& node) { return Contents::of(binding(node)).split_dim; };
}

void Recording::sync() {
  const std::scoped_lock lock(owner_.mutex);
  if (!is_in_step_) flush("");
}

/// The recorded tensors that are still there to be seen.
std::vector<at::Tensor> Recording::pending(std::vector<Contents*>& targets) const {
  std::vector<at::Tensor> results;
  for (Contents* contents : live_) {
    if (!contents->is_pending || !contents->buffers.empty()) continue;
    if (std::ranges::find(targets, contents) != targets.end()) continue;
    results.push_back(contents->base());
    targets.push_back(contents);
  }
  return results;
}

void Recording::flush(const std::string& reason) {
  const std::scoped_lock lock(owner_.mutex);
  if (is_in_step_) refuse_step(reason);
  if (recorder_ == nullptr && trace_.is_empty()) return;
  struct Ending {
    Recording& recording;
    ~Ending() { recording.end_recording(); }
  } const ending{*this};
  try {
    run_recorded();
  } catch (...) {
    lose_pending();
    throw;
  }
}

void Recording::run_recorded() {
  const std::vector<uint32_t> seen = trace_.seen();
  if (recorder_ == nullptr) {
    const CallTree::End* end = trace_.at()->end_of(seen, trace_.numbers());
    if (end != nullptr) return run_end(*end);
  }
  graph::Recorder& recorded = recorder();
  std::vector<Contents*> targets;
  // The recorder may be the last to hold some of them.
  const std::vector<at::Tensor> results = pending(targets);
  graph::Graph graph = recorded.finish(results);
  recorder_.reset();
  graph.eliminate_dead_code();
  const KnownProgram& known = run(graph, targets, step_binding(graph));
  if (!trace_.is_empty()) remember_end(seen, known, targets);
}

void Recording::end_recording() noexcept {
  recorder_.reset();
  calls_of_nodes_.clear();
  memo_.log.optimizer_nodes.clear();
  numbers_.clear();
  trace_.reset();
}

void Recording::lose_pending() noexcept {
  numbers_.clear();
  live_.lose_pending();
}

/// Ends a recording without running it. It must drop its tensors, since they keep the runtime that
/// it is a part of.
void Recording::abandon() noexcept {
  lose_pending();
  end_recording();
  forget_step();
}

const KnownProgram& Recording::run(const graph::Graph& graph, const std::vector<Contents*>& results,
                                   const Binding& binding) {
  try {
    const KnownProgram& known = memo_.program_of(graph, split_dims(binding));
    if (known.executable == nullptr) return known;
    const Program& program = known.program;
    devices_.execute(*known.executable, arguments_of(program, binding));
    devices_.take_outputs(program.outputs.size(), [&](size_t i) {
      const ProgramOutput& output = program.outputs[i];
      return output.updates != nullptr ? &Contents::of(binding(*output.updates))
                                       : results[output.index];
    });
    return known;
  } catch (...) {
    lose_pending();
    throw;
  }
}

/// A number of the host, as it was when the recording first read it.
double Recording::value_of(const RuntimeNumber& number, const Binding& binding) const {
  if (number.tensor == nullptr) return number.value;
  const at::Tensor& tensor = binding(*number.tensor);
  const auto known = numbers_.find(tensor.unsafeGetTensorImpl());
  if (known != numbers_.end()) return known->second.value;
  return tensor.scalar_type() == at::kDouble ? *tensor.const_data_ptr<double>()
                                             : static_cast<double>(*tensor.const_data_ptr<float>());
}

RunArguments Recording::arguments_of(const Program& program, const Binding& binding) const {
  RunArguments given = {.draws_random_numbers = program.draws_random_numbers};
  for (const graph::Node* input : program.inputs) {
    given.inputs.push_back(&Contents::of(binding(*input)));
  }
  for (const RuntimeNumber& number : program.numbers) {
    given.numbers.push_back(value_of(number, binding));
  }
  for (const RuntimeNumber& number : program.wide_numbers) {
    given.wide_numbers.push_back(value_of(number, binding));
  }
  return given;
}

}  // namespace levin::xla
