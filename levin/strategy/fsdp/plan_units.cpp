#include "levin/strategy/fsdp/plan_units.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_set>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/module/optimizer_config.h"
#include "levin/module/wrap.h"

namespace levin::fsdp {
namespace {

class Planner {
 public:
  Planner(int64_t unit_bytes, std::function<bool(const std::string&)> is_ignored)
      : unit_bytes_(unit_bytes), is_ignored_(std::move(is_ignored)) {}

  Plan plan(const torch::nn::Module& module) {
    const bool is_one = is_unit(module);
    UnitPlan root{.options = wrap_options(module)};
    visit(module, "", root);
    root.is_rest = !plan_.units.empty();
    close(std::move(root), is_one ? INT64_MAX : unit_bytes_);
    std::ranges::stable_sort(plan_.units, {}, [&](const UnitPlan& unit) {
      return places_.at(unit.parameters.front().tensor.unsafeGetTensorImpl());
    });
    return std::move(plan_);
  }

 private:
  void visit(const torch::nn::Module& module, const std::string& prefix, UnitPlan& unit) {
    for (const auto& item : module.named_parameters(/*recurse=*/false)) {
      const at::Tensor& parameter = item.value();
      if (!parameter.defined() || !seen_.insert(parameter.unsafeGetTensorImpl()).second) continue;
      NamedTensor named{prefix + item.key(), parameter};
      LEVIN_CHECK(parameter.layout() == at::kStrided, "strategy.fsdp.parameter",
                  "parameter {} has layout {}, but only dense parameters can be sharded; set "
                  "--strategy ddp",
                  named.name, c10::str(parameter.layout()));
      const bool is_ignored = is_ignored_ && is_ignored_(named.name);
      if (is_ignored || parameter.dim() == 0 || parameter.numel() == 0) {
        plan_.replicated.push_back(std::move(named));
      } else {
        places_.emplace(parameter.unsafeGetTensorImpl(), places_.size());
        unit.parameters.push_back(std::move(named));
      }
    }
    for (const auto& child : module.named_children()) {
      const std::string name = prefix + child.key();
      if (!is_unit(*child.value())) {
        visit(*child.value(), name + ".", unit);
        continue;
      }
      UnitPlan own{.name = name, .options = wrap_options(*child.value())};
      visit(*child.value(), name + ".", own);
      close(std::move(own), INT64_MAX);
    }
  }

  /// Units of one type each, and of at most so many bytes where there is more than one parameter.
  void close(UnitPlan&& unit, int64_t most_bytes) {
    std::vector<at::ScalarType> types;
    for (const NamedTensor& parameter : unit.parameters) {
      const at::ScalarType type = parameter.tensor.scalar_type();
      if (std::ranges::find(types, type) == types.end()) types.push_back(type);
    }
    for (const at::ScalarType type : types) {
      LEVIN_CHECK(!unit.options.reduce_dtype || !c10::isComplexType(type),
                  "strategy.fsdp.parameter",
                  "unit {} was wrapped with reduce_dtype = {} but has complex parameters, whose "
                  "gradients cannot be reduced in it; leave reduce_dtype out for this unit",
                  unit.name, c10::toString(*unit.options.reduce_dtype));
      const UnitPlan empty{
          .name = unit.name, .parameters = {}, .is_rest = unit.is_rest, .options = unit.options};
      UnitPlan part = empty;
      int64_t bytes = 0;
      const auto finish = [&] {
        if (part.parameters.empty()) return;
        if (unit.name.empty()) part.name = owner_of(part.parameters.front().name);
        plan_.units.push_back(std::exchange(part, empty));
        bytes = 0;
      };
      for (NamedTensor& parameter : unit.parameters) {
        if (parameter.tensor.scalar_type() != type) continue;
        const auto size = parameter.tensor.numel() * static_cast<int64_t>(c10::elementSize(type));
        if (bytes > 0 && size > most_bytes - bytes) finish();
        bytes += size;
        part.parameters.push_back(std::move(parameter));
      }
      finish();
    }
  }

  /// "net.1" of "net.1.weight"
  static std::string owner_of(const std::string& name) {
    const size_t dot = name.rfind('.');
    return dot == std::string::npos ? "the module" : name.substr(0, dot);
  }

  int64_t unit_bytes_;
  std::function<bool(const std::string&)> is_ignored_;
  Plan plan_;
  std::unordered_set<const c10::TensorImpl*> seen_;
  std::unordered_map<const c10::TensorImpl*, size_t> places_;
};

}  // namespace

Plan plan_units(const torch::nn::Module& module, int64_t unit_bytes,
                const std::function<bool(const std::string& name)>& is_ignored) {
  return Planner(unit_bytes, is_ignored).plan(module);
}

Plan plan_units(const torch::nn::Module& module, const FsdpOptions& options) {
  const std::vector<std::string> patterns = ignored_patterns(options);
  return plan_units(
      module, static_cast<int64_t>(options.unit_mb * (1 << 20)), [&](const std::string& name) {
        return std::ranges::any_of(
            patterns, [&](const std::string& pattern) { return matches(pattern, name); });
      });
}

std::vector<std::string> ignored_patterns(const FsdpOptions& options) {
  std::vector<std::string> patterns;
  if (!options.ignored_params.empty()) from_text(options.ignored_params, patterns);
  return patterns;
}

}  // namespace levin::fsdp
