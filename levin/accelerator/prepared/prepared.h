#pragma once
// PreparedModel: a user's module that runs under the engine's precision and strategy.
//
//   auto [model, optimizer] = accelerator.prepare(net, levin::optim::adamw({.lr = 1e-3}));
//   auto hidden = model->init_hidden(batch_size);   // any member of the user's class
//   auto loss = loss_of(model->forward(x, hidden)); // forward gives float32

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

/// Precision, strategy and the ranks of batch norm under which a prepared module's code runs. A handle.
class LEVIN_API ForwardConditions {
 public:
  struct Impl;
  explicit ForwardConditions(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

  /// A floating tensor in the type of the parameters, others as they are.
  at::Tensor convert(const at::Tensor& input) const;
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// The calling thread runs under the conditions until the object's end.
class LEVIN_API ForwardScope {
 public:
  explicit ForwardScope(const ForwardConditions& conditions);
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

/// A member of a prepared model runs under its conditions, from `model->` to the statement's end. Objects of a thread
/// are a stack, as the temporaries of its statements are.
class LEVIN_API ModuleCall {
 public:
  /// key: the module's. The conditions must outlive the object.
  ModuleCall(const void* key, const ForwardConditions& conditions);
  ~ModuleCall();
  ModuleCall(const ModuleCall&) = delete;
  ModuleCall& operator=(const ModuleCall&) = delete;

  /// Returns this thread's newest call of that module. It is a programmer's mistake to ask where there is none.
  static ModuleCall& newest(const void* key);
  /// That of newest() ends before its statement does: its values are used by code outside of the
  /// module. The order in which a statement's calls are made is the compiler's to choose, so that
  /// autocast ends for all of the module's.
  static void end(const void* key);

 private:
  static void open_inside(ModuleCall* call, const ModuleCall* outermost);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Half-precision outputs become float32, as Accelerate does, so that losses are computed in it.
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

/// The members of a prepared model that are not the user's class' own. Its address stands for the
/// module; nothing is read through it.
template <class Module>
class PreparedMembers {
 public:
  template <class... Args>
  auto forward(Args&&... args) {
    auto output = call().model().forward(std::forward<Args>(args)...);
    ModuleCall::end(this);
    return output;
  }
  /// As they are between steps: a strategy may have given this rank a part of each.
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

/// How `->` shows the user's module: all of its class, with other members in the place of some.
/// There is never an object of this type. It adds no data and no virtual function to Module, so
/// that a Module can be looked at as one: a call of an inherited member passes the same address.
template <class Module>
class PreparedView : public Module, public PreparedMembers<Module> {
 public:
  PreparedView() = delete;
  using PreparedMembers<Module>::forward;
  using PreparedMembers<Module>::parameters;
  using PreparedMembers<Module>::named_parameters;
};

/// What `->` gives until the statement's end.
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

/// A handle. `model->forward(...)` takes what the module's forward takes, computes under precision
/// and strategy, and gives its outputs in float32. `model->` is else the user's class: what is
/// called, and the arguments of the call, run under precision and strategy too, until forward
/// returns or the statement ends, and results are as they are. `*model` is the module, as it is
/// between steps. Of a class that is final `model->` has this handle's members alone.
template <class Module>
class PreparedModel {
 public:
  PreparedModel(std::shared_ptr<Module> module, ForwardConditions conditions)
      : module_(std::move(module)), conditions_(std::move(conditions)) {}

  template <class... Args>
  auto forward(Args&&... args) const {
    const ForwardScope scope(conditions_);
    return detail::to_float(module_->forward(converted(std::forward<Args>(args))...));
  }
  void train(bool on = true) const { module_->train(on); }
  void eval() const { module_->eval(); }
  std::vector<at::Tensor> parameters() const { return module_->parameters(); }

  auto operator->() const {
    if constexpr (std::is_final_v<Module>) {
      return this;
    } else {
      return detail::PreparedCall<Module>(*this);
    }
  }
  Module& operator*() const { return *module_; }
  const std::shared_ptr<Module>& unwrap() const { return module_; }
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

// PreparedOptimizer: an optimizer with its schedule, as the engine and users drive it.
// PreparedScheduler: a learning rate schedule of torch::optim, which moves with the optimizers.

namespace torch::optim {
class LRScheduler;
class ReduceLROnPlateauScheduler;
}  // namespace torch::optim

namespace levin {

class Stepping;

namespace optim {
class Optimizer;
}  // namespace optim

/// A handle: copies share the optimizer.
class LEVIN_API PreparedOptimizer : public OptimizerHandle {
 public:
  struct Shared;
  explicit PreparedOptimizer(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  /// Inside an accumulation window (Accelerator::accumulate) that is not complete, step does nothing
  /// and zero_grad keeps the gradients. A step that is left out (step_was_skipped) does not move
  /// the schedule.
  void step() override;
  /// Loss and gradients of LBFGS are those of all ranks' batches. Throws Error "optim.closure" where
  /// the class computes the loss several times and the run cannot: within an accumulation window, with
  /// 16-mixed, nan_policy or spike_policy.
  at::Tensor step(const std::function<at::Tensor()>& closure) override;
  void zero_grad() override;
  /// Works for the optimizers that were prepared together.
  void toggle() override;
  void untoggle() override;
  void clip_grad_norm(double max_norm) override;
  double learning_rate() const override;

  optim::Optimizer& optimizer() const;
  int64_t frequency() const;
  bool has_schedule() const;
  /// Updates so far. A recorded step that calls this is replayed only under the same number.
  int64_t steps() const;
  /// Updates so far, for code outside of a step: no condition of a recording.
  int64_t num_updates() const;
  /// The last step() changed no parameter: gradients overflowed, or the loss was bad.
  bool step_was_skipped() const;
  /// Is called before each step, with gradients that are complete.
  void before_step(std::function<void(OptimizerHandle&)> hook);
  /// Moves the schedule on. Needed where step_scheduler_with_optimizer is false.
  void step_schedule();
  /// Parameters of the other optimizers that are not its own too, which toggle() freezes.
  void set_rivals(const std::vector<PreparedOptimizer>& all);

  State state_dict() const;
  void load_state_dict(const State& state);

 private:
  std::shared_ptr<Shared> shared_;
};

namespace detail {

/// Where a schedule stands: of LRScheduler the count of its steps, which is all that LibTorch's
/// own have.
LEVIN_API State schedule_state(const torch::optim::LRScheduler& schedule);
LEVIN_API State schedule_state(const torch::optim::ReduceLROnPlateauScheduler& schedule);
LEVIN_API void load_schedule_state(torch::optim::LRScheduler& schedule, const State& state);
LEVIN_API void load_schedule_state(torch::optim::ReduceLROnPlateauScheduler& schedule,
                                   const State& state);

/// Returns whether the schedules of torch::optim move now: after a step that was taken, or by the user's own calls.
LEVIN_API bool schedules_move(const Stepping& stepping);

}  // namespace detail

/// A handle. step(...) takes the arguments of the schedule's step and
/// calls it once for each optimizer step that was taken: not inside an accumulation window, nor after a
/// step that was left out. Where step_scheduler_with_optimizer is false it always calls it.
template <class Scheduler>
class PreparedScheduler {
 public:
  PreparedScheduler(std::shared_ptr<Scheduler> scheduler, Stepping& stepping)
      : scheduler_(std::move(scheduler)), stepping_(&stepping) {}

  template <class... Args>
  void step(Args&&... args) {
    if (detail::schedules_move(*stepping_)) scheduler_->step(std::forward<Args>(args)...);
  }
  Scheduler& scheduler() const { return *scheduler_; }

  /// The count of steps, and what the schedule's own state_dict() gives where it has one. Learning
  /// rates are part of the optimizer's state.
  State state_dict() const {
    State state = detail::schedule_state(*scheduler_);
    if constexpr (kHasState) state.set("own", scheduler_->state_dict());
    return state;
  }
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
