#include "levin/interchange/program/read_operand.h"

#include <ATen/core/List.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/util/complex.h>
#include <fmt/format.h>

#include <array>
#include <map>
#include <utility>

#include "levin/interchange/program/json_value.h"

namespace levin::interchange {
namespace {

constexpr size_t kMostDims = 64;

at::ScalarType dtype_of(int64_t number) {
  const auto found = exported_dtypes().find(number);
  if (found == exported_dtypes().end())
    fail_reading(fmt::format("the dtype {} is unknown", number));
  return found->second;
}

// torch.export's numbers are neither LibTorch's nor Python's.
constexpr std::array kLayouts = {at::kStrided,   at::kSparse,    at::kSparseCsr, at::kSparseCsc,
                                 at::kSparseBsr, at::kSparseBsc, at::kMkldnn,    at::kStrided};
constexpr std::array kFormats = {at::MemoryFormat::Contiguous, at::MemoryFormat::Contiguous,
                                 at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d,
                                 at::MemoryFormat::Preserve};

Operand constant_of(c10::IValue value) {
  Operand made;
  made.constant = std::move(value);
  return made;
}
Operand slot_of(Slot slot) {
  Operand made;
  made.kind = Operand::Kind::kSlot;
  made.slot = slot;
  return made;
}

template <class Table>
auto number_in(const Table& table, const JsonValue& value, const char* what) {
  const int64_t number = value.integer(what);
  if (number < 0 || static_cast<size_t>(number) >= table.size()) {
    fail_reading(fmt::format("{} {} is unknown", what, number));
  }
  return table[static_cast<size_t>(number)];
}

c10::Device device_of(const JsonValue& value) {
  const std::string& type = value.field("type").text("a device's type");
  const auto index = value.find_field("index");
  try {
    return c10::Device(!index ? type
                              : fmt::format("{}:{}", type, index->integer("a device's index")));
  } catch (const c10::Error&) {
    fail_reading(fmt::format("the device '{}' is unknown", type));
  }
}

template <class T, class Read>
Operand constants(const JsonValue& value, const Read& read) {
  c10::List<T> list;
  for (const JsonValue& item : value.items("a list")) list.push_back(read(item));
  return constant_of(std::move(list));
}

/// An integer of the schema's SymIntArgument and its like: {"as_name": "s0"} or {"as_int": 3}.
Operand symbolic(const JsonValue& value, const std::function<Slot(const std::string&)>& use) {
  const auto [kind, own] = value.only_field();
  if (kind == "as_name") return slot_of(use(own.text("a name")));
  if (kind == "as_int") return constant_of(own.integer("an integer"));
  if (kind == "as_float") return constant_of(own.number("a number"));
  if (kind == "as_bool") return constant_of(own.flag("a flag"));
  fail_reading(fmt::format("a symbolic number has the unknown kind '{}'", kind));
}

template <class Read>
Operand items(const JsonValue& value, const Read& read) {
  Operand made;
  made.kind = Operand::Kind::kList;
  for (const JsonValue& item : value.items("a list")) made.items.push_back(read(item));
  return made;
}

Expression size_of(const JsonValue& value) {
  const auto [kind, own] = value.only_field();
  if (kind == "as_int") return Expression::parse(std::to_string(own.integer("a size")));
  return Expression::parse(own.field("expr_str").text("expr_str"));
}

}  // namespace

const std::map<int64_t, at::ScalarType>& exported_dtypes() {
  static const std::map<int64_t, at::ScalarType> known = {
      {1, at::kByte},
      {2, at::kChar},
      {3, at::kShort},
      {4, at::kInt},
      {5, at::kLong},
      {6, at::kHalf},
      {7, at::kFloat},
      {8, at::kDouble},
      {9, at::kComplexHalf},
      {10, at::kComplexFloat},
      {11, at::kComplexDouble},
      {12, at::kBool},
      {13, at::kBFloat16},
      {28, at::kUInt16},
      {29, at::kFloat8_e4m3fn},
      {30, at::kFloat8_e5m2},
      {31, at::kFloat8_e4m3fnuz},
      {32, at::kFloat8_e5m2fnuz},
      {33, at::kFloat8_e8m0fnu},
      {34, at::kUInt32},
      {35, at::kUInt64},
  };
  return known;
}
Operand read_operand(const std::string& kind, const JsonValue& value,
                     const std::function<Slot(const std::string&)>& use, std::string& unsupported) {
  const auto tensor = [&](const JsonValue& item) {
    return slot_of(use(item.field("name").text("a name")));
  };
  const auto optional_tensor = [&](const JsonValue& item) {
    const auto [item_kind, own] = item.only_field();
    return item_kind == "as_none" ? constant_of({}) : tensor(own);
  };
  const auto number = [&](const JsonValue& item) { return symbolic(item, use); };
  if (kind == "as_none") return constant_of({});
  if (kind == "as_tensor") return tensor(value);
  if (kind == "as_optional_tensor") return optional_tensor(value);
  if (kind == "as_tensors") return items(value, tensor);
  if (kind == "as_optional_tensors") return items(value, optional_tensor);
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") return number(value);
  if (kind == "as_sym_ints" || kind == "as_sym_floats" || kind == "as_sym_bools") {
    return items(value, number);
  }
  if (kind == "as_int") return constant_of(value.integer("an integer"));
  if (kind == "as_ints")
    return constants<int64_t>(value,
                              [](const JsonValue& item) { return item.integer("an integer"); });
  if (kind == "as_float") return constant_of(value.number("a number"));
  if (kind == "as_floats")
    return constants<double>(value, [](const JsonValue& item) { return item.number("a number"); });
  if (kind == "as_bool") return constant_of(value.flag("a flag"));
  if (kind == "as_bools")
    return constants<bool>(value, [](const JsonValue& item) { return item.flag("a flag"); });
  if (kind == "as_string") return constant_of(value.text("a text"));
  if (kind == "as_strings")
    return constants<std::string>(value, [](const JsonValue& item) { return item.text("a text"); });
  if (kind == "as_complex") {
    return constant_of(c10::complex<double>(value.field("real").number("a number"),
                                            value.field("imag").number("a number")));
  }
  if (kind == "as_scalar_type") {
    return constant_of(static_cast<int64_t>(dtype_of(value.integer("a dtype"))));
  }
  if (kind == "as_layout") {
    return constant_of(static_cast<int64_t>(number_in(kLayouts, value, "the layout")));
  }
  if (kind == "as_memory_format") {
    return constant_of(static_cast<int64_t>(number_in(kFormats, value, "the memory format")));
  }
  if (kind == "as_device") {
    Operand made = constant_of(device_of(value));
    made.meaning = Operand::Meaning::kDevice;
    return made;
  }
  unsupported = kind;
  return {};
}

TensorMeta read_tensor_meta(const JsonValue& meta) {
  TensorMeta made;
  made.dtype = dtype_of(meta.field("dtype").integer("a dtype"));
  for (const auto& [name, sizes] :
       {std::pair("sizes", &made.sizes), std::pair("strides", &made.strides)}) {
    const auto list = meta.field(name).items(name);
    if (list.size() > kMostDims) fail_reading("a tensor has too many dims");
    for (const JsonValue& size : list) sizes->push_back(size_of(size));
  }
  if (const auto offset = size_of(meta.field("storage_offset")).value({})) {
    made.storage_offset = *offset;
  }
  made.requires_grad = meta.field("requires_grad").flag("requires_grad");
  made.device = device_of(meta.field("device"));
  const at::Layout layout = number_in(kLayouts, meta.field("layout"), "the layout");
  if (layout != at::kStrided) fail_reading("a tensor is not strided");
  return made;
}

}  // namespace levin::interchange
