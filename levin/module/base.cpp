#include "levin/module/base.h"

#include <torch/nn/module.h>

#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin {
namespace {

struct Marked {
  std::weak_ptr<torch::nn::Module> module;
  Base base;
  std::vector<at::Tensor> parameters;
  std::vector<int64_t> versions = {};  ///< versions of the parameters when they were as in the
                                       ///< files
  std::optional<std::string> digest = {};

  /// Frozen, and never written to: one that was trained for a while holds something else.
  bool stands_in_files(size_t i) const {
    return !parameters[i].requires_grad() &&
           static_cast<int64_t>(parameters[i]._version()) == versions[i];
  }
  bool is_left_out() const {
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (stands_in_files(i)) return true;
    }
    return false;
  }
};

/// The bases of modules, kept beside them as wrap's marks are: a module of LibTorch has no place
/// for them.
struct Bases {
  std::mutex mutex;
  std::unordered_map<const torch::nn::Module*, std::shared_ptr<Marked>> modules;
};

Bases& bases() {
  static Bases& all = *new Bases;
  return all;
}

/// In the order of the modules.
std::vector<std::shared_ptr<Marked>> marked_in(const torch::nn::Module& module) {
  const std::lock_guard lock(bases().mutex);
  std::vector<std::shared_ptr<Marked>> found;
  if (bases().modules.empty()) return found;
  const auto look = [&](const torch::nn::Module& each) {
    const auto place = bases().modules.find(&each);
    if (place != bases().modules.end() && !place->second->module.expired())
      found.push_back(place->second);
  };
  look(module);
  for (const auto& each : module.modules(/*include_self=*/false)) look(*each);
  return found;
}

}  // namespace

void mark_base(const std::shared_ptr<torch::nn::Module>& module, Base base,
               const std::vector<at::Tensor>& parameters) {
  const std::lock_guard lock(bases().mutex);
  std::erase_if(bases().modules, [](const auto& entry) { return entry.second->module.expired(); });
  auto marked = std::make_shared<Marked>(Marked{module, std::move(base), parameters});
  for (const at::Tensor& each : parameters)
    marked->versions.push_back(static_cast<int64_t>(each._version()));
  bases().modules[module.get()] = std::move(marked);
}

std::unordered_set<const c10::TensorImpl*> base_tensors(const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> tensors;
  for (const auto& marked : marked_in(module)) {
    for (size_t i = 0; i < marked->parameters.size(); ++i) {
      if (marked->stands_in_files(i)) tensors.insert(marked->parameters[i].unsafeGetTensorImpl());
    }
  }
  return tensors;
}

State base_state(const torch::nn::Module& module) {
  State state;
  int64_t number = 0;
  for (const auto& marked : marked_in(module)) {
    if (!marked->is_left_out()) continue;
    if (!marked->digest) marked->digest = marked->base.digest();
    State own;
    own.set("name", marked->base.name).set("digest", *marked->digest);
    state.set(std::to_string(number++), std::move(own));
  }
  return state;
}

void check_bases(const torch::nn::Module& module, const State& state) {
  const State here = base_state(module);
  for (const auto& [number, value] : state.values()) {
    const State& wanted = state.child(number);
    LEVIN_CHECK(here.contains(number), "module.base",
                "the checkpoint was trained on the model in '{}' and holds only the trained "
                "parameters; open that model, and freeze the same parameters",
                printable(wanted.text("name")));
    const State& own = here.child(number);
    LEVIN_CHECK(own.text("digest") == wanted.text("digest"), "module.base",
                "the checkpoint was trained on the model in '{}' (digest {}), but this model is "
                "from '{}' (digest {}); open the model that it was trained on",
                printable(wanted.text("name")), printable(wanted.text("digest")), own.text("name"),
                own.text("digest"));
  }
}

}  // namespace levin
