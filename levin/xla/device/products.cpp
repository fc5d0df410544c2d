// Products of matrices with a sum on the device "xla", a linear layer's: one operator back, where
// LibTorch calls seven (transposes, products, the sum of rows), which much of a small network's
// step was.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/library.h>

#include <array>
#include <memory>
#include <tuple>
#include <type_traits>

namespace levin::xla {
namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

constexpr const char* kSchema =
    "addmm_backward(Tensor gradient, Tensor mat1, Tensor mat2, int[] self_sizes, bool[3] mask) -> "
    "(Tensor, Tensor, Tensor)";

/// The gradients of self, mat1 and mat2.
variable_list gradients_of(const Tensor& gradient, const Tensor& mat1, const Tensor& mat2,
                           at::IntArrayRef self_sizes, const std::array<bool, 3>& wanted) {
  if (at::GradMode::is_enabled()) {  // they are to have gradients themselves
    return {wanted[0] ? gradient.sum_to_size(self_sizes) : Tensor(),
            wanted[1] ? gradient.mm(mat2.t()) : Tensor(),
            wanted[2] ? mat1.t().mm(gradient) : Tensor()};
  }
  using Signature = std::tuple<Tensor, Tensor, Tensor>(const Tensor&, const Tensor&, const Tensor&,
                                                       at::IntArrayRef, std::array<bool, 3>);
  static const auto backward = c10::Dispatcher::singleton()
                                   .findSchemaOrThrow("levin::addmm_backward", "")
                                   .typed<Signature>();
  auto [of_self, of_mat1, of_mat2] = backward.call(gradient, mat1, mat2, self_sizes, wanted);
  return {std::move(of_self), std::move(of_mat1), std::move(of_mat2)};
}

struct AddmmBackward final : torch::autograd::TraceableFunction {
  SavedVariable mat1, mat2;
  at::DimVector self_sizes;

  std::string name() const override { return "AddmmBackward0"; }
  variable_list apply(variable_list&& gradients) override {
    const std::scoped_lock lock(mutex_);
    if (!gradients.front().defined()) return variable_list(3);
    return gradients_of(gradients.front(), mat1.unpack(), mat2.unpack(), self_sizes,
                        {task_should_compute_output(0), task_should_compute_output(1),
                         task_should_compute_output(2)});
  }
  void release_variables() override {
    const std::scoped_lock lock(mutex_);
    mat1.reset_data();
    mat2.reset_data();
  }
};

/// LibTorch 2.11 counts who holds a node by std::shared_ptr, and frees deep graphs by deleteNode.
template <class T>
auto make_node() {
  using Pointer = decltype(torch::autograd::Edge::function);
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>) {
    return std::shared_ptr<T>(new T, [](T* node) { deleteNode(node); });
  } else {
    return c10::make_intrusive<T>();
  }
}

bool is_plain(const Tensor& tensor) {
  return tensor.is_xla() && at::isFloatingType(tensor.scalar_type()) &&
         !torch::autograd::isFwGradDefined(tensor);
}

/// Computes a product that no layer calls, with operators that have gradients of their own.
Tensor taken_apart(const Tensor& self, const Tensor& mat1, const Tensor& mat2,
                   const at::Scalar& beta, const at::Scalar& alpha) {
  const Tensor product = at::mul(at::mm(mat1, mat2), alpha);
  return beta.equal(0) ? product : at::add(product, at::mul(self, beta));
}

Tensor addmm(c10::DispatchKeySet keys, const Tensor& self, const Tensor& mat1, const Tensor& mat2,
             const at::Scalar& beta, const at::Scalar& alpha) {
  using namespace torch::autograd;  // NOLINT
  const bool has_gradient = compute_requires_grad(self, mat1, mat2);
  const bool is_of_layer =
      beta.equal(1) && alpha.equal(1) && is_plain(self) && is_plain(mat1) && is_plain(mat2);
  if (has_gradient && !is_of_layer) return taken_apart(self, mat1, mat2, beta, alpha);
  decltype(make_node<AddmmBackward>()) backward;
  if (has_gradient) {
    backward = make_node<AddmmBackward>();
    backward->set_next_edges(collect_next_edges(self, mat1, mat2));
    backward->mat1 = SavedVariable(mat1, /*is_output=*/false);
    backward->mat2 = SavedVariable(mat2, /*is_output=*/false);
    backward->self_sizes = self.sizes();
  }
  Tensor result = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return at::_ops::addmm::redispatch(keys & c10::after_autograd_keyset, self, mat1, mat2, beta,
                                       alpha);
  }();
  if (backward) set_history(result, backward);
  return result;
}

TORCH_LIBRARY_FRAGMENT(levin, library) { library.def(kSchema); }
TORCH_LIBRARY_IMPL(aten, AutogradXLA, library) { library.impl("addmm", &addmm); }

}  // namespace
}  // namespace levin::xla
