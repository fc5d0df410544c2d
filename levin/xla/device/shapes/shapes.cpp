#include <unordered_map>

#include "levin/xla/device/shapes/shapes_impl.h"

namespace levin::xla {
namespace {

using Schemas = std::unordered_map<const c10::FunctionSchema*, ShapeFunction>;

Schemas known_schemas() {
  Schemas known;
  for (const auto& shapes : {layer_shapes(), element_shapes()}) {
    for (const auto& [name, shape] : shapes) {
      const std::string_view full = name;
      const size_t dot = full.find('.');
      const std::string base(full.substr(0, dot));
      const std::string overload(dot == std::string_view::npos ? "" : full.substr(dot + 1));
      const auto op = c10::Dispatcher::singleton().findSchema({base, overload});
      if (op) known.emplace(&op->schema(), shape);
    }
  }
  return known;
}

}  // namespace

ShapeFunction find_shape(const c10::OperatorHandle& op) {
  static const Schemas known = known_schemas();
  const auto found = known.find(&op.schema());
  return found == known.end() ? nullptr : found->second;
}

}  // namespace levin::xla
