#pragma once
// PreparedModel: a user's module that runs under the engine's precision and strategy.
//
//   auto [model, optimizer] = accelerator.prepare(net, levin::optim::adamw({.lr = 1e-3}));
//   auto hidden = model->init_hidden(batch_size);   // any member of the user's class
//   auto loss = loss_of(model->forward(x, hidden)); // forward gives float32

#include <ATen/core/Tensor.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/accelerator/prepared/module_call.h"
#include "levin/accelerator/stepping/forward_scope.h"
#include "levin/accelerator/stepping/precision.h"

namespace levin {

template <class Module>
class PreparedModel;

namespace detail {

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
      : module_(std::move(module)),
        conditions_(std::make_shared<const ForwardConditions>(std::move(conditions))) {}

  template <class... Args>
  auto forward(Args&&... args) const {
    const ForwardScope scope(conditions_->precision, conditions_->device, conditions_->synced.get(),
                             conditions_->strategy.get());
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
  const ForwardConditions& conditions() const { return *conditions_; }

 private:
  template <class T>
  decltype(auto) converted(T&& argument) const {
    if constexpr (std::is_same_v<std::remove_cvref_t<T>, at::Tensor>) {
      return conditions_->precision.convert(argument);
    } else {
      return std::forward<T>(argument);
    }
  }

  std::shared_ptr<Module> module_;
  std::shared_ptr<const ForwardConditions> conditions_;
};

}  // namespace levin
