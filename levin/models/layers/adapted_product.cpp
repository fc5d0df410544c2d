#include "levin/models/layers/adapted_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>
#include <vector>

#include "levin/base/autocast.h"
#include "levin/graph/replay/repeated_product.h"

namespace levin::models {
namespace {

using torch::autograd::AutogradContext;
using Tensors = torch::autograd::variable_list;

// The places of forward()'s arguments.
enum Argument : size_t { kX, kZ, kMatrix, kBias, kA, kB, kScale, kCount };

/// sum + a b, in the memory of sum.
at::Tensor add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  return sum.is_xla() ? at::addmm(sum, a, b) : sum.addmm_(a, b);  // XLA places by itself
}

struct Product : torch::autograd::Function<Product> {
  /// x, z [N, in]; z is nullopt if it is x.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const std::optional<at::Tensor>& z, const at::Tensor& matrix,
                            const std::optional<at::Tensor>& bias, const at::Tensor& a,
                            const at::Tensor& b, double scale) {
    const at::Tensor& of_adapter = z ? *z : x;
    const at::Tensor low = of_adapter.mm(a.t()).mul_(scale);  // [N, r]
    context->save_for_backward({of_adapter, matrix, a, b, low});
    context->saved_data["scale"] = scale;
    context->saved_data["of"] = at::IntArrayRef(
        {x.requires_grad(), z && z->requires_grad(), a.requires_grad(), b.requires_grad()});
    context->saved_data["is_one"] = !z;
    at::Tensor y = graph::repeated_product(x, matrix.t(), bias.value_or(at::Tensor()));
    return add_product(std::move(y), low, b.t());
  }

  static Tensors backward(AutogradContext* context, const Tensors& given) {
    const Tensors saved = context->get_saved_variables();
    const at::Tensor &dy = given[0], &z = saved[0], &matrix = saved[1], &a = saved[2],
                     &b = saved[3];
    const double scale = context->saved_data["scale"].toDouble();
    const std::vector<int64_t> of = context->saved_data["of"].toIntVector();
    Tensors gradients(kCount);
    if (of[3] != 0) {
      // With double backward the result kept by forward has no graph to z and A, so it is computed
      // again.
      const at::Tensor low = at::GradMode::is_enabled() ? z.mm(a.t()) * scale : saved[4];
      gradients[kB] = dy.t().mm(low);
    }
    const at::Tensor d_low = dy.mm(b) * scale;  // [N, r]
    if (of[2] != 0) gradients[kA] = d_low.t().mm(z);
    if (of[1] != 0) gradients[kZ] = d_low.mm(a);
    if (of[0] == 0) return gradients;
    gradients[kX] = graph::repeated_product(dy, matrix);
    if (context->saved_data["is_one"].toBool())
      gradients[kX] = add_product(gradients[kX], d_low, a);
    return gradients;
  }
};

bool needs_gradient(const at::Tensor& tensor) { return tensor.defined() && tensor.requires_grad(); }

bool can_be(const at::Tensor& x, const AdaptedMatrix& adapted, const Autocast& autocast) {
  if (needs_gradient(adapted.matrix) || needs_gradient(adapted.bias)) return false;
  const at::ScalarType type = adapted.a.scalar_type();
  return autocast.enabled || (x.scalar_type() == type && adapted.matrix.scalar_type() == type);
}

}  // namespace

at::Tensor in_type_of(const at::Tensor& tensor, const Autocast& autocast) {
  return autocast.enabled && tensor.defined()
             ? at::autocast::cached_cast(autocast.dtype, tensor, tensor.device().type())
             : tensor;
}

at::Tensor adapted_product(const at::Tensor& x, const AdaptedMatrix& adapted) {
  const at::DeviceType device = x.device().type();
  const Autocast autocast = current_autocast(device);
  if (!can_be(x, adapted, autocast)) return {};
  const auto rows = [&](const at::Tensor& vectors) {
    return in_type_of(vectors, autocast).reshape({-1, vectors.size(-1)});
  };
  std::optional<at::Tensor> of_adapter, bias;  // apply takes no undefined tensor
  const at::Tensor of_matrix = rows(x);
  if (adapted.dropout > 0) of_adapter = rows(at::dropout(x, adapted.dropout, /*train=*/true));
  if (adapted.bias.defined()) bias = in_type_of(adapted.bias, autocast);
  const at::Tensor matrix = in_type_of(adapted.matrix, autocast),
                   a = in_type_of(adapted.a, autocast), b = in_type_of(adapted.b, autocast);
  const AutocastScope off(device, {.enabled = false});
  const at::Tensor y = Product::apply(of_matrix, of_adapter, matrix, bias, a, b, adapted.scale);
  at::DimVector sizes(x.sizes());
  sizes.back() = y.size(-1);
  return y.view(sizes);
}

}  // namespace levin::models
