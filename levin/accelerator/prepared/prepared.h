#pragma once
// PreparedModel: your module, run under the Accelerator's precision and strategy.
//
//   auto [model, optimizer] = accelerator.prepare(net, levin::optim::adamw({.lr = 1e-3}));
//   auto hidden = model->init_hidden(batch_size);   // any member of your class
//   auto loss = loss_of(model->forward(x, hidden)); // forward returns float32

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/module/module.h"

namespace levin {

struct ForwardSettings;
namespace detail {
class ModuleCall;
}  // namespace detail

/// Handle to the precision, the strategy and the ranks of synchronized batch norm under which a
/// prepared module runs.
class LEVIN_API ForwardConditions {
 public:
  /// Casts a floating-point tensor to the dtype of the parameters; returns other tensors unchanged.
  at::Tensor convert(const at::Tensor& input) const;

 private:
  friend class ForwardScope;
  friend class detail::ModuleCall;
  friend ForwardConditions make_forward_conditions(ForwardSettings settings);
  explicit ForwardConditions(std::shared_ptr<const ForwardSettings> settings)
      : settings_(std::move(settings)) {}

  std::shared_ptr<const ForwardSettings> settings_;
};

/// Scope guard: the calling thread runs under the conditions (autocast, strategy, batch norm) for
/// the lifetime of the object.
class LEVIN_API ForwardScope {
 public:
  explicit ForwardScope(const ForwardConditions& conditions);  ///< Enters the scope.
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  struct Guards;
  std::unique_ptr<Guards> guards_;
};

template <class Module>
class PreparedModel;

namespace detail {

/// Runs a member of a prepared model under its conditions, from `model->` to the end of the
/// statement. The objects of a thread form a stack, as the temporaries of its statements do.
class LEVIN_API ModuleCall {
 public:
  /// key identifies the module. The conditions must outlive the object.
  ModuleCall(const void* key, const ForwardConditions& conditions);
  ~ModuleCall();
  ModuleCall(const ModuleCall&) = delete;
  ModuleCall& operator=(const ModuleCall&) = delete;

  /// Returns this thread's newest call of that module; an internal assert fails if there is none.
  static ModuleCall& newest(const void* key);
  /// Ends the conditions of newest() before the end of its statement, because code outside the
  /// module uses the result. The compiler may choose the order of a statement's calls, so autocast
  /// ends for all calls of the module.
  static void end(const void* key);

 private:
  static void open_inside(ModuleCall* call, const ModuleCall* outermost);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Casts half-precision outputs to float32, as Accelerate does, so that losses are computed in
/// float32.
inline at::Tensor to_float(at::Tensor output) {
  const bool half = output.defined() &&
                    (output.scalar_type() == at::kBFloat16 || output.scalar_type() == at::kHalf);
  return half ? output.to(at::kFloat) : output;
}
template <class T>
T to_float(T output) {
  return output;
}
template <class... Ts>
std::tuple<Ts...> to_float(std::tuple<Ts...> outputs) {
  return std::apply([](auto&... each) { return std::tuple<Ts...>(to_float(std::move(each))...); },
                    outputs);
}
inline std::vector<at::Tensor> to_float(std::vector<at::Tensor> outputs) {
  for (at::Tensor& output : outputs) output = to_float(std::move(output));
  return outputs;
}

template <class Module>
class PreparedCall;

/// The members of a prepared model that replace the user's own. The address of the object stands
/// for the module; nothing is read through it.
template <class Module>
class PreparedMembers {
 public:
  template <class... Args>
  auto forward(Args&&... args) {
    auto output = call().model().forward(std::forward<Args>(args)...);
    ModuleCall::end(this);
    return output;
  }
  /// Returns the parameters as they are between steps: under a sharded strategy, this rank's
  /// shards.
  auto parameters(bool recurse = true) { return outside().parameters(recurse); }
  auto named_parameters(bool recurse = true) { return outside().named_parameters(recurse); }

 private:
  PreparedCall<Module>& call() {
    return static_cast<PreparedCall<Module>&>(ModuleCall::newest(this));
  }
  Module& outside() {
    Module& module = *call().model();
    ModuleCall::end(this);
    return module;
  }
};

/// The type behind `->`: the user's class with some members replaced. No object of this type
/// exists. It adds no data and no virtual function to Module, so a Module can be viewed as one: a
/// call of an inherited member passes the same address.
template <class Module>
class PreparedView : public Module, public PreparedMembers<Module> {
 public:
  PreparedView() = delete;
  using PreparedMembers<Module>::forward;
  using PreparedMembers<Module>::parameters;
  using PreparedMembers<Module>::named_parameters;
};

/// The temporary that `->` returns; it lives until the end of the statement.
template <class Module>
class PreparedCall : public ModuleCall {
 public:
  explicit PreparedCall(const PreparedModel<Module>& model)
      : ModuleCall(static_cast<PreparedMembers<Module>*>(view_of(*model)), model.conditions()),
        model_(model) {}

  PreparedView<Module>* operator->() const { return view_of(*model_); }
  const PreparedModel<Module>& model() const { return model_; }

 private:
  static PreparedView<Module>* view_of(Module& module) {
    static_assert(sizeof(PreparedView<Module>) == sizeof(Module));
    return reinterpret_cast<PreparedView<Module>*>(&module);
  }

  const PreparedModel<Module>& model_;
};

}  // namespace detail

/// A prepared module (a handle). `model->forward(...)` takes the arguments of the module's forward,
/// computes under precision and strategy, and casts half-precision outputs to float32. Any other
/// member of your class can be called through `model->` too: the call and its arguments run under
/// precision and strategy until forward returns or the statement ends, and results keep their
/// dtype. `*model` is the module as it is between steps. If your class is final, `model->` has only
/// the members of this handle.
template <class Module>
class PreparedModel {
 public:
  /// Used by Accelerator::prepare.
  PreparedModel(std::shared_ptr<Module> module, ForwardConditions conditions)
      : module_(std::move(module)), conditions_(std::move(conditions)) {}

  /// Calls the module's forward; floating-point arguments are cast to the dtype of the parameters,
  /// half-precision outputs to float32.
  template <class... Args>
  auto forward(Args&&... args) const {
    const ForwardScope scope(conditions_);
    return detail::to_float(module_->forward(converted(std::forward<Args>(args))...));
  }
  void train(bool on = true) const { module_->train(on); }  ///< Sets training mode.
  void eval() const { module_->eval(); }                    ///< Sets evaluation mode.
  /// Returns the parameters as they are between steps: under a sharded strategy, this rank's
  /// shards.
  std::vector<at::Tensor> parameters() const { return module_->parameters(); }

  /// Gives access to the members of the module, see above.
  auto operator->() const {
    if constexpr (std::is_final_v<Module>) {
      return this;
    } else {
      return detail::PreparedCall<Module>(*this);
    }
  }
  Module& operator*() const { return *module_; }  ///< The module, outside precision and strategy.
  /// The module that was prepared.
  const std::shared_ptr<Module>& unwrap() const { return module_; }
  /// The conditions that forward runs under.
  const ForwardConditions& conditions() const { return conditions_; }

 private:
  template <class T>
  decltype(auto) converted(T&& argument) const {
    if constexpr (std::is_same_v<std::remove_cvref_t<T>, at::Tensor>) {
      return conditions_.convert(argument);
    } else {
      return std::forward<T>(argument);
    }
  }

  std::shared_ptr<Module> module_;
  ForwardConditions conditions_;
};

}  // namespace levin

// PreparedOptimizer: an optimizer with its schedule, which knows gradient accumulation, loss
// scaling and the strategy. PreparedScheduler: a learning rate schedule of torch::optim that steps
// with the optimizers.
//
//   accelerator.backward(loss);
//   accelerator.clip_grad_norm(1.0);
//   optimizer.step();
//   optimizer.zero_grad();

namespace torch::optim {
class LRScheduler;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace levin {

class Stepping;

namespace optim {
class Optimizer;
}  // namespace optim

/// A prepared optimizer. It is a handle: copies share the optimizer.
class LEVIN_API PreparedOptimizer : public OptimizerHandle {
 public:
  /// Updates the parameters and steps the schedule. Inside an incomplete accumulation window
  /// (Accelerator::accumulate), step does nothing and zero_grad keeps the gradients. A skipped step
  /// (step_was_skipped) does not step the schedule.
  void step() override;
  /// Steps with a closure that computes the loss. For LBFGS, loss and gradients are those of all
  /// ranks' batches. Throws Error "optim.closure" if the optimizer evaluates the loss several times
  /// and the run does not support it: within an accumulation window, with 16-mixed, nan_policy or
  /// spike_policy.
  at::Tensor step(const std::function<at::Tensor()>& closure) override;
  void zero_grad() override;
  /// Freezes the parameters of the other optimizers that were prepared together with this one.
  void toggle() override;
  void untoggle() override;
  void clip_grad_norm(double max_norm) override;
  void clip_grad_value(double clip_value) override;
  double learning_rate() const override;

  optim::Optimizer& optimizer() const;  ///< The optimizer itself.
  int64_t frequency() const;  ///< Training steps per optimizer step (OptimizerConfig::frequency).
  bool has_schedule() const;  ///< Returns whether the OptimizerConfig has a schedule.
  const Schedule* schedule() const;  ///< The schedule, or null.
  /// Number of updates so far. A recorded step that calls this is replayed only under the same
  /// number.
  int64_t steps() const;
  /// Number of updates so far, for code outside of a step: no condition for a replay.
  int64_t num_updates() const;
  /// Returns whether the last step() changed no parameter because gradients overflowed or the loss
  /// was bad (LossGuardOptions).
  bool step_was_skipped() const;
  /// Sets a hook that is called before each step, when gradients are reduced and unscaled.
  void before_step(std::function<void(OptimizerHandle&)> hook);
  /// Steps the schedule. It is needed for a schedule with by_hand(), if
  /// step_scheduler_with_optimizer is false, and, in a loop of your own, at the end of each epoch for
  /// a schedule with by_epoch(). Throws Error "optim.schedule.value" for reduce_on_plateau.
  void step_schedule() override;
  /// Gives reduce_on_plateau the value that it monitors; needed in a loop of your own. All ranks
  /// call it and use the value of rank 0. Throws Error "optim.schedule.value" for another schedule.
  void step_schedule(double value) override;

  /// Returns the optimizer's state, the number of updates and the schedule's position.
  State state_dict() const;
  void load_state_dict(const State& state);  ///< Loads what state_dict() returned.

 private:
  friend void prepare_toggle(const std::vector<PreparedOptimizer>& all);
  friend PreparedOptimizer make_prepared_optimizer(std::unique_ptr<optim::Optimizer> optimizer,
                                                   const std::optional<Schedule>& schedule,
                                                   int64_t frequency, int64_t total_steps,
                                                   std::shared_ptr<Stepping> stepping);
  struct Shared;
  explicit PreparedOptimizer(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::shared_ptr<Shared> shared_;
};

namespace detail {

/// Returns the position of a schedule: for an LRScheduler its step count, which is all the state
/// that LibTorch's own schedulers have.
LEVIN_API State schedule_state(const torch::optim::LRScheduler& schedule);
LEVIN_API State schedule_state(const torch::optim::ReduceLROnPlateauScheduler& schedule);
LEVIN_API void load_schedule_state(torch::optim::LRScheduler& schedule, const State& state);
LEVIN_API void load_schedule_state(torch::optim::ReduceLROnPlateauScheduler& schedule,
                                   const State& state);

/// Returns whether schedules of torch::optim step now: after an optimizer step that was not
/// skipped, or whenever the user steps them (step_scheduler_with_optimizer = false).
LEVIN_API bool schedules_move(const Stepping& stepping);

}  // namespace detail

/// A prepared schedule of torch::optim (a handle). step(...) takes the arguments of the schedule's
/// step and calls it once for each optimizer step: not inside an incomplete accumulation window,
/// nor after a skipped step. If step_scheduler_with_optimizer is false, it always calls it.
template <class Scheduler>
class PreparedScheduler {
 public:
  /// Used by Accelerator::prepare.
  PreparedScheduler(std::shared_ptr<Scheduler> scheduler, Stepping& stepping)
      : scheduler_(std::move(scheduler)), stepping_(&stepping) {}

  /// Steps the schedule if the optimizers have stepped.
  template <class... Args>
  void step(Args&&... args) {
    if (detail::schedules_move(*stepping_)) scheduler_->step(std::forward<Args>(args)...);
  }
  Scheduler& scheduler() const { return *scheduler_; }  ///< The schedule itself.

  /// Returns the step count, and the schedule's own state_dict() if it has one. Learning rates are
  /// part of the optimizer's state.
  State state_dict() const {
    State state = detail::schedule_state(*scheduler_);
    if constexpr (kHasState) state.set("own", scheduler_->state_dict());
    return state;
  }
  /// Loads what state_dict() returned.
  void load_state_dict(const State& state) {
    detail::load_schedule_state(*scheduler_, state);
    if constexpr (kHasState) scheduler_->load_state_dict(state.child("own"));
  }

 private:
  static constexpr bool kHasState = requires(Scheduler& own, const State& state) {
    State(own.state_dict());
    own.load_state_dict(state);
  };

  std::shared_ptr<Scheduler> scheduler_;
  Stepping* stepping_;
};

}  // namespace levin
