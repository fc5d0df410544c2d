// The parameters and buffers of a whole module in an archive: of LibTorch's torch::save(module, ...), of
// TorchScript, and of Python's torch.save(model).
#include <algorithm>
#include <set>

#include "levin/base/check.h"
#include "levin/checkpoint/torch/archive_impl.h"

namespace levin::detail {
namespace {

using Kind = PickleValue::Kind;
constexpr int64_t kDeepestPart = 200;    // a module may hold itself in a forged file
constexpr int64_t kMostParts = 1 << 20;  // or another one twice that holds ...

/// What an object of TorchScript's classes has, by name; nullptr for other objects.
const PickleValue* attributes_of(const PickleValue& value) {
  const bool is_object = value.is(Kind::kObject) && value.of != nullptr &&
                         value.of->text.starts_with("__torch__") && value.state != nullptr;
  return is_object && value.state->is(Kind::kDict) ? value.state : nullptr;
}

/// Of Python's torch.nn.Module: its parameters, buffers or parts.
const PickleValue* entries_of(const PickleValue& value, std::string_view kind) {
  if (!value.is(Kind::kObject) || value.state == nullptr) return nullptr;
  return value.state->find(kind);
}

bool is_python_module(const PickleValue& value) {
  return entries_of(value, "_parameters") != nullptr && entries_of(value, "_modules") != nullptr;
}

/// The names in a line of TorchScript's code, as in __parameters__ = ["weight", "bias", ].
void add_names(std::string_view code, std::string_view list, std::set<std::string>& names) {
  const size_t begin = code.find(list);
  if (begin == std::string_view::npos) return;
  const std::string_view line = code.substr(begin, code.find(']', begin) - begin);
  for (size_t open = line.find('"'); open != std::string_view::npos;) {
    const size_t close = line.find('"', open + 1);
    if (close == std::string_view::npos) return;
    names.emplace(line.substr(open + 1, close - open - 1));
    open = line.find('"', close + 1);
  }
}

class ModuleReader {
 public:
  explicit ModuleReader(TorchArchive& archive) : archive_(archive) {}

  State read(const PickleValue& module) {
    if (is_python_module(module)) {
      add_python(module, "", 0);
    } else {
      add_script(module, "", 0);
    }
    return std::move(tensors_);
  }

 private:
  void count_part(int64_t depth) {
    LEVIN_CHECK(depth <= kDeepestPart && ++num_parts_ <= kMostParts, "checkpoint.torch",
                "{} cannot be read: its modules hold each other", archive_.source());
  }

  void add(const std::string& name, const PickleValue& value) {
    if (const std::string reason = TorchArchive::reason_not_read(value); !reason.empty()) {
      archive_.leave_out(name, reason);
    } else if (auto tensor = archive_.tensor_of(value)) {
      tensors_.set(name, *std::move(tensor));
    }
  }

  void add_python(const PickleValue& module, const std::string& prefix, int64_t depth) {
    count_part(depth);
    std::set<std::string> passing;  // buffers that state_dict() leaves out
    if (const PickleValue* names = entries_of(module, "_non_persistent_buffers_set")) {
      for (const auto* list : {names, names->arguments}) {
        if (list == nullptr) continue;
        for (const PickleValue* item : list->items) {
          passing.insert(item->text);
          for (const PickleValue* name : item->items) passing.insert(name->text);
        }
      }
    }
    for (const char* kind : {"_parameters", "_buffers"}) {
      const PickleValue* entries = entries_of(module, kind);
      if (entries == nullptr) continue;
      for (const auto& [key, value] : entries->entries) {
        if (!passing.contains(key->text)) add(prefix + key->text, *value);
      }
    }
    for (const auto& [key, value] : entries_of(module, "_modules")->entries) {
      if (is_python_module(*value)) add_python(*value, prefix + key->text + ".", depth + 1);
    }
  }

  void add_script(const PickleValue& object, const std::string& prefix, int64_t depth) {
    const PickleValue* attributes = attributes_of(object);
    if (attributes == nullptr) return;
    count_part(depth);
    const auto own = names_of(object.of->text);
    for (const auto& [key, value] : attributes->entries) {
      if (attributes_of(*value) != nullptr) {
        add_script(*value, prefix + key->text + ".", depth + 1);
      } else if (!own || own->contains(key->text)) {
        add(prefix + key->text, *value);
      }
    }
  }

  /// Parameters and buffers of a class "__torch__.package Class", as its code in the archive lists them:
  /// other tensors are attributes. None where there is no such code.
  const std::optional<std::set<std::string>>& names_of(const std::string& type) {
    const auto [known, is_new] = names_.try_emplace(type);
    if (!is_new) return known->second;
    const size_t space = type.find(' ');
    if (space == std::string::npos) return known->second;
    std::string file = type.substr(0, space);
    std::ranges::replace(file, '.', '/');
    const auto code = archive_.text_record("code/" + file + ".py");
    const size_t begin =
        code ? code->find("class " + type.substr(space + 1) + "(") : std::string::npos;
    if (begin == std::string::npos) return known->second;
    const std::string_view own =
        std::string_view(*code).substr(begin, code->find("\nclass ", begin) - begin);
    std::set<std::string>& names = known->second.emplace();
    add_names(own, "__parameters__", names);
    add_names(own, "__buffers__", names);
    return known->second;
  }

  TorchArchive& archive_;
  State tensors_;
  int64_t num_parts_ = 0;
  std::map<std::string, std::optional<std::set<std::string>>> names_;
};

}  // namespace

bool is_module(const PickleValue& value) {
  return attributes_of(value) != nullptr || is_python_module(value);
}

State module_tensors(TorchArchive& archive, const PickleValue& module) {
  return ModuleReader(archive).read(module);
}

}  // namespace levin::detail
