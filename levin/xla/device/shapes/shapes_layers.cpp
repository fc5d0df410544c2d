// Types of the results of convolutions, pools, normalizations, paddings.
#include <algorithm>

#include "levin/xla/device/shapes/shapes_impl.h"

namespace levin::xla {
namespace {

using Arguments = at::ArrayRef<c10::IValue>;

const ResultType kUndefined = {.is_defined = false};

ResultType type_of(const at::Tensor& tensor) {
  return {.dtype = tensor.scalar_type(), .sizes = tensor.sizes().vec()};
}
ResultType type_of(const c10::IValue& value) { return type_of(value.toTensor()); }

Dims each_of(const c10::IValue& value, int64_t count) {
  Dims numbers = value.isInt() ? Dims{value.toInt()} : value.toIntVector();
  if (numbers.size() == 1) numbers.resize(count, numbers.front());
  return numbers;
}

bool is_masked_in(const c10::IValue& mask, size_t result) { return mask.toBoolList().get(result); }

ResultType masked(const c10::IValue& mask, size_t result, const ResultType& type) {
  return is_masked_in(mask, result) ? type : kUndefined;
}

/// The dtype of the first that is a tensor.
at::ScalarType dtype_of(std::initializer_list<c10::IValue> values) {
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) return value.toTensor().scalar_type();
  }
  return at::kFloat;
}

template <size_t kIndex>
ResultTypes like_argument(Arguments in) {
  return {type_of(in[kIndex])};
}

ResultTypes convolution_shape(Arguments in) {
  ResultType type = type_of(in[0]);
  const at::Tensor& kernel = in[1].toTensor();
  const auto rank = static_cast<int64_t>(type.sizes.size()) - 2;
  const Dims stride = each_of(in[3], rank);
  const Dims padding = each_of(in[4], rank);
  const Dims dilation = each_of(in[5], rank);
  const bool is_transposed = in[6].toBool();
  const Dims more = each_of(in[7], rank);
  type.sizes[1] = is_transposed ? kernel.size(1) * in[8].toInt() : kernel.size(0);
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t reach = dilation[i] * (kernel.size(i + 2) - 1);
    int64_t& size = type.sizes[i + 2];
    size = is_transposed ? (size - 1) * stride[i] - 2 * padding[i] + reach + more[i] + 1
                         : (size + 2 * padding[i] - reach - 1) / stride[i] + 1;
  }
  return {type};
}

ResultTypes convolution_backward_shape(Arguments in) {
  const ResultType grad = type_of(in[0]);
  return {masked(in[10], 0, type_of(in[1])), masked(in[10], 1, type_of(in[2])),
          masked(in[10], 2, {.dtype = grad.dtype, .sizes = {grad.sizes.at(1)}})};
}

ResultTypes addmm_backward_shape(Arguments in) {
  const ResultType self = {.dtype = type_of(in[0]).dtype, .sizes = in[3].toIntVector()};
  return {masked(in[4], 0, self), masked(in[4], 1, type_of(in[1])),
          masked(in[4], 2, type_of(in[2]))};
}

ResultTypes unfold_shape(Arguments in) {
  const ResultType x = type_of(in[0]);
  const Dims kernel = each_of(in[1], 2);
  const Dims dilation = each_of(in[2], 2);
  const Dims padding = each_of(in[3], 2);
  const Dims stride = each_of(in[4], 2);
  const size_t first = x.sizes.size() - 2;
  int64_t count = 1;
  for (size_t i = 0; i < 2; ++i) {
    count *=
        (x.sizes[first + i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
  }
  Dims sizes(x.sizes.begin(), x.sizes.end() - 3);
  sizes.insert(sizes.end(), {x.sizes[first - 1] * kernel[0] * kernel[1], count});
  return {{.dtype = x.dtype, .sizes = sizes}};
}

ResultTypes fold_shape(Arguments in) {
  const ResultType x = type_of(in[0]);
  const Dims kernel = each_of(in[2], 2);
  const Dims out = each_of(in[1], 2);
  Dims sizes(x.sizes.begin(), x.sizes.end() - 2);
  sizes.insert(sizes.end(),
               {x.sizes[x.sizes.size() - 2] / (kernel[0] * kernel[1]), out[0], out[1]});
  return {{.dtype = x.dtype, .sizes = sizes}};
}

/// Returns the number of windows; ceil_mode adds one that begins inside and ends outside.
int64_t num_windows(int64_t size, int64_t reach, int64_t stride, int64_t padding, bool ceil_mode) {
  const int64_t room = size + 2 * padding - reach - 1 + (ceil_mode ? stride - 1 : 0);
  const int64_t count = room / stride + 1;
  return ceil_mode && (count - 1) * stride >= size + padding ? count - 1 : count;
}

ResultTypes max_pool3d_shape(Arguments in) {
  ResultType x = type_of(in[0]);
  const Dims kernel = each_of(in[1], 3);
  const Dims given = each_of(in[2], 3);
  const Dims& stride = given.empty() ? kernel : given;
  const Dims padding = each_of(in[3], 3);
  const Dims dilation = each_of(in[4], 3);
  for (size_t i = 0; i < 3; ++i) {
    int64_t& size = x.sizes[x.sizes.size() - 3 + i];
    size = num_windows(size, dilation[i] * (kernel[i] - 1), stride[i], padding[i], in[5].toBool());
  }
  return {x, {.dtype = at::kLong, .sizes = x.sizes}};
}

template <size_t kRank>
ResultTypes sized_shape(const c10::IValue& x, const c10::IValue& sizes) {
  ResultType type = type_of(x);
  const Dims wanted = each_of(sizes, kRank);
  std::ranges::copy(wanted, type.sizes.end() - kRank);
  return {type};
}

template <size_t kRank>
ResultTypes adaptive_shape(Arguments in) {
  return sized_shape<kRank>(in[0], in[1]);
}

template <size_t kRank>
ResultTypes unpool_shape(Arguments in) {
  return sized_shape<kRank>(in[0], in[2]);
}

/// Statistics have the dtype of the weights, or without weights that of the input.
ResultTypes batch_norm_shape(Arguments in) {
  const ResultType x = type_of(in[0]);
  const ResultType statistic = {.dtype = dtype_of({in[1], in[3], in[0]}),
                                .sizes = {in[5].toBool() ? x.sizes.at(1) : 0}};
  return {x, statistic, statistic};
}

ResultTypes batch_norm_backward_shape(Arguments in) {
  const ResultType x = type_of(in[1]);
  const ResultType weight = {.dtype = dtype_of({in[2], in[3], in[5], in[1]}),
                             .sizes = {x.sizes.at(1)}};
  return {masked(in[9], 0, x), masked(in[9], 1, weight), masked(in[9], 2, weight)};
}

ResultTypes layer_norm_shape(Arguments in) {
  const ResultType x = type_of(in[0]);
  ResultType statistic = {.dtype = dtype_of({in[2], in[3], in[0]}), .sizes = x.sizes};
  const auto num_reduced = static_cast<int64_t>(in[1].toIntVector().size());
  std::fill(statistic.sizes.end() - num_reduced, statistic.sizes.end(), 1);
  return {x, statistic, statistic};
}

ResultTypes layer_norm_backward_shape(Arguments in) {
  const ResultType weight = {.dtype = dtype_of({in[5], in[6], in[1]}),
                             .sizes = in[2].toIntVector()};
  return {masked(in[7], 0, type_of(in[1])), masked(in[7], 1, weight), masked(in[7], 2, weight)};
}

ResultTypes group_norm_shape(Arguments in) {
  const ResultType statistic = {.dtype = dtype_of({in[1], in[2], in[0]}),
                                .sizes = {in[3].toInt(), in[6].toInt()}};
  return {type_of(in[0]), statistic, statistic};
}

ResultTypes group_norm_backward_shape(Arguments in) {
  const ResultType weight = {.dtype = dtype_of({in[4], in[2]}), .sizes = {in[6].toInt()}};
  return {masked(in[9], 0, type_of(in[1])), masked(in[9], 1, weight), masked(in[9], 2, weight)};
}

ResultTypes weight_norm_shape(Arguments in) { return {type_of(in[0]), type_of(in[1])}; }

ResultTypes weight_norm_backward_shape(Arguments in) { return {type_of(in[1]), type_of(in[2])}; }

ResultTypes pad_shape(Arguments in) {
  ResultType x = type_of(in[0]);
  const Dims padding = in[1].toIntVector();
  for (size_t i = 0; i < padding.size() / 2; ++i) {
    x.sizes[x.sizes.size() - 1 - i] += padding[2 * i] + padding[2 * i + 1];
  }
  return {x};
}

ResultTypes pixel_shuffle_shape(Arguments in) {
  ResultType x = type_of(in[0]);
  const int64_t factor = in[1].toInt();
  const size_t first = x.sizes.size() - 3;
  x.sizes[first] /= factor * factor;
  x.sizes[first + 1] *= factor;
  x.sizes[first + 2] *= factor;
  return {x};
}

ResultTypes pixel_unshuffle_shape(Arguments in) {
  ResultType x = type_of(in[0]);
  const int64_t factor = in[1].toInt();
  const size_t first = x.sizes.size() - 3;
  x.sizes[first] *= factor * factor;
  x.sizes[first + 1] /= factor;
  x.sizes[first + 2] /= factor;
  return {x};
}

/// Sizes of the whole product, without the dimensions that are summed.
ResultTypes trilinear_shape(Arguments in) {
  const Dims gone = in[6].toIntVector();
  const size_t rank = in[0].toTensor().dim() + in[3].toIntVector().size();
  Dims whole(rank, 1);
  for (size_t i = 0; i < 3; ++i) {
    const Dims absent = in[3 + i].toIntVector();
    size_t next = 0;
    for (size_t dim = 0; dim < rank; ++dim) {
      if (std::ranges::find(absent, static_cast<int64_t>(dim)) != absent.end()) continue;
      const int64_t size = in[i].toTensor().size(static_cast<int64_t>(next++));
      if (size != 1) whole[dim] = size;
    }
  }
  ResultType type = {.dtype = in[0].toTensor().scalar_type()};
  for (size_t dim = 0; dim < rank; ++dim) {
    const bool is_gone = std::ranges::find(gone, static_cast<int64_t>(dim)) != gone.end();
    if (!is_gone) type.sizes.push_back(whole[dim]);
  }
  return {type};
}

}  // namespace

std::vector<std::pair<const char*, ShapeFunction>> layer_shapes() {
  return {{"aten::convolution", convolution_shape},
          {"aten::_convolution", convolution_shape},
          {"aten::convolution_overrideable", convolution_shape},
          {"aten::convolution_backward", convolution_backward_shape},
          {"levin::addmm_backward", addmm_backward_shape},
          {"aten::im2col", unfold_shape},
          {"aten::col2im", fold_shape},
          {"aten::max_pool3d_with_indices", max_pool3d_shape},
          {"aten::max_pool3d_with_indices_backward", like_argument<1>},
          {"aten::_adaptive_avg_pool2d", adaptive_shape<2>},
          {"aten::_adaptive_avg_pool3d", adaptive_shape<3>},
          {"aten::_adaptive_avg_pool2d_backward", like_argument<1>},
          {"aten::_adaptive_avg_pool3d_backward", like_argument<1>},
          {"aten::max_unpool2d", unpool_shape<2>},
          {"aten::max_unpool3d", unpool_shape<3>},
          {"aten::native_batch_norm", batch_norm_shape},
          {"aten::_native_batch_norm_legit", batch_norm_shape},
          {"aten::native_batch_norm_backward", batch_norm_backward_shape},
          {"aten::native_layer_norm", layer_norm_shape},
          {"aten::native_layer_norm_backward", layer_norm_backward_shape},
          {"aten::native_group_norm", group_norm_shape},
          {"aten::native_group_norm_backward", group_norm_backward_shape},
          {"aten::_weight_norm_interface", weight_norm_shape},
          {"aten::_weight_norm_interface_backward", weight_norm_backward_shape},
          {"aten::_trilinear", trilinear_shape},
          {"aten::reflection_pad2d", pad_shape},
          {"aten::reflection_pad2d_backward", like_argument<1>},
          {"aten::replication_pad1d_backward", like_argument<1>},
          {"aten::replication_pad2d_backward", like_argument<1>},
          {"aten::replication_pad3d_backward", like_argument<1>},
          {"aten::pixel_shuffle", pixel_shuffle_shape},
          {"aten::pixel_unshuffle", pixel_unshuffle_shape}};
}

}  // namespace levin::xla
