#include "levin/interchange/export/write/python_names.h"

#include <algorithm>
#include <cctype>

namespace levin::interchange {
namespace {

// clang-format off
constexpr std::string_view kWords[] = {
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class",
    "continue", "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if",
    "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return", "try",
    "while", "with", "yield"};
/// forward calls its module self; the code of a graph has the others from torch.fx.
constexpr std::string_view kGlobals[] = {
    "self", "torch", "device", "inf", "nan", "NoneType", "fx_pytree", "pytree"};
/// Attributes of torch.nn.Module and of the module that torch.export makes.
constexpr std::string_view kAttributes[] = {
    "_guards_fn", "add_module", "add_submodule", "apply", "bfloat16", "buffers",
    "call_super_init", "children", "code", "compile", "cpu", "cuda", "double", "dump_patches",
    "eval", "extra_repr", "float", "forward", "get_buffer", "get_extra_state", "get_parameter",
    "get_submodule", "graph", "half", "ipu", "load_state_dict", "meta", "modules", "mtia",
    "named_buffers", "named_children", "named_modules", "named_parameters", "parameters",
    "print_readable", "recompile", "register_buffer", "register_module", "register_parameter",
    "requires_grad_", "set_extra_state", "set_submodule", "share_memory", "state_dict", "to",
    "to_empty", "train", "training", "type", "xpu", "zero_grad"};
// clang-format on

bool has(const auto& names, std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

}  // namespace

bool can_be_argument(std::string_view name) {
  const auto is_letter = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_';
  };
  return !name.empty() && std::ranges::all_of(name, is_letter) &&
         std::isdigit(static_cast<unsigned char>(name[0])) == 0 && !has(kWords, name) &&
         !has(kGlobals, name);
}

bool can_be_attribute(std::string_view path) {
  if (path == "self") return false;
  while (true) {
    const size_t dot = path.find('.');
    const std::string_view part = path.substr(0, dot);
    if (part.empty() || has(kWords, part) || has(kAttributes, part) ||
        part.find_first_of("\"'\\\n") != std::string_view::npos) {
      return false;
    }
    if (dot == std::string_view::npos) return true;
    path.remove_prefix(dot + 1);
  }
}

}  // namespace levin::interchange
