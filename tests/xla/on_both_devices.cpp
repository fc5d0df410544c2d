#include "tests/xla/on_both_devices.h"

#include <cstdlib>

namespace levin::test {
namespace {

using at::Tensor;

at::ScalarType type_under(const Tensor& input, at::ScalarType dtype) {
  return input.is_floating_point() ? dtype : input.scalar_type();
}

Tensor as_dtype(const Tensor& input, at::ScalarType dtype) {
  const bool rounds = input.is_floating_point() && !at::isFloatingType(dtype);
  if (rounds && dtype == at::kBool) return input > 0;
  return (rounds ? (dtype == at::kByte ? input.abs() : input) * 3 : input)
      .to(type_under(input, dtype));
}

/// The same elements, with others between them.
Tensor with_gaps(const Tensor& tensor) {
  if (tensor.dim() == 0) return tensor;
  return at::stack({tensor, tensor}, -1).select(-1, 1);
}

struct Variant {
  std::string what;
  OperatorTensors came, wanted;
};

/// Results, then the gradients of their sum with weights that differ.
OperatorTensors outcome_of(const OperatorCase& of, const OperatorTensors& inputs) {
  if (!of.with_gradients) {
    const at::NoGradGuard no_grad;
    return of.function(inputs);
  }
  OperatorTensors leaves;
  for (const Tensor& input : inputs) {
    Tensor leaf = input.detach();
    leaves.push_back(leaf.is_floating_point() ? leaf.requires_grad_() : leaf);
  }
  OperatorTensors results = of.function(leaves);
  Tensor total;
  for (const Tensor& result : results) {
    if (!result.requires_grad()) continue;
    const Tensor weights = at::linspace(0.5, 1.5, result.numel(), at::TensorOptions(at::kFloat))
                               .view(result.sizes())
                               .to(result.device(), result.scalar_type());
    const Tensor part = (result * weights).sum();
    total = total.defined() ? total + part : part;
  }
  total.backward();
  for (const Tensor& leaf : leaves) {
    if (leaf.grad().defined()) results.push_back(leaf.grad());
  }
  for (Tensor& result : results) result = result.detach();
  return results;
}

Variant run_both(const OperatorCase& of, at::ScalarType dtype, bool has_gaps) {
  Variant variant{.what = c10::str(dtype, has_gaps ? ", with gaps" : ""), .came = {}, .wanted = {}};
  torch::manual_seed(11);
  OperatorTensors here;
  OperatorTensors there;
  for (const Tensor& drawn : of.inputs()) {
    const Tensor input = as_dtype(drawn, dtype);
    const Tensor moved = input.to(xla_runtime().device());
    here.push_back(has_gaps ? with_gaps(input) : input);
    there.push_back(has_gaps ? with_gaps(moved) : moved);
  }
  variant.wanted = outcome_of(of, here);
  variant.came = outcome_of(of, there);
  return variant;
}

/// What a result may differ by, of a number of at least 1.
double tolerance_under(at::ScalarType dtype) {
  if (dtype == at::kDouble) return 1e-12;
  if (dtype == at::kFloat) return 5e-6;
  return dtype == at::kHalf ? 4e-3 : 3e-2;
}

}  // namespace

xla::Runtime& xla_runtime() {
  static const auto open = [] {
    const auto current = xla::Runtime::current();
    return current ? current : xla::Runtime::open({.plugin = "cpu", .num_devices = 1});
  }();
  return *open;
}

void expect_near(const Tensor& came, const Tensor& wanted, const std::string& what) {
  ASSERT_EQ(came.defined(), wanted.defined()) << what;
  if (!wanted.defined()) return;
  EXPECT_EQ(came.sizes(), wanted.sizes()) << what;
  EXPECT_EQ(came.scalar_type(), wanted.scalar_type()) << what;
  if (came.sizes() != wanted.sizes()) return;
  const Tensor there = came.detach().cpu();
  const double tolerance = tolerance_under(wanted.scalar_type());
  const bool is_float = wanted.is_floating_point();
  const bool is_same =
      is_float ? there.to(at::kDouble)
                     .allclose(wanted.detach().to(at::kDouble), tolerance, tolerance, true)
               : there.equal(wanted);
  EXPECT_TRUE(is_same) << what << '\n' << there << "\nwanted\n" << wanted;
}

void expect_same_on_both(const OperatorCase& of) {
  const int64_t before = xla_runtime().report().host_fallbacks;
  // XLA's compiler takes most of the time. How memory lies and of which dtype is apart, and most of
  // what is true in one dtype is true in its wider or narrower one.
  const bool all = std::getenv("LEVIN_SOAK") != nullptr;
  std::vector<Variant> variants;
  for (const at::ScalarType dtype : of.dtypes) {
    const bool has_relative = dtype == at::kDouble || dtype == at::kHalf || dtype == at::kInt;
    if (!all && has_relative && dtype != of.dtypes.front()) continue;
    for (const bool has_gaps : {false, true}) {
      if (!all && has_gaps && dtype != of.dtypes.front()) continue;
      try {
        variants.push_back(run_both(of, dtype, has_gaps));
      } catch (const std::exception& error) {
        FAIL() << c10::str(dtype, has_gaps ? ", with gaps: " : ": ") << error.what();
      }
    }
  }
  // All dtypes are one program.
  ASSERT_NO_THROW(xla_runtime().sync());
  EXPECT_EQ(xla_runtime().report().host_fallbacks, before) << "an operator ran on the host";
  for (const Variant& variant : variants) {
    ASSERT_EQ(variant.came.size(), variant.wanted.size()) << variant.what;
    for (size_t i = 0; i < variant.came.size(); ++i) {
      expect_near(variant.came[i], variant.wanted[i], c10::str(variant.what, ": result ", i));
    }
  }
}

}  // namespace levin::test
