#include <ATen/EmptyTensor.h>

#include "levin/base/check.h"
#include "levin/graph/interpret/stack_impl.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

/// In a graph an offset counts from the argument's first element.
void place_offset(const OperatorInfo& info, torch::jit::Stack& stack) {
  const bool is_strided = info.name == "aten::as_strided";
  if (!is_strided && info.name != "aten::as_strided_scatter") return;
  c10::IValue& offset = stack[is_strided ? 3 : 4];
  if (offset.isInt()) offset = offset.toInt() + stack[0].toTensor().storage_offset();
}

// reshape calls this if it need not copy: a view by strides that the kernel does not check,
// although they may come from a text that somebody else has written.
constexpr std::string_view kTrustingView = "aten::_reshape_alias";

void check_reach(const at::Tensor& view) {
  const size_t end = at::detail::computeStorageNbytes(view.sizes(), view.strides(), view.itemsize(),
                                                      view.storage_offset());
  LEVIN_CHECK(end <= view.storage().nbytes(), "graph.interpret",
              "{} reaches byte {} of memory that has {}; record the graph again", kTrustingView,
              end, view.storage().nbytes());
}

}  // namespace

torch::jit::Stack stack_of(const Node& node,
                           const std::function<at::Tensor(size_t, const Value&)>& tensor_of) {
  const OperatorInfo& info = info_of(node);
  torch::jit::Stack stack;
  for (size_t i = 0; i < info.num_parameters(); ++i) {
    const Argument& argument = node.arguments()[i];
    if (const c10::IValue* constant = constant_of(argument)) {
      // A missing optional tensor is None in the graph, and an undefined tensor for an operator
      // whose schema does not say so: attention's backward on a GPU gets one for the lengths of
      // sequences if all are equal.
      const bool is_undefined =
          constant->isNone() && info.parameters()[i].type()->kind() == c10::TypeKind::TensorType;
      stack.push_back(is_undefined ? c10::IValue(at::Tensor()) : *constant);
    } else if (Value* const* value = std::get_if<Value*>(&argument)) {
      stack.emplace_back(tensor_of(i, **value));
    } else if (info.parameters()[i].type()->isSubtypeOf(*c10::ListType::ofTensors())) {
      c10::List<at::Tensor> list;
      for (const Value* element : std::get<Values>(argument))
        list.push_back(tensor_of(i, *element));
      stack.emplace_back(std::move(list));
    } else {
      c10::List<std::optional<at::Tensor>> list;
      for (const Value* element : std::get<Values>(argument)) {
        list.push_back(element == nullptr ? std::nullopt : std::optional(tensor_of(i, *element)));
      }
      stack.emplace_back(std::move(list));
    }
  }
  place_offset(info, stack);
  return stack;
}

void append_results(const OperatorInfo& info, const torch::jit::Stack& stack,
                    std::vector<at::Tensor>& results) {
  const size_t first = stack.size() - info.is_result.size();
  if (info.name == kTrustingView) check_reach(stack[first].toTensor());
  for (size_t i = 0; i < info.is_result.size(); ++i) {
    if (!info.is_result[i]) continue;
    const c10::IValue& value = stack[first + i];
    if (value.isTensorList()) {
      for (const c10::IValue& element : value.toListRef()) results.push_back(element.toTensor());
    } else {
      results.push_back(value.isTensor() ? value.toTensor() : at::Tensor());
    }
  }
}

}  // namespace levin::graph
