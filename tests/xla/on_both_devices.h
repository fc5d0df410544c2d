#pragma once
// A table of functions of tensors, each run on the CPU and on xla:0 and compared.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <array>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "levin/xla/device/runtime.h"

namespace levin::test {

using OperatorTensors = std::vector<at::Tensor>;
using Dtypes = std::span<const at::ScalarType>;

inline constexpr std::array kAllDtypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf,
                                          at::kInt,   at::kLong,   at::kBool};
inline constexpr Dtypes kAnything = kAllDtypes;
inline constexpr Dtypes kNumbers = kAnything.first(6);
inline constexpr Dtypes kFloats = kAnything.first(4);
inline constexpr Dtypes kWide = kAnything.first(2);
inline constexpr Dtypes kIntegers = kAnything.subspan(4, 2);

/// Inputs are drawn in f64 and become each dtype in turn; what is drawn as whole numbers or bool
/// stays (indices, masks).
struct OperatorCase {
  std::string name;
  std::function<OperatorTensors()> inputs;
  std::function<OperatorTensors(const OperatorTensors&)> function;
  Dtypes dtypes = kFloats;
  bool with_gradients = false;
};

inline std::ostream& operator<<(std::ostream& out, const OperatorCase& of) {
  return out << of.name;
}

/// The process's device, one for all tests.
xla::Runtime& xla_runtime();

/// The case in dtypes of each kind, and in the first of inputs with gaps in their memory (with
/// LEVIN_SOAK=1 in all): equal to the CPU, without an operator on the host.
void expect_same_on_both(const OperatorCase& of);

/// NaNs are equal; as many digits as the dtype has.
void expect_near(const at::Tensor& came, const at::Tensor& wanted, const std::string& what);

// Inputs.
inline std::function<OperatorTensors()> drawn(std::vector<std::vector<int64_t>> sizes) {
  return [sizes] {
    OperatorTensors inputs;
    for (const auto& size : sizes) inputs.push_back(torch::randn(size, at::kDouble) * 2);
    return inputs;
  };
}
/// Between 0.1 and 0.9.
inline std::function<OperatorTensors()> inside(std::vector<std::vector<int64_t>> sizes) {
  return [sizes] {
    OperatorTensors inputs;
    for (const auto& size : sizes) inputs.push_back(torch::rand(size, at::kDouble) * 0.8 + 0.1);
    return inputs;
  };
}
inline std::function<OperatorTensors()> given(std::function<OperatorTensors()> make) {
  return make;
}

inline void append_to(OperatorTensors& all, const at::Tensor& tensor) { all.push_back(tensor); }
inline void append_to(OperatorTensors& all, const std::vector<at::Tensor>& tensors) {
  all.insert(all.end(), tensors.begin(), tensors.end());
}
template <class... Results>
void append_to(OperatorTensors& all, const std::tuple<Results...>& results) {
  std::apply([&](const auto&... result) { (append_to(all, result), ...); }, results);
}
template <class... Results>
OperatorTensors listed(const Results&... results) {
  OperatorTensors all;
  (append_to(all, results), ...);
  return all;
}

}  // namespace levin::test

/// A case whose inputs are called t: CASE("relu", drawn({{3}}), at::relu(t[0])).
#define CASE(name, inputs, ...)                                                                \
  OperatorCase {                                                                               \
    name, inputs,                                                                              \
        [](const levin::test::OperatorTensors& t) { return levin::test::listed(__VA_ARGS__); } \
  }
