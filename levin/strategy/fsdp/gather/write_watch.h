#pragma once
// WriteWatch: finds operators that write to a parameter within a forward or backward pass, of which no
// other rank would learn.

#include <vector>

#include "levin/strategy/fsdp/gather/leaf_places.h"
#include "levin/strategy/fsdp/gather/operator_aliases.h"

namespace c10 {
struct IValue;
}  // namespace c10

namespace levin::fsdp {

class WriteWatch {
 public:
  /// places outlive the object.
  explicit WriteWatch(const LeafPlaces& places) : places_(places) {}
  /// Throws Error "strategy.fsdp.write".
  void check(const c10::FunctionSchema& schema, const OperatorAliases::Aliases& aliases,
             const std::vector<c10::IValue>& stack) const;

 private:
  void check(const c10::FunctionSchema& schema, const at::Tensor& tensor) const;

  const LeafPlaces& places_;
};

}  // namespace levin::fsdp
