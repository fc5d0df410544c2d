#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/interchange/export_program.h"

namespace levin::detail {
namespace {

std::optional<c10::FunctionSchema> parsed(const std::string& text, std::string& why) {
  try {
    return torch::jit::parseSchema(text, /*allow_typevars=*/false);
  } catch (const std::exception& error) {
    why = error.what();
    why.resize(std::min(why.find('\n'), why.size()));
    return std::nullopt;
  }
}

}  // namespace

void register_operator(const std::string& schema, torch::CppFunction&& function) {
  std::string why;
  const auto known = parsed(schema, why);
  LEVIN_CHECK(known && schema.find("::") != std::string::npos, "interchange.operator",
              "'{}' is not a schema, wanted namespace::name(Tensor x, float alpha) -> Tensor: {}",
              printable(schema), why.empty() ? "it has no namespace" : printable(why));
  LEVIN_CHECK(!c10::Dispatcher::singleton().findSchema(known->operator_name()).has_value(),
              "interchange.operator", "{} is registered already",
              c10::toString(known->operator_name()));
  auto library = std::make_unique<torch::Library>(torch::Library::FRAGMENT,
                                                  std::string(*known->getNamespace()), std::nullopt,
                                                  __FILE__, static_cast<uint32_t>(__LINE__));
  try {
    library->def(schema.c_str(), std::move(function));
  } catch (const c10::Error& error) {
    LEVIN_FAIL("interchange.operator", "the function does not have the schema '{}': {}",
               printable(schema), printable(error.what_without_backtrace()));
  }
  // For the process: whoever has looked the operator up calls it by a pointer.
  library.release();  // NOLINT(bugprone-unused-return-value)
}

}  // namespace levin::detail
