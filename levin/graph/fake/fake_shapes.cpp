// The rules follow the operators' kernels for the CPU (aten/src/ATen/native), whose results they
// describe. LibTorch has these rules in Python alone (torch/_meta_registrations.py,
// torch/_decomp/decompositions.py).
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "levin/graph/fake/fake_shapes_impl.h"

namespace levin::graph::fake {
namespace {

using Arguments = std::span<const c10::IValue>;
using Results = std::vector<c10::IValue>;
using Sizes = std::vector<int64_t>;

at::Tensor made(const Sizes& sizes, at::ScalarType type) {
  return at::empty(sizes, at::dtype(type).device(at::kMeta));
}

at::Tensor like(const c10::IValue& argument) { return at::empty_like(argument.toTensor()); }

at::Tensor like_if(bool is_wanted, const c10::IValue& argument) {
  return is_wanted && argument.isTensor() && argument.toTensor().defined() ? like(argument)
                                                                           : at::Tensor();
}

/// The kernel keeps statistics of half precision in float32.
at::ScalarType statistics_type(at::ScalarType type) {
  return c10::isReducedFloatingType(type) ? at::kFloat : type;
}

Results like_first(Arguments arguments) { return {like(arguments[0])}; }
Results like_second(Arguments arguments) { return {like(arguments[1])}; }

Results where(Arguments arguments) {
  const at::Tensor &condition = arguments[0].toTensor(), &self = arguments[1].toTensor(),
                   &other = arguments[2].toTensor();
  const auto sizes = at::infer_size(condition.sizes(), at::infer_size(self.sizes(), other.sizes()));
  return {made(sizes, at::result_type(self, other))};
}

Results index_select(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  Sizes sizes = self.sizes().vec();
  if (!sizes.empty()) {
    sizes[static_cast<size_t>(at::maybe_wrap_dim(arguments[1].toInt(), self.dim()))] =
        arguments[2].toTensor().numel();
  }
  return {made(sizes, self.scalar_type())};
}

Results embedding(Arguments arguments) {
  const at::Tensor& weight = arguments[0].toTensor();
  Sizes sizes = arguments[1].toTensor().sizes().vec();
  sizes.insert(sizes.end(), weight.sizes().begin() + 1, weight.sizes().end());
  return {made(sizes, weight.scalar_type())};
}

Results embedding_dense_backward(Arguments arguments) {
  const at::Tensor& gradient = arguments[0].toTensor();
  return {made({arguments[2].toInt(), gradient.size(-1)}, gradient.scalar_type())};
}

Results layer_norm(Arguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const size_t num_normalized = arguments[1].toIntVector().size();
  Sizes sizes = input.sizes().vec();
  std::fill(sizes.end() - static_cast<std::ptrdiff_t>(num_normalized), sizes.end(), 1);
  const auto type = statistics_type(input.scalar_type());
  return {at::empty_like(input, at::MemoryFormat::Contiguous), made(sizes, type),
          made(sizes, type)};
}

Results layer_norm_backward(Arguments arguments) {
  const auto mask = arguments[7].toBoolList();
  return {like_if(mask[0], arguments[1]), like_if(mask[1], arguments[5]),
          like_if(mask[2], arguments[6])};
}

Results rms_norm(Arguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const size_t num_normalized = arguments[1].toIntVector().size();
  Sizes sizes = input.sizes().vec();
  std::fill(sizes.end() - static_cast<std::ptrdiff_t>(num_normalized), sizes.end(), 1);
  return {at::empty_like(input), made(sizes, statistics_type(input.scalar_type()))};
}

Results rms_norm_backward(Arguments arguments) {
  const auto mask = arguments[5].toBoolList();
  return {like_if(mask[0], arguments[1]), like_if(mask[1], arguments[4])};
}

Results batch_norm(Arguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const int64_t channels = arguments[5].toBool() ? input.size(1) : 0;
  const auto type = statistics_type(input.scalar_type());
  return {at::empty_like(input), made({channels}, type), made({channels}, type)};
}

Results batch_norm_backward(Arguments arguments) {
  const auto mask = arguments[9].toBoolList();
  const at::Tensor& input = arguments[1].toTensor();
  const auto type = arguments[2].isTensor() && arguments[2].toTensor().defined()
                        ? arguments[2].toTensor().scalar_type()
                        : input.scalar_type();
  const auto of_channels = [&](bool is_wanted) {
    return is_wanted ? made({input.size(1)}, type) : at::Tensor();
  };
  return {like_if(mask[0], arguments[1]), of_channels(mask[1]), of_channels(mask[2])};
}

Results group_norm(Arguments arguments) {
  const Sizes groups = {arguments[3].toInt(), arguments[6].toInt()};
  const auto type = statistics_type(arguments[0].toTensor().scalar_type());
  return {like(arguments[0]), made(groups, type), made(groups, type)};
}

Results group_norm_backward(Arguments arguments) {
  const auto mask = arguments[9].toBoolList();
  const int64_t channels = arguments[6].toInt();
  const at::Tensor& input = arguments[1].toTensor();
  const auto of_channels = [&](bool is_wanted) {
    return is_wanted ? made({channels}, input.scalar_type()) : at::Tensor();
  };
  return {like_if(mask[0], arguments[1]), of_channels(mask[1]), of_channels(mask[2])};
}

int64_t at_dim(const Sizes& list, size_t dim) { return list.size() == 1 ? list[0] : list[dim]; }

Results convolution(Arguments arguments) {
  const at::Tensor &input = arguments[0].toTensor(), &weight = arguments[1].toTensor();
  const Sizes stride = arguments[3].toIntVector(), padding = arguments[4].toIntVector(),
              dilation = arguments[5].toIntVector(), more = arguments[7].toIntVector();
  const bool is_transposed = arguments[6].toBool();
  const bool has_batch = input.dim() == weight.dim();
  Sizes sizes;
  if (has_batch) sizes.push_back(input.size(0));
  sizes.push_back(is_transposed ? weight.size(1) * arguments[8].toInt() : weight.size(0));
  for (int64_t i = 2; i < weight.dim(); ++i) {
    const auto dim = static_cast<size_t>(i - 2);
    const int64_t size = input.size(has_batch ? i : i - 1);
    const int64_t reach = at_dim(dilation, dim) * (weight.size(i) - 1);
    sizes.push_back(is_transposed
                        ? (size - 1) * at_dim(stride, dim) - 2 * at_dim(padding, dim) + reach +
                              at_dim(more, dim) + 1
                        : (size + 2 * at_dim(padding, dim) - reach - 1) / at_dim(stride, dim) + 1);
  }
  const at::Tensor result = made(sizes, input.scalar_type());
  const auto format = input.suggest_memory_format();
  return {format == at::MemoryFormat::Contiguous || result.dim() != input.dim()
              ? result
              : result.contiguous(format)};
}

Results convolution_backward(Arguments arguments) {
  const auto mask = arguments[10].toBoolList();
  const at::Tensor &gradient = arguments[0].toTensor(), &weight = arguments[2].toTensor();
  const int64_t outputs =
      arguments[7].toBool() ? weight.size(1) * arguments[9].toInt() : weight.size(0);
  return {like_if(mask[0], arguments[1]), like_if(mask[1], arguments[2]),
          mask[2] ? made({outputs}, gradient.scalar_type()) : at::Tensor()};
}

/// Both lie as [batch, tokens, heads, size].
Results attention(Arguments arguments) {
  const at::Tensor &query = arguments[0].toTensor(), &value = arguments[2].toTensor();
  const int64_t batch = query.size(0), heads = query.size(1), tokens = query.size(2);
  const auto type = query.scalar_type();
  return {made({batch, tokens, heads, value.size(3)}, type).transpose(1, 2),
          made({batch, tokens, heads}, statistics_type(type)).transpose(1, 2)};
}

Results attention_backward(Arguments arguments) {
  const auto as_tokens = [](const at::Tensor& each) {
    return made({each.size(0), each.size(2), each.size(1), each.size(3)}, each.scalar_type())
        .transpose(1, 2);
  };
  return {as_tokens(arguments[1].toTensor()), as_tokens(arguments[2].toTensor()),
          as_tokens(arguments[3].toTensor())};
}

Results log_sigmoid_forward(Arguments arguments) {
  return {like(arguments[0]), like(arguments[0])};
}

Sizes reduced(const at::Tensor& self, const c10::IValue& dims, bool keeps) {
  Sizes wanted = dims.isNone() ? Sizes() : dims.toIntVector();
  for (int64_t& dim : wanted) dim = at::maybe_wrap_dim(dim, self.dim());
  Sizes sizes;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    const bool is_reduced = wanted.empty() || std::ranges::find(wanted, dim) != wanted.end();
    if (!is_reduced) sizes.push_back(self.size(dim));
    if (is_reduced && keeps) sizes.push_back(1);
  }
  return sizes;
}

Results variance(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return {made(reduced(self, arguments[1], arguments[3].toBool()), self.scalar_type())};
}

Results variance_and_mean(Arguments arguments) {
  const at::Tensor one = variance(arguments)[0].toTensor();
  return {one, at::empty_like(one)};
}

/// The last dims get these sizes.
Results resized(const at::Tensor& self, const Sizes& last) {
  Sizes sizes = self.sizes().vec();
  std::ranges::copy(last, sizes.end() - std::ssize(last));
  return {made(sizes, self.scalar_type())};
}

Results adaptive_pool(Arguments arguments) {
  return resized(arguments[0].toTensor(), arguments[1].toIntVector());
}

Results max_unpool(Arguments arguments) {
  return resized(arguments[0].toTensor(), arguments[2].toIntVector());
}

/// The padding is that of the last dim first, before and after.
Results padded(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const Sizes padding = arguments[1].toIntVector();
  Sizes last;
  for (size_t i = 0; i < padding.size(); i += 2) {
    const int64_t size = self.size(self.dim() - 1 - static_cast<int64_t>(i / 2));
    last.insert(last.begin(), size + padding[i] + padding[i + 1]);
  }
  return resized(self, last);
}

int64_t windows(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                bool rounds_up) {
  const int64_t reach = size + 2 * padding - dilation * (kernel - 1) - 1;
  int64_t count = (reach + (rounds_up ? stride - 1 : 0)) / stride + 1;
  // The last window begins within the input or its left padding.
  if (rounds_up && (count - 1) * stride >= size + padding) --count;
  return count;
}

Results max_pool3d(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const Sizes kernel = arguments[1].toIntVector(), padding = arguments[3].toIntVector(),
              dilation = arguments[4].toIntVector();
  const Sizes given = arguments[2].toIntVector(), &stride = given.empty() ? kernel : given;
  Sizes last;
  for (size_t dim = 0; dim < 3; ++dim) {
    const int64_t size = self.size(self.dim() - 3 + static_cast<int64_t>(dim));
    last.push_back(windows(size, at_dim(kernel, dim), at_dim(stride, dim), at_dim(padding, dim),
                           at_dim(dilation, dim), arguments[5].toBool()));
  }
  const at::Tensor values = resized(self, last)[0].toTensor();
  return {values, made(values.sizes().vec(), at::kLong)};
}

/// [N, C, H, W] as columns of its windows.
Results im2col(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const Sizes kernel = arguments[1].toIntVector(), dilation = arguments[2].toIntVector(),
              padding = arguments[3].toIntVector(), stride = arguments[4].toIntVector();
  int64_t columns = 1;
  for (size_t dim = 0; dim < 2; ++dim) {
    columns *= windows(self.size(self.dim() - 2 + static_cast<int64_t>(dim)), at_dim(kernel, dim),
                       at_dim(stride, dim), at_dim(padding, dim), at_dim(dilation, dim), false);
  }
  Sizes sizes(self.sizes().begin(), self.sizes().end() - 3);
  sizes.push_back(self.size(-3) * at_dim(kernel, 0) * at_dim(kernel, 1));
  sizes.push_back(columns);
  return {made(sizes, self.scalar_type())};
}

Results col2im(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const Sizes wanted = arguments[1].toIntVector(), kernel = arguments[2].toIntVector();
  Sizes sizes(self.sizes().begin(), self.sizes().end() - 2);
  sizes.push_back(self.size(-2) / (at_dim(kernel, 0) * at_dim(kernel, 1)));
  sizes.insert(sizes.end(), wanted.begin(), wanted.end());
  return {made(sizes, self.scalar_type())};
}

Results prelu_backward(Arguments arguments) { return {like(arguments[1]), like(arguments[1])}; }

/// Reduction::None is 0.
Results loss_of_reduction(Arguments arguments, size_t reduction) {
  const at::Tensor& self = arguments[0].toTensor();
  if (arguments[reduction].toInt() != 0) return {made({}, self.scalar_type())};
  return {made(at::infer_size(self.sizes(), arguments[1].toTensor().sizes()), self.scalar_type())};
}

Results loss_reduced_by_third(Arguments arguments) { return loss_of_reduction(arguments, 2); }
Results loss_reduced_by_fourth(Arguments arguments) { return loss_of_reduction(arguments, 3); }
Results loss_reduced_by_fifth(Arguments arguments) { return loss_of_reduction(arguments, 4); }

Results nll_loss2d(Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const bool is_whole = arguments[3].toInt() == 0;
  return {made(is_whole ? arguments[1].toTensor().sizes().vec() : Sizes(), self.scalar_type()),
          made({}, self.scalar_type())};
}

Results truth_of_one(Arguments arguments) {
  return {at::empty_like(arguments[0].toTensor(), at::kBool)};
}

Results truth_of_two(Arguments arguments) {
  const at::Tensor &self = arguments[0].toTensor(), &other = arguments[1].toTensor();
  return {made(at::infer_size(self.sizes(), other.sizes()), at::kBool)};
}

const std::unordered_map<std::string_view, ShapeRule>& rules() {
  static const std::unordered_map<std::string_view, ShapeRule> kRules = {
      {"aten::relu", &like_first},
      {"aten::hardtanh", &like_first},
      {"aten::hardtanh_backward", &like_second},
      {"aten::hardswish", &like_first},
      {"aten::hardswish_backward", &like_second},
      {"aten::prelu", &like_first},
      {"aten::_prelu_kernel", &like_first},
      {"aten::log_sigmoid_forward", &log_sigmoid_forward},
      {"aten::log_sigmoid_backward", &like_second},
      {"aten::mse_loss_backward", &like_second},
      {"aten::smooth_l1_loss_backward", &like_second},
      {"aten::huber_loss", &loss_reduced_by_third},
      {"aten::huber_loss_backward", &like_second},
      {"aten::binary_cross_entropy", &loss_reduced_by_fourth},
      {"aten::binary_cross_entropy_backward", &like_second},
      {"aten::nll_loss2d_forward", &nll_loss2d},
      {"aten::nll_loss2d_backward", &like_second},
      {"aten::flip", &like_first},
      {"aten::roll", &like_first},
      {"aten::where.self", &where},
      {"aten::index_select", &index_select},
      {"aten::embedding", &embedding},
      {"aten::embedding_dense_backward", &embedding_dense_backward},
      {"aten::native_layer_norm", &layer_norm},
      {"aten::native_layer_norm_backward", &layer_norm_backward},
      {"aten::_fused_rms_norm", &rms_norm},
      {"aten::_fused_rms_norm_backward", &rms_norm_backward},
      {"aten::native_batch_norm", &batch_norm},
      {"aten::native_batch_norm_backward", &batch_norm_backward},
      {"aten::native_group_norm", &group_norm},
      {"aten::native_group_norm_backward", &group_norm_backward},
      {"aten::convolution", &convolution},
      {"aten::convolution_backward", &convolution_backward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", &attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", &attention_backward},
      {"aten::var.correction", &variance},
      {"aten::std.correction", &variance},
      {"aten::var_mean.correction", &variance_and_mean},
      {"aten::std_mean.correction", &variance_and_mean},
      {"aten::_safe_softmax", &like_first},
      {"aten::logical_not", &truth_of_one},
      {"aten::logical_and", &truth_of_two},
      {"aten::logical_or", &truth_of_two},
      {"aten::logical_xor", &truth_of_two},
      {"aten::abs", &like_first},
      {"aten::logit", &like_first},
      {"aten::logit_backward", &like_second},
      {"aten::glu_backward", &like_second},
      {"aten::rrelu_with_noise", &like_first},
      {"aten::rrelu_with_noise_backward", &like_second},
      {"aten::_prelu_kernel_backward", &prelu_backward},
      {"aten::binary_cross_entropy_with_logits", &loss_reduced_by_fifth},
      {"aten::_adaptive_avg_pool2d", &adaptive_pool},
      {"aten::_adaptive_avg_pool2d_backward", &like_second},
      {"aten::_adaptive_avg_pool3d", &adaptive_pool},
      {"aten::_adaptive_avg_pool3d_backward", &like_second},
      {"aten::max_pool3d_with_indices", &max_pool3d},
      {"aten::max_pool3d_with_indices_backward", &like_second},
      {"aten::max_unpool2d", &max_unpool},
      {"aten::max_unpool3d", &max_unpool},
      {"aten::reflection_pad2d", &padded},
      {"aten::reflection_pad2d_backward", &like_second},
      {"aten::replication_pad2d", &padded},
      {"aten::replication_pad2d_backward", &like_second},
      {"aten::replication_pad3d", &padded},
      {"aten::replication_pad3d_backward", &like_second},
      {"aten::im2col", &im2col},
      {"aten::col2im", &col2im}};
  return kRules;
}

}  // namespace

ShapeRule shape_rule(std::string_view name) {
  const auto found = rules().find(name);
  return found == rules().end() ? nullptr : found->second;
}

}  // namespace levin::graph::fake
