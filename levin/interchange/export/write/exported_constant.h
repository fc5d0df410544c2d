#pragma once
// Constants and sizes as torch.export's JSON has them (torch/_export/serde/schema.py).
// Not for users.

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "levin/interchange/export/sizes/dynamic_sizes.h"
#include "levin/interchange/export/sizes/size_formula.h"

namespace levin::interchange {

/// torch.export's number of a dtype. Throws Error "interchange.export.operator" where it has none.
int64_t exported_dtype(at::ScalarType dtype);
nlohmann::json exported_device(at::Device device);
/// A TensorMeta of a strided tensor; sizes and strides as lists of exported_size.
nlohmann::json exported_meta(at::ScalarType dtype, at::Device device, nlohmann::json sizes,
                             nlohmann::json strides, int64_t storage_offset, bool requires_grad);
/// Infinities and NaN are text.
nlohmann::json exported_real(double number);

/// The type in the schema says what an integer stands for. Throws Error "interchange.export.operator".
nlohmann::json exported_constant(const c10::IValue& constant, const c10::TypePtr& real_type);

/// sympy's srepr of a formula.
std::string formula_text(const SizeFormula& formula, const std::vector<Symbol>& symbols);
/// {"as_int": 3}, or {"as_expr": ...} with the value of the first recording.
nlohmann::json exported_size(const SizeFormula& formula, const std::vector<Symbol>& symbols);

}  // namespace levin::interchange
