#include "levin/models/losses/chunked_nll.h"

#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <optional>

#include "levin/base/autocast.h"
#include "levin/models/layers/adapted_product.h"
#include "levin/models/losses/chunked_nll_impl.h"

namespace levin::models {
namespace {

using torch::autograd::AutogradContext;
using Tensors = torch::autograd::variable_list;

/// The inputs that need a gradient; the others get none.
struct Wanted {
  bool hidden = false, matrix = false;
};

Wanted wanted(const at::Tensor& hidden, const OutputLayer& output) {
  if (!at::GradMode::is_enabled()) return {};
  return {.hidden = hidden.requires_grad(),
          .matrix = output.matrix.requires_grad() ||
                    (output.bias.defined() && output.bias.requires_grad())};
}

/// An output of the operator may be empty, a gradient may not.
at::Tensor unless_empty(const at::Tensor& tensor) {
  return tensor.numel() > 0 ? tensor : at::Tensor();
}

/// Returns whether saved tensors are freed after this backward. LibTorch's engine says so of its own tasks;
/// levin::backward, which walks without one, keeps nothing.
bool is_last_backward() {
  return torch::autograd::get_current_graph_task_id() < 0 ||
         !torch::autograd::get_current_graph_task_keep_graph();
}

/// Gradients are there when the sum is: the scores are computed once.
struct NllSum : torch::autograd::Function<NllSum> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& matrix, const std::optional<at::Tensor>& bias,
                            const at::Tensor& labels, double softcap, bool of_hidden,
                            bool of_matrix) {
    const NllParts parts = call_chunked_nll(
        hidden, {.matrix = matrix, .bias = bias.value_or(at::Tensor()), .softcap = softcap}, labels,
        {}, of_hidden, of_matrix);
    context->save_for_backward({parts.d_hidden, parts.d_matrix, parts.d_bias});
    return parts.nll.sum();
  }

  static Tensors backward(AutogradContext* context, const Tensors& given) {
    const Tensors saved = context->get_saved_variables();
    const at::Tensor& scale = given[0];
    at::Tensor d_matrix = saved[1];
    if (d_matrix.numel() > 0) {
      const at::Tensor factor = scale.to(d_matrix.scalar_type());
      // The product is in place if it may be: there may be no room for another tensor of the
      // matrix' size.
      d_matrix = is_last_backward() ? d_matrix.mul_(factor) : d_matrix * factor;
    }
    return {unless_empty(saved[0] * scale.to(saved[0].scalar_type())),
            unless_empty(d_matrix),
            unless_empty(saved[2] * scale.to(saved[2].scalar_type())),
            {},
            {},
            {},
            {}};
  }
};

struct NllOfEach : torch::autograd::Function<NllOfEach> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& hidden,
                            const at::Tensor& matrix, const std::optional<at::Tensor>& bias,
                            const at::Tensor& labels, double softcap, bool of_hidden,
                            bool of_matrix) {
    const OutputLayer output{
        .matrix = matrix, .bias = bias.value_or(at::Tensor()), .softcap = softcap};
    const NllParts parts =
        call_chunked_nll(hidden, output, labels, {}, of_hidden && !of_matrix, false);
    context->saved_data["of_hidden"] = of_hidden;
    context->saved_data["of_matrix"] = of_matrix;
    context->saved_data["softcap"] = softcap;
    if (of_matrix) {
      context->save_for_backward({hidden, matrix, output.bias, labels});
    } else {
      context->save_for_backward({parts.d_hidden});
    }
    return parts.nll;
  }

  static Tensors backward(AutogradContext* context, const Tensors& given) {
    const Tensors saved = context->get_saved_variables();
    const at::Tensor& scale = given[0];
    Tensors gradients(7);
    if (!context->saved_data["of_matrix"].toBool()) {
      gradients[0] = unless_empty(saved[0] * scale.unsqueeze(1).to(saved[0].scalar_type()));
      return gradients;
    }
    const OutputLayer output{
        .matrix = saved[1], .bias = saved[2], .softcap = context->saved_data["softcap"].toDouble()};
    const NllParts parts = call_chunked_nll(saved[0], output, saved[3], scale,
                                            context->saved_data["of_hidden"].toBool(), true);
    gradients[0] = unless_empty(parts.d_hidden);
    gradients[1] = unless_empty(parts.d_matrix);
    gradients[2] = unless_empty(parts.d_bias);
    return gradients;
  }
};

template <class Function>
at::Tensor apply(const at::Tensor& hidden, const OutputLayer& output, const at::Tensor& labels) {
  const at::DeviceType device = hidden.device().type();
  const Autocast autocast = current_autocast(device);
  const at::Tensor x = in_type_of(hidden, autocast), bias = in_type_of(output.bias, autocast),
                   matrix = in_type_of(output.matrix, autocast);
  const Wanted parts = wanted(hidden, output);
  const std::optional<at::Tensor> maybe_bias =
      bias.defined() ? std::optional(bias) : std::nullopt;  // apply takes no undefined tensor
  const AutocastScope off(device, {.enabled = false});
  return Function::apply(x, matrix, maybe_bias, labels, output.softcap, parts.hidden, parts.matrix);
}

}  // namespace

at::Tensor nll_sum(const at::Tensor& hidden, const OutputLayer& output, const at::Tensor& labels) {
  return apply<NllSum>(hidden, output, labels);
}

at::Tensor nll_of_each(const at::Tensor& hidden, const OutputLayer& output,
                       const at::Tensor& labels) {
  return apply<NllOfEach>(hidden, output, labels);
}

}  // namespace levin::models
