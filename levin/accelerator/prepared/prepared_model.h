#pragma once
// PreparedModel: a user's module whose forward runs under the engine's precision.

#include <ATen/core/Tensor.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "levin/accelerator/stepping/forward_scope.h"
#include "levin/accelerator/stepping/precision.h"

namespace levin {

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

}  // namespace detail

/// A handle. `model->forward(...)` takes what the module's forward takes; `*model` is the module.
template <class Module>
class PreparedModel {
 public:
  PreparedModel(std::shared_ptr<Module> module, Precision precision, at::DeviceType device,
                std::shared_ptr<comm::ProcessGroup> synced = nullptr,
                std::shared_ptr<Strategy> strategy = nullptr)
      : module_(std::move(module)),
        precision_(std::move(precision)),
        device_(device),
        synced_(std::move(synced)),
        strategy_(std::move(strategy)) {}

  template <class... Args>
  auto forward(Args&&... args) {
    const ForwardScope scope(precision_, device_, synced_.get(), strategy_.get());
    return detail::to_float(module_->forward(converted(std::forward<Args>(args))...));
  }
  void train(bool on = true) { module_->train(on); }
  void eval() { module_->eval(); }
  std::vector<at::Tensor> parameters() const { return module_->parameters(); }

  PreparedModel* operator->() { return this; }
  Module& operator*() const { return *module_; }
  const std::shared_ptr<Module>& unwrap() const { return module_; }

 private:
  template <class T>
  decltype(auto) converted(T&& argument) const {
    if constexpr (std::is_same_v<std::remove_cvref_t<T>, at::Tensor>) {
      return precision_.convert(argument);
    } else {
      return std::forward<T>(argument);
    }
  }

  std::shared_ptr<Module> module_;
  Precision precision_;
  at::DeviceType device_;
  std::shared_ptr<comm::ProcessGroup> synced_;  // ranks of batch norm
  std::shared_ptr<Strategy> strategy_;
};

}  // namespace levin
