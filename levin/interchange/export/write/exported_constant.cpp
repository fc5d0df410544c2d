#include "levin/interchange/export/write/exported_constant.h"

#include <ATen/core/List.h>
#include <fmt/format.h>

#include <cmath>

#include "levin/base/check.h"
#include "levin/graph/optional_type.h"
#include "levin/interchange/program/read_operand.h"

namespace levin::interchange {

using c10::TypeKind;
using nlohmann::json;

namespace {

int64_t exported_format(at::MemoryFormat format) {
  switch (format) {
    case at::MemoryFormat::Contiguous:
      return 1;
    case at::MemoryFormat::ChannelsLast:
      return 2;
    case at::MemoryFormat::ChannelsLast3d:
      return 3;
    default:
      return 4;
  }
}

constexpr int64_t kStrided = 7;

int64_t exported_layout(at::Layout layout) {
  LEVIN_CHECK(layout == at::kStrided, "interchange.export.operator",
              "the layout {} cannot be exported: an argument", c10::str(layout));
  return kStrided;
}

template <class Items, class Each>
json list_of(const Items& items, const Each& each) {
  json list = json::array();
  for (const auto& item : items) list.push_back(each(item));
  return list;
}

}  // namespace

int64_t exported_dtype(at::ScalarType dtype) {
  for (const auto& [number, known] : exported_dtypes()) {
    if (known == dtype) return number;
  }
  LEVIN_FAIL("interchange.export.operator",
             "torch.export has no number for the dtype {}: an argument or a result",
             c10::toString(dtype));
}

json exported_device(at::Device device) {
  return {{"type", c10::DeviceTypeName(device.type(), /*lower_case=*/true)},
          {"index", device.has_index() ? json(device.index()) : json()}};
}

json exported_meta(at::ScalarType dtype, at::Device device, json sizes, json strides,
                   int64_t storage_offset, bool requires_grad) {
  return {{"dtype", exported_dtype(dtype)},
          {"sizes", std::move(sizes)},
          {"requires_grad", requires_grad},
          {"device", exported_device(device)},
          {"strides", std::move(strides)},
          {"storage_offset", {{"as_int", storage_offset}}},
          {"layout", kStrided}};
}

json exported_real(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "Infinity" : "-Infinity";
  return number;
}

json exported_constant(const c10::IValue& constant, const c10::TypePtr& real_type) {
  const TypeKind kind = graph::without_optional(real_type)->kind();
  if (constant.isNone()) return {{"as_none", true}};
  if (constant.isBool()) return {{"as_bool", constant.toBool()}};
  if (constant.isInt()) {
    const int64_t number = constant.toInt();
    if (kind == TypeKind::ScalarTypeType) {
      return {{"as_scalar_type", exported_dtype(static_cast<at::ScalarType>(number))}};
    }
    if (kind == TypeKind::LayoutType) {
      return {{"as_layout", exported_layout(static_cast<at::Layout>(number))}};
    }
    if (kind == TypeKind::MemoryFormatType) {
      return {{"as_memory_format", exported_format(static_cast<at::MemoryFormat>(number))}};
    }
    return {{"as_int", number}};
  }
  if (constant.isDouble()) return {{"as_float", exported_real(constant.toDouble())}};
  if (constant.isComplexDouble()) {
    const auto number = constant.toComplexDouble();
    return {{"as_complex",
             {{"real", exported_real(number.real())}, {"imag", exported_real(number.imag())}}}};
  }
  if (constant.isString()) return {{"as_string", constant.toStringRef()}};
  if (constant.isDevice()) return {{"as_device", exported_device(constant.toDevice())}};
  if (constant.isIntList()) return {{"as_ints", constant.toIntVector()}};
  if (constant.isDoubleList()) {
    return {{"as_floats", list_of(constant.toDoubleVector(), exported_real)}};
  }
  if (constant.isBoolList()) {
    json list = json::array();
    for (const bool item : constant.toBoolList()) list.push_back(item);
    return {{"as_bools", std::move(list)}};
  }
  if (constant.isList() && constant.toListRef().empty()) return {{"as_ints", json::array()}};
  LEVIN_FAIL("interchange.export.operator", "a {} cannot be exported: an argument",
             constant.tagKind());
}

std::string formula_text(const SizeFormula& formula, const std::vector<Symbol>& symbols) {
  using Kind = SizeFormula::Kind;
  const auto call = [&](const char* function) {
    return fmt::format("{}({}, {})", function, formula_text(formula.left(), symbols),
                       formula_text(formula.right(), symbols));
  };
  switch (formula.kind()) {
    case Kind::kDim: {
      const Symbol& symbol = symbols[formula.index()];
      const std::string own = fmt::format("Symbol('{}', positive=True, integer=True)", symbol.name);
      return symbol.multiple_of == 1 ? own
                                     : fmt::format("Mul(Integer({}), {})", symbol.multiple_of, own);
    }
    case Kind::kAdd:
      return call("Add");
    case Kind::kMul:
      return call("Mul");
    case Kind::kFloorDiv:
      return call("FloorDiv");
    case Kind::kNumber:
      break;
  }
  return fmt::format("Integer({})", formula.number());
}

json exported_size(const SizeFormula& formula, const std::vector<Symbol>& symbols) {
  if (formula.is_number()) return {{"as_int", formula.number()}};
  std::vector<int64_t> sizes;
  for (const Symbol& symbol : symbols) sizes.push_back(symbol.size);
  return {{"as_expr",
           {{"expr_str", formula_text(formula, symbols)},
            {"hint", {{"as_int", formula.value(sizes)}}}}}};
}

}  // namespace levin::interchange
