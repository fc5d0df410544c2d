// The parameters and buffers of a whole module in an archive: of LibTorch's torch::save(module, ...), of
// TorchScript, and of Python's torch.save(model).
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "levin/base/check.h"
#include "levin/checkpoint/torch/archive_impl.h"

namespace levin::detail {
namespace {

using Kind = PickleValue::Kind;
constexpr int64_t kDeepestPart = 200;  // a module may hold itself in a forged file
// Looking through so much costs as much as one value.
constexpr size_t kEntriesOfAValue = 64;
constexpr size_t kLettersOfAValue = size_t{1} << 16;

using Names = std::set<std::string, std::less<>>;

/// The attributes of an object of a TorchScript class, by name; nullptr for other objects.
const PickleValue* attributes_of(const PickleValue& value) {
  const bool is_object = value.is(Kind::kObject) && value.of != nullptr &&
                         value.of->text.starts_with("__torch__") && value.state != nullptr;
  return is_object && value.state->is(Kind::kDict) ? value.state : nullptr;
}

/// The parameters, buffers or submodules of a pickled Python torch.nn.Module.
const PickleValue* entries_of(const PickleValue& value, std::string_view kind) {
  if (!value.is(Kind::kObject) || value.state == nullptr) return nullptr;
  return value.state->find(kind);
}

bool is_python_module(const PickleValue& value) {
  return entries_of(value, "_parameters") != nullptr && entries_of(value, "_modules") != nullptr;
}

/// The names in a line of TorchScript's code, as in __parameters__ = ["weight", "bias", ].
void add_names(std::string_view code, std::string_view list, Names& names) {
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
  // A forged file refers to one module, or to one long list of names, again and again.
  void count(size_t values, int64_t depth) {
    LEVIN_CHECK(depth <= kDeepestPart && archive_.budget().take_values(values), "checkpoint.torch",
                "{} cannot be read: its modules contain themselves or are nested too deep",
                archive_.source());
  }
  void count_part(const PickleValue& value, int64_t depth) {
    const size_t entries = value.state == nullptr ? 0 : value.state->entries.size();
    count(1 + entries / kEntriesOfAValue, depth);
  }

  std::string joined(const std::string& prefix, std::string_view key) {
    return archive_.own_text(prefix) + archive_.own_text(key);
  }

  void add(const std::string& name, const PickleValue& value) {
    if (const std::string reason = TorchArchive::reason_not_read(value); !reason.empty()) {
      archive_.leave_out(name, reason);
    } else if (auto tensor = archive_.tensor_of(value)) {
      tensors_.set(name, *std::move(tensor));
    }
  }

  void add_python(const PickleValue& module, const std::string& prefix, int64_t depth) {
    std::set<std::string_view> passing;  // buffers that state_dict() leaves out
    if (const PickleValue* names = entries_of(module, "_non_persistent_buffers_set")) {
      for (const auto* list : {names, names->arguments}) {
        if (list == nullptr) continue;
        for (const PickleValue* item : list->items) {
          count(1 + item->items.size(), depth);
          passing.insert(item->text);
          for (const PickleValue* name : item->items) passing.insert(name->text);
        }
      }
    }
    for (const char* kind : {"_parameters", "_buffers"}) {
      const PickleValue* entries = entries_of(module, kind);
      if (entries == nullptr) continue;
      for (const auto& [key, value] : entries->entries) {
        count(1, depth);
        if (value->is(Kind::kNone) || passing.contains(key->text)) continue;
        add(joined(prefix, key->text), *value);
      }
    }
    for (const auto& [key, value] : entries_of(module, "_modules")->entries) {
      count_part(*value, depth + 1);
      if (is_python_module(*value)) {
        add_python(*value, joined(prefix, key->text) + ".", depth + 1);
      }
    }
  }

  void add_script(const PickleValue& object, const std::string& prefix, int64_t depth) {
    const PickleValue* attributes = attributes_of(object);
    if (attributes == nullptr) return;
    count_part(object, depth);
    const auto& own = names_of(object.of->text);
    for (const auto& [key, value] : attributes->entries) {
      count(1, depth);
      if (attributes_of(*value) != nullptr) {
        add_script(*value, joined(prefix, key->text) + ".", depth + 1);
      } else if (!own || own->contains(key->text)) {
        add(joined(prefix, key->text), *value);
      }
    }
  }

  /// Returns the parameters and buffers of a class "__torch__.package Class", as its code in the
  /// archive lists them: other tensors are attributes. Nothing if there is no such code.
  const std::optional<Names>& names_of(std::string_view type) {
    const auto [known, is_new] = names_.try_emplace(type);
    if (!is_new) return known->second;
    const size_t space = type.find(' ');
    if (space == std::string::npos) return known->second;
    const auto& code = code_of(type.substr(0, space));
    count(1 + (code ? code->size() / kLettersOfAValue : 0), 0);
    const std::string name = fmt::format("class {}(", type.substr(space + 1));
    const size_t begin = code ? code->find(name) : std::string::npos;
    if (begin == std::string::npos) return known->second;
    const std::string_view own =
        std::string_view(*code).substr(begin, code->find("\nclass ", begin) - begin);
    Names& names = known->second.emplace();
    add_names(own, "__parameters__", names);
    add_names(own, "__buffers__", names);
    return known->second;
  }

  /// The code of a package, which its classes share.
  const std::optional<std::string>& code_of(std::string_view package) {
    const auto [known, is_new] = code_.try_emplace(package);
    if (is_new) {
      std::string file(package);
      std::ranges::replace(file, '.', '/');
      known->second = archive_.text_record("code/" + file + ".py");
    }
    return known->second;
  }

  TorchArchive& archive_;
  State tensors_;
  std::map<std::string_view, std::optional<Names>> names_;
  std::map<std::string_view, std::optional<std::string>> code_;
};

}  // namespace

bool is_module(const PickleValue& value) {
  return attributes_of(value) != nullptr || is_python_module(value);
}

State module_tensors(TorchArchive& archive, const PickleValue& module) {
  return ModuleReader(archive).read(module);
}

}  // namespace levin::detail
