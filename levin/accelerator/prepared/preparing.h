#pragma once
// Preparing: what Accelerator::prepare makes of each of its arguments.

#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/accelerator/prepared/arguments.h"
#include "levin/accelerator/prepared/prepared_model.h"
#include "levin/accelerator/prepared/prepared_scheduler.h"
#include "levin/accelerator/prepared/prepared_torch_loader.h"
#include "levin/data/loader.h"
#include "levin/module/optimizer_config.h"

namespace torch::optim {
class Optimizer;
class LRScheduler;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace levin {

/// A loader feeds training (ranks get equal counts; of streams, whose ranks may have
/// different ones, the epoch ends on all as soon as it ends on one) or evaluation (no sample
/// repeats).
enum class LoaderRole { kTraining, kEvaluation };

namespace detail {

/// Engine: the Accelerator, whose private functions do it.
template <class Engine>
class Preparing {
 public:
  explicit Preparing(Engine& engine) : engine_(engine) {}

  /// A std::tuple of handles, in the order of the arguments.
  template <class... Args>
  auto operator()(Args&&... args) {
    (place(args), ...);
    return std::tuple(prepared(std::forward<Args>(args))...);
  }

 private:
  template <class T>
  void place(T& argument) {
    if constexpr (is_module<std::remove_cv_t<T>>) engine_.prepare_module(pointer(argument));
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
      const PreparedScheduler<Object> schedule(shared(std::forward<T>(argument)),
                                               *engine_.stepping_);
      engine_.schedules_.push_back(registration_of(schedule));
      return schedule;
    } else if constexpr (is_torch_loader<Object>) {
      return prepared_torch_loader(shared(std::forward<T>(argument)));
    } else {
      static_assert(
          is_module<Plain>,
          "prepare takes torch::nn modules (holder or shared_ptr), torch::jit modules, optimizers "
          "(OptimizerConfig, a vector of them, or a torch::optim class), loaders "
          "(DataLoader, or what torch::data::make_data_loader returned) and schedules "
          "of torch::optim");
      auto module = pointer(argument);
      return PreparedModel<typename decltype(module)::element_type>(
          module, {engine_.precision_, engine_.device_.type(), engine_.synced_, engine_.strategy_});
    }
  }
  template <class Loader>
  PreparedTorchLoader<Loader> prepared_torch_loader(std::shared_ptr<Loader> loader) {
    engine_.check_torch_loader();
    Engine* const engine = &engine_;  // outlives this
    return {std::move(loader),
            {.rank = engine_.process_index(),
             .size = engine_.num_processes(),
             .parts = engine_.placement_.parts(),
             .to_device = [engine](const at::Tensor& rows) { return engine->to_device(rows); },
             .end_batch = [engine] { engine->placement_.end_batch(); },
             .in_use = engine_.in_use_,
             .in_step = [engine](const auto& draws) { engine->in_step(draws); }}};
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
  template <class Schedule>
  static typename Engine::Registered registration_of(PreparedScheduler<Schedule> schedule) {
    return {[schedule] { return schedule.state_dict(); },
            [schedule](const State& state) mutable { schedule.load_state_dict(state); }};
  }

  Engine& engine_;
};

}  // namespace detail
}  // namespace levin
