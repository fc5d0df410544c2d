#pragma once
// The arguments of nodes and the types of tensors, out of torch.export's JSON.
// Not for users.

#include <functional>
#include <map>
#include <string>

#include "levin/interchange/program/json_value.h"
#include "levin/interchange/program/program.h"

namespace levin::interchange {

/// kind and value: the one field of an Argument ("as_ints", [2, 2]). use: gives the slot of a name.
/// `unsupported` gets the kind that levin has no form for. Throws Error "interchange.archive".
Operand read_operand(const std::string& kind, const JsonValue& value,
                     const std::function<Slot(const std::string&)>& use, std::string& unsupported);

/// Throws Error "interchange.archive".
TensorMeta read_tensor_meta(const JsonValue& meta);

/// LibTorch's dtypes by torch.export's numbers.
const std::map<int64_t, at::ScalarType>& exported_dtypes();

}  // namespace levin::interchange
