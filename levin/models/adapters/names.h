#pragma once
// Chooses the modules that an adapter is for, by the rules of PEFT (tuners_utils.py,
// utils/other.py). Not for users.
//
//   const Whole whole = whole_modules(net, options);        // trained whole
//   for (const Target& each : targets_of(net, options, whole.modules, Names::kAll)) ...

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/models/layers/adaptable.h"
#include "levin/models/lora.h"

namespace levin::lora {

/// An expression of Python's re; names match it whole.
class NamePattern {
 public:
  /// key: of adapter_config.json, for errors. Throws Error "models.lora.options".
  NamePattern(const std::string& expression, const char* key);
  ~NamePattern();
  NamePattern(NamePattern&&) noexcept;
  bool fits(const std::string& name) const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

/// Returns the value of the first pattern that the name ends with; `otherwise` if there is none.
template <class Value>
Value of_pattern(const std::vector<std::pair<std::string, Value>>& patterns,
                 const std::string& name, Value otherwise, const char* key) {
  for (const auto& [end, value] : patterns) {
    if (NamePattern("(?:.*\\.)?(?:" + end + ")", key).fits(name)) return value;
  }
  return otherwise;
}

/// kAll: each name that the options ask for must exist. kSome: at least one must exist, since a
/// file may name modules of many models.
enum class Names { kAll, kSome };

struct Target {
  std::string name;
  models::Adaptable* layer;
};

/// A module of any network.
struct NamedModule {
  std::string name;
  bool is_linear = false;
};

/// Throws Error "models.lora.options" for numbers that cannot be.
void check_numbers(const LoraOptions& options);

/// Names of the modules that `wanted` (modules_to_save) names by their ends.
std::vector<std::string> named_whole(const std::vector<NamedModule>& modules,
                                     const std::vector<std::string>& wanted);
/// Throws Error "models.lora.target" for one of modules_to_save that no module ends with (kAll).
void check_whole(const std::vector<NamedModule>& modules, const LoraOptions& options, Names names);

/// Returns the names of the modules that get matrices. defaults: used if the options name none.
/// Throws Error "models.lora.target".
std::vector<std::string> target_names(const std::vector<NamedModule>& modules,
                                      const LoraOptions& options,
                                      const std::vector<std::string>& defaults,
                                      const std::vector<std::string>& whole, Names names);

/// Names that adapter_config.json has as modules_to_save: those asked for, and heads by the type of the task.
std::vector<std::string> modules_to_save(const models::Pretrained& net, const LoraOptions& options);

/// The modules that these name. Throws Error "models.lora.target" for a name that no module ends with (kAll),
/// and "models.lora.options" where they share their matrix with another module.
std::vector<std::string> whole_modules(models::Pretrained& net, const LoraOptions& options,
                                       Names names);

/// Returns the name of the head's matrix in PEFT's files if it is tied to an embedding that is
/// trained in full (ensure_weight_tying); else "". net: a model with an adapter.
std::string tied_weight(models::Pretrained& net);

/// Returns whether a parameter or module is one of the modules, or below one.
bool is_below(const std::string& name, const std::vector<std::string>& modules);

/// Returns all linear layers, with their names.
std::vector<Target> layers_of(const models::Pretrained& net);

/// Returns the layers that get matrices. Throws Error "models.lora.target".
std::vector<Target> targets_of(const models::Pretrained& net, const LoraOptions& options,
                               const std::vector<std::string>& whole, Names names);

}  // namespace levin::lora
