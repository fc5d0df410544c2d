#include "levin/module/wrap.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "levin/base/check.h"

namespace levin {
namespace {

struct Mark {
  std::weak_ptr<torch::nn::Module> module;
  WrapOptions options;
};

/// A module of LibTorch has no place for a mark: a child would be printed, counted and missed by
/// clone().
struct Marks {
  std::mutex mutex;
  std::unordered_map<const torch::nn::Module*, Mark> modules;
};

Marks& marks() {
  static Marks& all = *new Marks;  // modules of static objects may outlive any other static
  return all;
}

/// Elements of the module's parameters that are in none of those marked already; marks it where
/// they are enough.
int64_t mark_by_size(const std::shared_ptr<torch::nn::Module>& module, int64_t wanted, bool is_root,
                     std::unordered_set<const c10::TensorImpl*>& seen) {
  int64_t count = 0;
  for (const auto& child : module->children()) count += mark_by_size(child, wanted, false, seen);
  for (const at::Tensor& parameter : module->parameters(/*recurse=*/false)) {
    if (parameter.defined() && seen.insert(parameter.unsafeGetTensorImpl()).second) {
      count += parameter.numel();
    }
  }
  if (is_root || count < wanted) return count;
  detail::mark_unit(module, {});
  return 0;
}

}  // namespace

int64_t ReshardAfterForward::check(int64_t ranks) {
  LEVIN_CHECK(ranks > 0, "base.text",
              "got {} for reshard_after_forward, wanted true, false or a number of ranks", ranks);
  return ranks;
}

std::string to_text(const ReshardAfterForward& value) {
  if (!value.is_set()) return "";
  return value.ranks_ == 0 ? "true" : value.ranks_ == 1 ? "false" : std::to_string(value.ranks_);
}

void from_text(std::string_view text, ReshardAfterForward& value) {
  if (text.empty()) {
    value = {};
  } else if (text == "true" || text == "false") {
    value = ReshardAfterForward(text == "true");
  } else {
    int64_t ranks = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
    LEVIN_CHECK(error == std::errc() && end == text.data() + text.size() && ranks > 0, "base.text",
                "got '{}', wanted true, false or a number of ranks", text);
    value = ReshardAfterForward(ranks);
  }
}

void detail::mark_unit(const std::shared_ptr<torch::nn::Module>& module,
                       const WrapOptions& options) {
  constexpr std::array kReduced = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
  const auto& reduced = options.reduce_dtype;
  LEVIN_CHECK(!reduced || std::ranges::find(kReduced, *reduced) != kReduced.end(), "module.wrap",
              "got reduce_dtype = {}, wanted torch::kFloat32, kFloat64, kBFloat16 or kFloat16",
              c10::toString(*reduced));
  const std::lock_guard lock(marks().mutex);
  std::erase_if(marks().modules, [](const auto& entry) { return entry.second.module.expired(); });
  marks().modules[module.get()] = {module, options};
}

bool is_unit(const torch::nn::Module& module) {
  const std::lock_guard lock(marks().mutex);
  const auto place = marks().modules.find(&module);
  return place != marks().modules.end() && !place->second.module.expired();
}

WrapOptions wrap_options(const torch::nn::Module& module) {
  const std::lock_guard lock(marks().mutex);
  const auto place = marks().modules.find(&module);
  const bool is_marked = place != marks().modules.end() && !place->second.module.expired();
  return is_marked ? place->second.options : WrapOptions();
}

void wrap_by_size(torch::nn::Module& root, int64_t min_num_params) {
  LEVIN_CHECK(min_num_params > 0, "module.wrap",
              "got units of at least {} parameters, wanted 1 or more", min_num_params);
  std::unordered_set<const c10::TensorImpl*> seen;
  mark_by_size(root.shared_from_this(), min_num_params, /*is_root=*/true, seen);
}

void wrap_all(torch::nn::Module& root) {
  for (const auto& module : root.modules(/*include_self=*/false)) {
    if (!module->parameters(/*recurse=*/false).empty()) detail::mark_unit(module, {});
  }
}

}  // namespace levin
