#include "levin/interchange/export/write/module_stack.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "levin/interchange/load_exported.h"
#include "levin/module/layers/layers.h"

namespace levin::interchange {
namespace {

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
}

std::string parent_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

/// The last module that both are in, or are.
std::string common(const std::string& left, const std::string& right) {
  std::string path = left;
  while (!path.empty() && path != right && !right.starts_with(path + ".")) path = parent_of(path);
  return path;
}

}  // namespace

std::string python_class_of(const torch::nn::Module& module) {
  if (const auto* part = dynamic_cast<const ExportedPart*>(&module);
      part != nullptr && !part->python_class().empty()) {
    return part->python_class();
  }
  const detail::Layer* layer = detail::layer_of(module);
  if (layer != nullptr && *layer->type == typeid(module)) {
    return fmt::format("torch.nn.modules.{}.{}", layer->python_file, layer->name);
  }
  std::string name = module.name();
  replace_all(name, "(anonymous namespace)::", "");
  replace_all(name, "::", ".");
  // The stack has "key,path,class;key,path,class".
  for (char& letter : name) {
    if (letter == ',' || letter == ';') letter = ' ';
  }
  return name;
}

ModuleStack::ModuleStack(const torch::nn::Module& root, const std::vector<ModuleTensor>& tensors,
                         const Recording& recording) {
  paths_.emplace_back();
  classes_[""] = python_class_of(root);
  for (const auto& child : root.named_modules("", /*include_self=*/false)) {
    paths_.push_back(child.key());
    classes_[child.key()] = python_class_of(*child.value());
  }
  // Its own module, for a call that has a tensor of it.
  std::vector<std::optional<std::string>> own;
  for (const RecordedCall& call : recording.calls) {
    std::optional<std::string> path;
    for (const RecordedArgument& argument : call.arguments) {
      for (const ValueId id : argument.values) {
        if (id >= tensors.size()) continue;
        const std::string module = parent_of(tensors[id].name);
        path = path ? common(*path, module) : module;
      }
    }
    own.push_back(path);
  }
  std::vector<std::optional<std::string>> next(own.size() + 1);
  for (size_t i = own.size(); i-- > 0;) next[i] = own[i] ? own[i] : next[i + 1];
  std::optional<std::string> last;
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i]) last = own[i];
    path_of_call_.push_back(own[i] ? *own[i] : last && next[i] ? common(*last, *next[i]) : "");
  }
}

std::string ModuleStack::text(size_t call) const {
  const std::string& path = path_of_call_[call];
  std::string text = root();
  for (size_t end = 0; end != std::string::npos && !path.empty();) {
    end = path.find('.', end + 1);
    const std::string part = path.substr(0, end);
    const auto known = classes_.find(part);
    if (known == classes_.end()) continue;
    std::string key = "L__self___" + part;
    std::ranges::replace(key, '.', '_');
    text += fmt::format(";{},{},{}", key, part, known->second);
  }
  return text;
}

}  // namespace levin::interchange
