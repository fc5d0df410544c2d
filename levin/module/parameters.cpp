#include "levin/module/parameters.h"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/module/base.h"
#include "levin/module/loading/casts.h"
#include "levin/module/loading/name_hint.h"
#include "levin/module/optimizer_config.h"
#include "levin/shard/sharded_tensor.h"

namespace levin {
namespace {

using detail::joined_names;

bool matches_any(const std::vector<std::string>& patterns, const std::string& name) {
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return matches(pattern, name); });
}

bool matches_one_of(const std::string& pattern, const std::set<std::string>& names) {
  return std::ranges::any_of(names, [&](const auto& name) { return matches(pattern, name); });
}

/// A tensor of a module, all names that it has there, and where it gets its values.
struct Target {
  at::Tensor tensor;
  std::vector<std::string> names;    // in the order of registration
  std::vector<NamedTensor> sources;  // one for each name that the weights have
};

std::vector<Target> targets_of(const torch::nn::Module& module) {
  std::vector<Target> targets;
  std::unordered_map<const c10::TensorImpl*, size_t> places;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const auto [place, is_new] = places.emplace(tensor.unsafeGetTensorImpl(), targets.size());
    if (is_new) targets.push_back({.tensor = tensor});
    targets[place->second].names.push_back(name);
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return targets;
}

/// A pattern that matches no name of the module is the program's mistake, whatever the file holds. Files differ in
/// the names that they have beyond the module's.
void check_patterns(const LoadOptions& options, const std::vector<Target>& targets,
                    const State& state) {
  std::set<std::string> own, given;
  for (const Target& target : targets) own.insert(target.names.begin(), target.names.end());
  for (const auto& [name, value] : state.values()) given.insert(name);
  for (const std::string& pattern : options.allow_missing) {
    LEVIN_CHECK(matches_one_of(pattern, own), "module.state.pattern",
                "allow_missing has '{}', which matches no name of the module; the module has {}",
                pattern, joined_names(own));
  }
  for (const std::string& pattern : options.allow_unexpected) {
    if (!matches_one_of(pattern, given)) {
      log::warn("weights: allow_unexpected has '{}', which matches no name of the weights",
                pattern);
    }
  }
}

/// Takes the names that a pattern allows out of names.
std::set<std::string> take_allowed(std::set<std::string>& names,
                                   const std::vector<std::string>& patterns) {
  std::set<std::string> allowed;
  for (const std::string& name : names) {
    if (matches_any(patterns, name)) allowed.insert(name);
  }
  for (const std::string& name : allowed) names.erase(name);
  return allowed;
}

void copy_values(const std::vector<Target>& targets) {
  detail::Casts casts;
  for (const Target& target : targets) {
    for (const NamedTensor& source : target.sources) {
      casts.note(source.name, source.tensor.scalar_type(), target.tensor.scalar_type());
    }
  }
  casts.warn("weights");
  const at::NoGradGuard no_grad;
  for (const Target& target : targets) {
    for (const NamedTensor& source : target.sources) {
      shard::own_values(target.tensor).copy_(source.tensor);
      shard::note_written(target.tensor);
    }
  }
}

void tell_of_passed(const std::set<std::string>& missing, const std::set<std::string>& unexpected,
                    bool strict) {
  const auto tell = [&](std::string_view what, const std::set<std::string>& names) {
    if (names.empty()) return;
    if (strict) {
      log::info("weights: {}: {}", what, joined_names(names));
    } else {
      log::warn("weights: {}: {}", what, joined_names(names));
    }
  };
  tell("the module keeps its own values for names that the weights lack", missing);
  tell("names that the module lacks are ignored", unexpected);
}

}  // namespace

std::vector<NamedTensor> named_parameters(const torch::nn::Module& module) {
  std::vector<NamedTensor> parameters;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second) {
      parameters.push_back({item.key(), item.value()});
    }
  }
  return parameters;
}

State module_state(const torch::nn::Module& module) {
  State state;
  for (const Target& target : targets_of(module)) {
    state.set(target.names.front(), shard::state_value(target.tensor, target.tensor.detach()));
  }
  return state;
}

State trained_state(const torch::nn::Module& module) {
  State state = module_state(module);
  const auto base = base_tensors(module);
  for (const auto& [name, tensor] : named_parameters(module)) {
    if (base.contains(tensor.unsafeGetTensorImpl())) state.erase(name);
  }
  return state;
}

std::map<std::string, std::string> tied_names(const torch::nn::Module& module) {
  std::map<std::string, std::string> tied;
  for (const Target& target : targets_of(module)) {
    for (size_t i = 1; i < target.names.size(); ++i) tied[target.names[i]] = target.names.front();
  }
  return tied;
}

State with_tied_names(State state, const std::map<std::string, std::string>& tied) {
  for (const auto& [other, first] : tied) {
    if (!state.contains(first) && state.contains(other)) {
      state.set(first, state.tensor_or_slice(other));
    }
  }
  for (const auto& [other, first] : tied) {
    if (state.contains(first) && !state.contains(other)) {
      state.set(other, state.tensor_or_slice(first));
    }
  }
  return state;
}

void load_module_state(torch::nn::Module& module, const State& state, const LoadOptions& options) {
  std::vector<Target> targets = targets_of(module);
  check_patterns(options, targets, state);
  std::set<std::string> missing, passed_missing, wrong_shape, unexpected, on_meta;
  const auto base = base_tensors(module);
  for (const auto& [name, value] : state.values()) unexpected.insert(name);
  for (Target& target : targets) {
    for (const std::string& name : target.names) {
      if (unexpected.erase(name) == 0) continue;
      const State::Value& value = state.tensor_or_slice(name);
      const std::string other = shard::difference(target.tensor, value);
      if (!other.empty()) {
        wrong_shape.insert(fmt::format("{} ({})", name, other));
        continue;
      }
      target.sources.push_back({name, shard::own_part(target.tensor, value)});
    }
    // One name of tied weights is enough, whichever it is.
    if (std::ranges::any_of(target.names, [&](const auto& name) { return state.contains(name); })) {
      if (target.tensor.is_meta()) on_meta.insert(target.names.front());
    } else if (!base.contains(target.tensor.unsafeGetTensorImpl())) {
      const bool is_allowed = std::ranges::any_of(
          target.names, [&](const auto& name) { return matches_any(options.allow_missing, name); });
      (is_allowed ? passed_missing : missing).insert(target.names.front());
    }
  }
  std::set<std::string> passed = take_allowed(unexpected, options.allow_unexpected);
  LEVIN_CHECK(wrong_shape.empty(), "module.state.shape",
              "weights have other shapes than the module's parameters: {}",
              joined_names(wrong_shape));
  LEVIN_CHECK(missing.empty() || !options.strict, "module.state.missing",
              "the module has parameters that the weights lack: {}{}", joined_names(missing),
              detail::name_hint(missing, unexpected));
  LEVIN_CHECK(unexpected.empty() || !options.strict, "module.state.unexpected",
              "the weights have names that the module lacks: {}", joined_names(unexpected));
  LEVIN_CHECK(on_meta.empty(), "module.state.meta",
              "the module has tensors on the meta device, which cannot hold values: {}; call "
              "levin::materialize(module, {{.values = levin::InitValues::kNone}}) first",
              joined_names(on_meta));
  passed_missing.merge(missing);
  passed.merge(unexpected);
  tell_of_passed(passed_missing, passed, options.strict);
  copy_values(targets);
}

}  // namespace levin
