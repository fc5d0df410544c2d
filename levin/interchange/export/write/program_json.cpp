#include "levin/interchange/export/write/program_json.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <torch/version.h>

#include <algorithm>

#include "levin/interchange/export/record/output_tree.h"
#include "levin/interchange/export/write/graph_writer.h"

namespace levin::interchange {

using nlohmann::json;

namespace {

/// PyTorch 2.11's. Every reader takes another minor version of the same major one.
constexpr int kMajorVersion = 8, kMinorVersion = 17;
constexpr int kAtenOpset = 10;

json ranges_of(const std::vector<Symbol>& symbols) {
  json ranges = json::object();
  for (const Symbol& symbol : symbols) {
    const int64_t step = symbol.multiple_of;
    ranges[symbol.name] = {{"min_val", (symbol.min.value_or(step) + step - 1) / step},
                           {"max_val", symbol.max ? json(*symbol.max / step) : json()}};
  }
  return ranges;
}

}  // namespace

std::string constant_prefix(const torch::nn::Module& module,
                            const std::vector<ModuleTensor>& tensors) {
  std::string prefix = "constant_";
  const auto is_taken = [&] {
    const auto begins = [&](const std::string& name) { return name.starts_with(prefix); };
    return std::ranges::any_of(tensors, begins, &ModuleTensor::name) ||
           std::ranges::any_of(module.named_children().keys(), begins);
  };
  while (is_taken()) prefix = "_" + prefix;
  return prefix;
}

std::string constant_name(const std::string& prefix, size_t index) {
  return fmt::format("{}{}", prefix, index);
}

std::string program_json(const Recordings& recordings, const ProgramParts& parts) {
  GraphWriter writer(recordings, parts);
  json graph = writer.graph();
  json calls = json::array();
  for (const std::string& path : writer.stack().paths()) {
    calls.push_back({{"fqn", path}, {"signature", nullptr}});
  }
  calls[0]["signature"] = {{"inputs", json::array()},
                           {"outputs", json::array()},
                           {"in_spec", input_tree_of(parts.input_names.size())},
                           {"out_spec", recordings.each.front().output_tree},
                           {"forward_arg_names", parts.input_names}};
  const json program = {{"graph_module",
                         {{"graph", std::move(graph)},
                          {"signature", writer.signature()},
                          {"module_call_graph", std::move(calls)},
                          {"metadata", json::object()},
                          {"treespec_namedtuple_fields", json::object()}}},
                        {"opset_version", {{"aten", kAtenOpset}}},
                        {"range_constraints", ranges_of(parts.symbols)},
                        {"schema_version", {{"major", kMajorVersion}, {"minor", kMinorVersion}}},
                        {"verifiers", {"TRAINING"}},
                        {"torch_version", TORCH_VERSION},
                        {"guards_code", json::array()}};
  return program.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
}

}  // namespace levin::interchange
