// Computes the results of a constructor's operator without memory: with its meta kernel, or by
// running it for real if it has none.
#include <ATen/ops/empty_strided.h>

#include <algorithm>

#include "levin/graph/meta/build_handler_impl.h"
#include "levin/graph/meta/evaluation_impl.h"

namespace levin::graph::meta {
namespace {

/// The numbers of a tensor are as its kernel leaves them, also where it has no elements.
at::Tensor without_memory(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::dtype(tensor.scalar_type()).device(at::kMeta));
}

}  // namespace

/// Leaves results without memory on the stack. An operator that only writes one tensor may lack a
/// kernel for tensors without memory; its result is that tensor.
void BuildHandler::run_shapes(OperatorCall& call, const Step& step, bool runs_on_meta) {
  torch::jit::Stack& stack = call.stack();
  const size_t count = step.info->num_parameters(), base = stack.size() - count;
  const torch::jit::Stack before(stack.end() - static_cast<int64_t>(count), stack.end());
  for (c10::IValue& value : std::span(stack).last(count)) {
    change_tensors(value, [](const at::Tensor& tensor) {
      const bool stays = !tensor.defined() || tensor.is_meta() || tensor.dim() == 0;
      return stays ? tensor : without_memory(tensor);
    });
  }
  try {
    return call.proceed();
  } catch (const c10::NotImplementedError&) {
    if (!runs_on_meta) {
      stack.resize(base);
      if (!step.info->is_result.empty()) stack.push_back(before[step.info->written.front()]);
      return;
    }
  } catch (const c10::Error&) {  // NOLINT(bugprone-empty-catch)
    // Running it shows whether that holds for tensors with memory too.
  }
  stack.resize(base);
  stack.insert(stack.end(), before.begin(), before.end());
  run_for_shapes(call, step);
}

/// By running the operator in truth, for one that has no kernel without memory. Its values are
/// dropped.
void BuildHandler::run_for_shapes(OperatorCall& call, const Step& step) {
  torch::jit::Stack& stack = call.stack();
  const size_t count = step.info->num_parameters();
  const torch::jit::Stack before(stack.end() - static_cast<int64_t>(count), stack.end());
  const Evaluation::Outcome outcome = Evaluation(&put_at_place).outcome(step);
  stack.resize(stack.size() - count);
  if (!std::ranges::any_of(step.info->is_result, std::identity())) {
    for (size_t i = 0; i < step.info->is_result.size(); ++i) {
      stack.push_back(before[step.info->written.at(i)]);
    }
    return;
  }
  size_t next = 0;
  for (const c10::Argument& result : step.info->op.schema().returns()) {
    if (result.type()->isSubtypeOf(*c10::ListType::ofTensors())) {
      c10::List<at::Tensor> list;
      while (next < outcome.results.size()) list.push_back(without_memory(outcome.results[next++]));
      stack.emplace_back(std::move(list));
    } else {
      const at::Tensor& tensor = outcome.results.at(next++);
      stack.emplace_back(tensor.defined() ? without_memory(tensor) : tensor);
    }
  }
}

}  // namespace levin::graph::meta
