#include <array>
#include <utility>

#include "levin/base/check.h"
#include "levin/graph/text/text_impl.h"

namespace levin::graph {
namespace {

// fx's abbreviations.
constexpr std::array<std::pair<std::string_view, at::ScalarType>, 21> kDtypes = {{
    {"f32", at::kFloat},
    {"f64", at::kDouble},
    {"f16", at::kHalf},
    {"bf16", at::kBFloat16},
    {"i64", at::kLong},
    {"i32", at::kInt},
    {"i16", at::kShort},
    {"i8", at::kChar},
    {"u8", at::kByte},
    {"u16", at::kUInt16},
    {"u32", at::kUInt32},
    {"u64", at::kUInt64},
    {"b8", at::kBool},
    {"c32", at::kComplexHalf},
    {"c64", at::kComplexFloat},
    {"c128", at::kComplexDouble},
    {"f8e4m3fn", at::kFloat8_e4m3fn},
    {"f8e5m2", at::kFloat8_e5m2},
    {"f8e4m3fnuz", at::kFloat8_e4m3fnuz},
    {"f8e5m2fnuz", at::kFloat8_e5m2fnuz},
    {"f8e8m0fnu", at::kFloat8_e8m0fnu},
}};

constexpr std::array<std::pair<std::string_view, at::MemoryFormat>, 4> kMemoryFormats = {{
    {"contiguous_format", at::MemoryFormat::Contiguous},
    {"preserve_format", at::MemoryFormat::Preserve},
    {"channels_last", at::MemoryFormat::ChannelsLast},
    {"channels_last_3d", at::MemoryFormat::ChannelsLast3d},
}};

constexpr std::array<std::pair<std::string_view, at::Layout>, 4> kLayouts = {{
    {"strided", at::kStrided},
    {"sparse_coo", at::kSparse},
    {"sparse_csr", at::kSparseCsr},
    {"mkldnn", at::kMkldnn},
}};

template <class Table, class Key>
std::string_view name_in(const Table& table, Key key) {
  for (const auto& [name, value] : table) {
    if (value == key) return name;
  }
  return "?";
}

template <class Table>
auto value_in(const Table& table, std::string_view key) {
  std::optional<typename Table::value_type::second_type> found;
  for (const auto& [name, value] : table) {
    if (name == key) found = value;
  }
  return found;
}

/// "aten::_log_softmax_backward_data" gives "log_softmax_backward_data".
std::string stem_of(const Node& node) {
  if (!node.name().empty()) {
    std::string stem = node.name();
    for (char& letter : stem) {
      if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
    }
    return stem;
  }
  std::string_view name = node.target();
  name = name.substr(0, name.find('.'));
  if (const size_t colon = name.rfind(':'); colon != std::string_view::npos) {
    name.remove_prefix(colon + 1);
  }
  while (name.size() > 1 && name.front() == '_') name.remove_prefix(1);
  while (name.size() > 1 && name.back() == '_') name.remove_suffix(1);
  return std::string(name);
}

}  // namespace

std::string_view dtype_name(at::ScalarType dtype) { return name_in(kDtypes, dtype); }
std::optional<at::ScalarType> dtype_named(std::string_view name) { return value_in(kDtypes, name); }
std::string_view memory_format_name(at::MemoryFormat format) {
  return name_in(kMemoryFormats, format);
}
std::optional<at::MemoryFormat> memory_format_named(std::string_view name) {
  return value_in(kMemoryFormats, name);
}
std::string_view layout_name(at::Layout layout) { return name_in(kLayouts, layout); }
std::optional<at::Layout> layout_named(std::string_view name) { return value_in(kLayouts, name); }

Names::Names(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    const std::string stem = stem_of(node);
    for (const Value* value : node.outputs()) {
      give(*value, value->type().kind == ValueKind::kRandom ? "rng" : stem);
    }
  }
}

void Names::give(const Value& value, std::string name) {
  const int64_t count = counts_[name]++;
  std::string own = count == 0 ? name : fmt::format("{}_{}", name, count);
  // "a_1" may be the name of a parameter.
  if (count != 0 && counts_.contains(own)) return give(value, std::move(name));
  if (count != 0) counts_[own] = 1;
  names_[&value] = "%" + own;
}

const std::string& Names::of(const Value& value) const {
  const auto found = names_.find(&value);
  return found == names_.end() ? unknown_ : found->second;
}

}  // namespace levin::graph
