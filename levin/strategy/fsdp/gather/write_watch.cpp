#include "levin/strategy/fsdp/gather/write_watch.h"

#include <ATen/core/ivalue.h>

#include "levin/base/check.h"

namespace levin::fsdp {

void WriteWatch::check(const c10::FunctionSchema& schema, const OperatorAliases::Aliases& aliases,
                       const std::vector<c10::IValue>& stack) const {
  const size_t first = stack.size() - schema.arguments().size();
  for (const size_t argument : aliases.written) {
    const c10::IValue& value = stack[first + argument];
    if (value.isTensor()) check(schema, value.toTensor());
    if (!value.isTensorList()) continue;
    for (const c10::IValue& element : value.toListRef()) check(schema, element.toTensor());
  }
}

void WriteWatch::check(const c10::FunctionSchema& schema, const at::Tensor& tensor) const {
  const LeafPlace* place = places_.find(tensor);
  if (place == nullptr) return;
  LEVIN_FAIL(
      "strategy.fsdp.write",
      "{} writes to {} of unit {} within a forward or backward pass, where it is memory that "
      "all ranks read; write to parameters between steps, or within levin::WholeScope",
      schema.name(), place->leaf().name, place->unit->name());
}

}  // namespace levin::fsdp
