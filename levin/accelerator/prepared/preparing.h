#pragma once
// Preparing: the implementation of Accelerator::prepare, which turns each argument into its
// prepared handle by the argument's type.
//
//   auto [model, optimizer, loader] = accelerator.prepare(net, optim::adamw({}), train_loader);

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/accelerator/prepared/prepared.h"
#include "levin/accelerator/prepared/prepared_loader.h"
#include "levin/data/loader.h"
#include "levin/module/jit_module.h"
#include "levin/module/optimizer_config.h"

namespace torch::optim {
class Optimizer;
class LRScheduler;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace levin {

namespace detail {

/// Returns a JitModule for a torch::jit::Module, and any other argument unchanged.
template <class T>
decltype(auto) as_prepared(T&& argument) {
  if constexpr (std::is_same_v<std::remove_cvref_t<T>, torch::jit::Module>) {
    return std::make_shared<JitModule>(argument);
  } else {
    return std::forward<T>(argument);
  }
}

/// The type of an object, or of the object that a pointer points to.
template <class T>
struct Object {
  using type = T;
};
template <class T>
  requires requires(T& pointer) { *pointer; }
struct Object<T> {
  using type = std::remove_cvref_t<decltype(*std::declval<T&>())>;
};

/// Returns a shared_ptr to the object. It owns the object if the argument is a temporary, a
/// temporary pointer or a shared_ptr; a variable must outlive it.
template <class T>
auto shared(T&& argument) {
  using Plain = std::remove_cvref_t<T>;
  using Shared = std::shared_ptr<typename Object<Plain>::type>;
  const auto leave = [](auto*) {};
  if constexpr (requires { *argument; }) {
    if constexpr (!std::is_pointer_v<Plain> && std::is_constructible_v<Shared, T&&>) {
      return Shared(std::forward<T>(argument));  // NOLINT: a temporary's pointer is taken over
    } else {
      return Shared(&*argument, leave);
    }
  } else if constexpr (std::is_lvalue_reference_v<T>) {
    return Shared(&argument, leave);
  } else {
    static_assert(std::is_move_constructible_v<Plain>,
                  "this cannot be moved: keep it in a variable, or give the pointer that "
                  "make_data_loader returned");
    return std::make_shared<Plain>(std::forward<T>(argument));
  }
}

/// Prepares arguments with the private functions of the Accelerator (Engine).
template <class Engine>
class Preparing {
 public:
  explicit Preparing(Engine& engine) : engine_(engine) {}

  /// Returns a std::tuple of handles, in the order of the arguments.
  template <class... Args>
  auto operator()(Args&&... args) {
    (place(args), ...);
    if constexpr ((is_module<std::remove_cvref_t<Args>> || ...)) {
      std::vector<OptimizerConfig> configs;
      (add_configs(args, configs), ...);
      engine_.choose_strategy(configs);
    }
    return std::tuple(prepared(std::forward<Args>(args))...);
  }

  /// Returns the handle of one module.
  template <class T>
  auto model(T&& argument, bool evaluation_mode) {
    static_assert(is_module<std::remove_cvref_t<T>>, "prepare_model takes a module");
    if (!evaluation_mode) {
      place(argument);
      engine_.choose_strategy({});
      return prepared(std::forward<T>(argument));
    }
    auto module = pointer(argument);
    return PreparedModel<typename decltype(module)::element_type>(
        module, engine_.place_for_evaluation(module));
  }

 private:
  template <class T>
  void place(T& argument) {
    if constexpr (is_module<std::remove_cv_t<T>>) engine_.prepare_module(pointer(argument));
  }
  /// The strategy is chosen by the optimizers that are prepared in the same call.
  template <class T>
  static void add_configs(const T& argument, std::vector<OptimizerConfig>& configs) {
    if constexpr (std::is_convertible_v<const T&, OptimizerConfig>) {
      for (OptimizerConfig& config : OptimizerConfig(argument).list()) {
        configs.push_back(std::move(config));
      }
    } else if constexpr (std::is_same_v<T, std::vector<OptimizerConfig>>) {
      configs.insert(configs.end(), argument.begin(), argument.end());
    }
  }
  template <class T>
  auto prepared(T&& argument) {
    using Plain = std::remove_cvref_t<T>;
    using Object = typename detail::Object<Plain>::type;
    if constexpr (std::is_convertible_v<T, OptimizerConfig>) {
      return engine_.prepare_optimizer(OptimizerConfig(argument));
    } else if constexpr (std::is_same_v<Plain, std::vector<OptimizerConfig>>) {
      return engine_.prepare_own_optimizers(argument);
    } else if constexpr (std::is_same_v<Plain, DataLoader>) {
      return engine_.prepared_loader(argument);
    } else if constexpr (std::is_base_of_v<torch::optim::Optimizer, Object>) {
      return engine_.prepare_torch_optimizer(shared(std::forward<T>(argument)));
    } else if constexpr (std::is_base_of_v<torch::optim::LRScheduler, Object> ||
                         std::is_same_v<torch::optim::ReduceLROnPlateauScheduler, Object>) {
      PreparedScheduler<Object> schedule(shared(std::forward<T>(argument)), engine_.stepping());
      engine_.register_schedule(
          [schedule] { return schedule.state_dict(); },
          [schedule](const State& state) mutable { schedule.load_state_dict(state); });
      return schedule;
    } else if constexpr (is_torch_loader<Object>) {
      return PreparedTorchLoader<Object>(shared(std::forward<T>(argument)),
                                         engine_.prepare_torch_loader());
    } else {
      static_assert(
          is_module<Plain>,
          "prepare takes torch::nn modules (holder or shared_ptr), torch::jit modules, optimizers "
          "(OptimizerConfig, a vector of them, or a torch::optim class), loaders "
          "(DataLoader, or what torch::data::make_data_loader returned) and schedules "
          "of torch::optim");
      auto module = pointer(argument);
      return PreparedModel<typename decltype(module)::element_type>(module,
                                                                    engine_.forward_conditions());
    }
  }
  template <class T>
  static constexpr bool is_torch_loader = requires { typename T::BatchRequestType; };
  template <class T>
  static constexpr bool is_module = requires(T& t) { static_cast<torch::nn::Module&>(*t); };
  template <class Holder>
  static auto pointer(Holder& holder) {
    if constexpr (requires { holder.ptr(); }) {
      using Pointer = std::remove_cvref_t<decltype(holder.ptr())>;
      return holder.is_empty() ? Pointer() : Pointer(holder.ptr());
    } else {
      return std::shared_ptr(holder);
    }
  }
  Engine& engine_;
};

}  // namespace detail
}  // namespace levin
