#include <algorithm>
#include <array>

#include "levin/graph/text/text_line_impl.h"

namespace levin::graph {
namespace {

constexpr std::array<std::string_view, 15> kOfLibTorch = {
    "_quantized", "_test",     "inductor",  "mkldnn", "mkldnn_prepacked",
    "onednn",     "onnx",      "prepacked", "prim",   "prims",
    "profiler",   "quantized", "rngprims",  "sparse", "static_runtime"};

/// Operators with "unsafe" in their names that check their arguments like those without it.
constexpr std::array<std::string_view, 4> kSafe = {"aten::_unsafe_view", "aten::unsafe_chunk",
                                                   "aten::unsafe_split",
                                                   "aten::unsafe_split_with_sizes"};

/// Parts of names. Nested and sparse tensors are made of index tensors that kernels believe.
constexpr std::array<std::string_view, 7> kRawMemory = {
    "unsafe", "_nested", "sparse", "data_ptr", "reinterpret", "_resize_output", "set_data"};

}  // namespace

std::string_view reason_to_refuse(std::string_view name) {
  const std::string_view base = name.substr(0, name.find('.'));
  const std::string_view space = base.substr(0, base.find("::"));
  if (base == "aten::from_file" || base == "aten::save" || base == "aten::load") {
    return "opens files";
  }
  if (base == "aten::_print" || base == "aten::set_") return "reaches beyond its arguments";
  if (std::ranges::find(kOfLibTorch, space) != kOfLibTorch.end()) return "is no operator of ATen";
  if (std::ranges::find(kSafe, base) != kSafe.end()) return "";
  if (base == "aten::_reshape_alias_copy") return "does not check its arguments";
  const bool is_raw = std::ranges::any_of(
      kRawMemory, [&](std::string_view part) { return base.find(part) != std::string_view::npos; });
  return space == "aten" && is_raw ? "does not check its arguments" : "";
}

bool is_unchecked_flag(std::string_view parameter) { return parameter == "unsafe"; }

}  // namespace levin::graph
