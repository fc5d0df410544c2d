// The table of operators and their lowerings.
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>

#include <algorithm>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

LoweringTable make_table() {
  LoweringTable table;
  for (const auto add : {add_pointwise,  add_special,        add_activations,  add_infinities,
                         add_views,      add_strided_views,  add_windows,      add_factories,
                         add_reductions, add_linear_algebra, add_convolutions, add_max_pools,
                         add_mean_pools, add_normalizations, add_weight_norms, add_indexing,
                         add_scatters,   add_embeddings,     add_sorting,      add_scans,
                         add_losses,     add_class_losses,   add_random,       add_draws,
                         add_optimizers, add_upsampling,     add_borders,      add_pixels,
                         add_exchanges,  add_chunked_nll}) {
    add(table);
  }
  return table;
}

std::string full_name(std::string_view name, std::string_view overload) {
  return overload.empty() ? std::string(name) : fmt::format("{}.{}", name, overload);
}

bool has_same_inputs(const c10::FunctionSchema& functional, const c10::FunctionSchema& out) {
  if (functional.arguments().size() >= out.arguments().size()) return false;
  for (size_t i = 0; i < out.arguments().size(); ++i) {
    const bool is_input = i < functional.arguments().size();
    if (out.arguments()[i].is_out() == is_input) return false;
    if (!is_input) continue;
    if (*out.arguments()[i].type() != *functional.arguments()[i].type()) return false;
  }
  return true;
}

using Overloads = std::vector<const c10::FunctionSchema*>;

/// The overload that returns what this one writes to its out arguments.
const c10::FunctionSchema* functional_of_out(const c10::FunctionSchema& schema,
                                             const Overloads& overloads) {
  const auto found = std::ranges::find_if(
      overloads, [&](const auto* other) { return has_same_inputs(*other, schema); });
  return found == overloads.end() ? nullptr : *found;
}

const LowerFunction* lowering_by_name(const LoweringTable& table, const c10::FunctionSchema& schema,
                                      const Overloads& overloads) {
  const auto find = [&](std::string_view name, std::string_view overload) -> const LowerFunction* {
    const auto place = table.find(full_name(name, overload));
    return place == table.end() ? nullptr : &place->second;
  };
  const std::string_view name = schema.name();
  if (const LowerFunction* found = find(name, schema.overload_name())) return found;
  if (name.ends_with('_')) return find(name.substr(0, name.size() - 1), schema.overload_name());
  if (schema.arguments().empty() || !schema.arguments().back().is_out()) return nullptr;
  const c10::FunctionSchema* functional = functional_of_out(schema, overloads);
  return functional == nullptr ? nullptr : find(functional->name(), functional->overload_name());
}

using Lowerings = std::unordered_map<const c10::FunctionSchema*, const LowerFunction*>;

/// The lowerings of all operators that exist, so that a node costs no search by name.
Lowerings make_lowerings(const LoweringTable& table) {
  std::unordered_map<std::string, Overloads> overloads;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (op) overloads[name.name].push_back(&op->schema());
  }
  Lowerings lowerings;
  for (const auto& [name, schemas] : overloads) {
    for (const c10::FunctionSchema* schema : schemas) {
      const LowerFunction* found = lowering_by_name(table, *schema, schemas);
      if (found != nullptr) lowerings.emplace(schema, found);
    }
  }
  return lowerings;
}

}  // namespace

const LowerFunction* find_host_lowering(const c10::OperatorHandle& op) {
  static const LoweringTable table = [] {
    LoweringTable made;
    add_host_operators(made);
    add_host_activations(made);
    add_host_attention(made);
    return made;
  }();
  const auto place = table.find(full_name(op.schema().name(), op.schema().overload_name()));
  return place == table.end() ? nullptr : &place->second;
}

const LowerFunction* find_lowering(const c10::OperatorHandle& op) {
  static const LoweringTable table = make_table();
  static const Lowerings lowerings = make_lowerings(table);
  const auto found = lowerings.find(&op.schema());
  return found == lowerings.end() ? nullptr : found->second;
}

}  // namespace levin::xla
