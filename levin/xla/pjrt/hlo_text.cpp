// A module after XLA's passes as text, one instruction a line, in XLA's own notation:
//
//   ENTRY main.4 {
//     %Arg_0.1 = f32[16] parameter(0)
//     ROOT %fusion = f32[16] fusion(%Arg_0.1), kind=kLoop, calls=%fused_computation
//   }
//
// The field numbers are those of xla/service/hlo.proto and xla/xla_data.proto.
#include <fmt/ranges.h>
#include <protozero/pbf_reader.hpp>

#include <array>

#include "levin/base/check.h"
#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt::detail {
namespace {

using protozero::pbf_reader;

// Hands the number of each field to `take`, which reads the field's value or gives false.
template <class Take>
void read_fields(pbf_reader& message, const Take& take) {
  while (message.next()) {
    if (!take(message.tag())) message.skip();
  }
}

void append_numbers(pbf_reader& reader, std::vector<int64_t>& numbers) {
  const auto read = reader.get_packed_int64();
  numbers.insert(numbers.end(), read.begin(), read.end());
}

// By xla.PrimitiveType.
constexpr std::array<std::string_view, 24> kElementTypes = {
    "?",    "pred",  "s8",   "s16",    "s32",      "s64", "u8",     "u16",
    "u32",  "u64",   "f16",  "f32",    "f64",      "",    "opaque", "c64",
    "bf16", "token", "c128", "f8e5m2", "f8e4m3fn", "s4",  "u4",     "f8e4m3b11fnuz"};
constexpr uint64_t kTuple = 13;

// ShapeProto {2 element_type, 3 dimensions, 4 tuple_shapes}.
std::string shape_text(pbf_reader shape) {
  uint64_t type = 0;
  std::string parts;
  std::vector<int64_t> sizes;
  read_fields(shape, [&](uint32_t field) {
    if (field == 2) {
      type = static_cast<uint64_t>(shape.get_enum());
    } else if (field == 3) {
      append_numbers(shape, sizes);
    } else if (field == 4) {
      parts += (parts.empty() ? "" : ", ") + shape_text(shape.get_message());
    } else {
      return false;
    }
    return true;
  });
  if (type == kTuple) return "(" + parts + ")";
  const std::string name =
      type < kElementTypes.size() ? std::string(kElementTypes[type]) : fmt::format("type{}", type);
  return fmt::format("{}[{}]", name, fmt::join(sizes, ","));
}

struct Instruction {
  std::string name, opcode, shape, kind, target;
  int64_t id = 0;
  int64_t parameter = 0;
  std::vector<int64_t> operands, calls;
};

// HloInstructionProto {1 name, 2 opcode, 3 shape, 9 parameter_number, 11 fusion_kind,
// 28 custom_call_target, 35 id, 36 operand_ids, 38 called_computation_ids}.
Instruction read_instruction(pbf_reader reader) {
  Instruction read;
  read_fields(reader, [&](uint32_t field) {
    if (field == 1) {
      read.name = reader.get_string();
    } else if (field == 2) {
      read.opcode = reader.get_string();
    } else if (field == 3) {
      read.shape = shape_text(reader.get_message());
    } else if (field == 9) {
      read.parameter = reader.get_int64();
    } else if (field == 11) {
      read.kind = reader.get_string();
    } else if (field == 28) {
      read.target = reader.get_string();
    } else if (field == 35) {
      read.id = reader.get_int64();
    } else if (field == 36) {
      append_numbers(reader, read.operands);
    } else if (field == 38) {
      append_numbers(reader, read.calls);
    } else {
      return false;
    }
    return true;
  });
  return read;
}

struct Computation {
  std::string name;
  int64_t id = 0;
  int64_t root = 0;
  std::vector<Instruction> instructions;
};

// HloComputationProto {1 name, 2 instructions, 5 id, 6 root_id}.
Computation read_computation(pbf_reader reader) {
  Computation read;
  read_fields(reader, [&](uint32_t field) {
    if (field == 1) {
      read.name = reader.get_string();
    } else if (field == 2) {
      read.instructions.push_back(read_instruction(reader.get_message()));
    } else if (field == 5) {
      read.id = reader.get_int64();
    } else if (field == 6) {
      read.root = reader.get_int64();
    } else {
      return false;
    }
    return true;
  });
  return read;
}

using Names = std::map<int64_t, std::string>;

std::string name_in(const Names& names, int64_t id) {
  const auto found = names.find(id);
  return "%" + (found == names.end() ? std::to_string(id) : found->second);
}

std::string list_of(const Names& names, const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) text += (text.empty() ? "" : ", ") + name_in(names, id);
  return text;
}

std::string line_of(const Instruction& from, const Names& instructions, const Names& computations) {
  const std::string inputs = from.opcode == "parameter" ? std::to_string(from.parameter)
                                                        : list_of(instructions, from.operands);
  std::string line = fmt::format("%{} = {} {}({})", from.name, from.shape, from.opcode, inputs);
  if (!from.kind.empty()) line += ", kind=" + from.kind;
  if (!from.target.empty()) line += ", custom_call_target=\"" + from.target + "\"";
  if (from.calls.size() == 1) line += ", calls=" + name_in(computations, from.calls.front());
  if (from.calls.size() > 1) line += ", calls={" + list_of(computations, from.calls) + "}";
  return line;
}

// HloModuleProto {1 name, 3 computations, 6 entry_computation_id}.
std::string module_text(pbf_reader module) {
  std::string name;
  int64_t entry = 0;
  std::vector<Computation> computations;
  read_fields(module, [&](uint32_t field) {
    if (field == 1) {
      name = module.get_string();
    } else if (field == 3) {
      computations.push_back(read_computation(module.get_message()));
    } else if (field == 6) {
      entry = module.get_int64();
    } else {
      return false;
    }
    return true;
  });
  Names names;
  for (const Computation& computation : computations) names[computation.id] = computation.name;
  std::string text = "HloModule " + name + "\n";
  for (const Computation& computation : computations) {
    Names own;
    for (const Instruction& made : computation.instructions) own[made.id] = made.name;
    text += fmt::format("\n{}%{} {{\n", computation.id == entry ? "ENTRY " : "", computation.name);
    for (const Instruction& made : computation.instructions) {
      text += fmt::format("  {}{}\n", made.id == computation.root ? "ROOT " : "",
                          line_of(made, own, names));
    }
    text += "}\n";
  }
  return text;
}

}  // namespace

std::string hlo_text(std::string_view module, bool with_config) {
  try {
    pbf_reader reader(module.data(), module.size());
    if (!with_config) return module_text(reader);
    LEVIN_CHECK(reader.next(1), "xla.program", "got a module of {} bytes that holds no HLO",
                module.size());
    return module_text(reader.get_message());
  } catch (const protozero::exception& error) {
    LEVIN_FAIL("xla.program", "got a module of {} bytes that is not HLO: {}", module.size(),
               error.what());
  }
}

}  // namespace levin::xla::pjrt::detail
