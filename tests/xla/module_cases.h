#pragma once
// Every layer of torch::nn with each option that changes its operators.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/xla/on_both_devices.h"

namespace levin::test {

/// A layer, and a call of it. Floating inputs get gradients.
struct ModuleCase {
  struct Made {
    std::shared_ptr<torch::nn::Module> module;
    std::function<OperatorTensors(const OperatorTensors&)> call;
  };

  std::string name;
  std::function<OperatorTensors()> inputs;  ///< on the CPU
  std::function<Made()> make;
  bool is_random = false;   ///< in training: its random numbers are the device's own
  bool is_on_host = false;  ///< computed by the CPU, with a warning, as docs/xla.md says
};

using ModuleCases = std::vector<ModuleCase>;

ModuleCases recurrent_modules();
ModuleCases convolution_modules();
ModuleCases pooling_modules();
ModuleCases resizing_modules();
ModuleCases norm_modules();
ModuleCases activation_modules();
ModuleCases embedding_modules();
ModuleCases attention_modules();
ModuleCases transformer_modules();
ModuleCases loss_modules();
/// Of which each call is an error on the CPU.
ModuleCases refused_modules();

inline std::function<OperatorTensors()> joined(std::function<OperatorTensors()> first,
                                               std::function<OperatorTensors()> second) {
  return [first = std::move(first), second = std::move(second)] {
    OperatorTensors all = first();
    for (const at::Tensor& tensor : second()) all.push_back(tensor);
    return all;
  };
}
inline std::function<OperatorTensors()> places_below(int64_t high, std::vector<int64_t> sizes) {
  return [high, sizes] { return OperatorTensors{torch::randint(high, sizes)}; };
}
/// -1 and 1, without gradients: as whole numbers.
inline std::function<OperatorTensors()> signs_of(std::vector<int64_t> sizes) {
  return [sizes] { return OperatorTensors{torch::randint(2, sizes) * 2 - 1}; };
}

inline ModuleCase random_in_training(ModuleCase of) {
  of.is_random = true;
  return of;
}
inline ModuleCase on_host(ModuleCase of) {
  of.is_on_host = true;
  return of;
}

}  // namespace levin::test

/// A case whose layer is called m and whose inputs t:
/// MODULE("Strided", torch::nn::Conv1d(2, 3, 4), drawn({{2, 2, 9}}), m->forward(t[0])).
#define MODULE(name, holder, inputs, ...)                                   \
  levin::test::ModuleCase {                                                 \
    name, inputs, [=]() -> levin::test::ModuleCase::Made {                  \
      auto m = holder;                                                      \
      return {m.ptr(), [=](const levin::test::OperatorTensors& t) mutable { \
                static_cast<void>(t);                                       \
                return levin::test::listed(__VA_ARGS__);                    \
              }};                                                           \
    }                                                                       \
  }
