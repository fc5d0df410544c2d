// Types of the results of activations, losses, indexing, sorting, random numbers.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/TypeProperties.h>

#include <algorithm>
#include <array>

#include "levin/xla/device/shapes/shapes_impl.h"

namespace levin::xla {
namespace {

using Arguments = at::ArrayRef<c10::IValue>;

ResultType typed(at::ScalarType dtype, at::IntArrayRef sizes) {
  return {.dtype = dtype, .sizes = sizes.vec()};
}
ResultType typed_like(at::ScalarType dtype, const c10::IValue& like) {
  return typed(dtype, like.toTensor().sizes());
}
at::ScalarType dtype_at(const c10::IValue& value) { return value.toTensor().scalar_type(); }

/// The result is of the type of one argument.
template <size_t kIndex>
ResultTypes same_as(Arguments in) {
  return {typed_like(dtype_at(in[kIndex]), in[kIndex])};
}

template <size_t kIndex>
ResultTypes twice_same_as(Arguments in) {
  return {same_as<kIndex>(in)[0], same_as<kIndex>(in)[0]};
}

/// The sizes of all arguments together.
template <size_t... kIndices>
ResultType broadcast_of(Arguments in) {
  at::DimVector sizes;
  for (const size_t index : {kIndices...}) {
    sizes = at::infer_size_dimvector(sizes, in[index].toTensor().sizes());
  }
  std::vector<at::Tensor> tensors = {in[kIndices].toTensor()...};
  return typed(at::native::result_type(tensors), sizes);
}

template <size_t... kIndices>
ResultTypes broadcast(Arguments in) {
  return {broadcast_of<kIndices...>(in)};
}

ResultTypes where_shape(Arguments in) {
  const std::vector<at::Tensor> values = {in[1].toTensor(), in[2].toTensor()};
  return {typed(at::native::result_type(values), broadcast_of<0, 1, 2>(in).sizes)};
}

/// A loss of arguments 0 and 1: one number, or all with a reduction of none.
template <size_t kReduction>
ResultTypes loss_shape(Arguments in) {
  ResultType type = broadcast_of<0, 1>(in);
  if (in[kReduction].toInt() != at::Reduction::None) type.sizes.clear();
  return {type};
}

/// A loss with one number a sample: argument 1 has the samples' sizes.
template <size_t kReduction>
ResultType loss_of_samples(Arguments in) {
  const bool is_each = in[kReduction].toInt() == at::Reduction::None;
  return typed(dtype_at(in[0]), is_each ? in[1].toTensor().sizes() : at::IntArrayRef());
}

ResultTypes nll_loss2d_shape(Arguments in) {
  return {loss_of_samples<3>(in), typed(dtype_at(in[0]), at::IntArrayRef())};
}

/// Scores without samples give one number.
template <size_t kReduction>
ResultTypes margin_loss_shape(Arguments in) {
  const at::Tensor& scores = in[0].toTensor();
  const bool is_each = in[kReduction].toInt() == at::Reduction::None && scores.dim() > 1;
  return {typed(scores.scalar_type(), is_each ? scores.sizes().slice(0, 1) : at::IntArrayRef())};
}

ResultTypes multilabel_shape(Arguments in) {
  return {margin_loss_shape<2>(in)[0], typed_like(dtype_at(in[0]), in[1])};
}

/// nll of each position, gradients of hidden vectors, matrix and bias; those not wanted are empty.
ResultTypes chunked_nll_shape(Arguments in) {
  const at::Tensor &hidden = in[0].toTensor(), &matrix = in[1].toTensor();
  const bool of_hidden = in[6].toBool(), of_matrix = in[7].toBool();
  const auto wanted = [](bool is_wanted, const at::Tensor& like, Dims sizes) {
    return typed(like.scalar_type(), is_wanted ? sizes : Dims{0});
  };
  const bool has_bias = in[2].isTensor() && in[2].toTensor().defined();
  return {typed(at::kFloat, {hidden.size(0)}), wanted(of_hidden, hidden, hidden.sizes().vec()),
          wanted(of_matrix, matrix, matrix.sizes().vec()),
          wanted(of_matrix && has_bias, matrix, {matrix.size(0)})};
}

ResultTypes index_select_shape(Arguments in) {
  const at::Tensor& source = in[0].toTensor();
  ResultType type = typed(source.scalar_type(), source.sizes());
  if (source.dim() == 0) return {type};
  type.sizes[at::maybe_wrap_dim(in[1].toInt(), source.dim())] = in[2].toTensor().numel();
  return {type};
}

ResultTypes take_shape(Arguments in) { return {typed_like(dtype_at(in[0]), in[1])}; }

ResultTypes embedding_shape(Arguments in) {
  ResultType type = typed_like(dtype_at(in[0]), in[1]);
  type.sizes.push_back(in[0].toTensor().size(1));
  return {type};
}

ResultTypes embedding_backward_shape(Arguments in) {
  const at::Tensor& grad = in[0].toTensor();
  return {typed(grad.scalar_type(), {in[2].toInt(), grad.size(-1)})};
}

ResultTypes embedding_bag_shape(Arguments in) {
  const at::Tensor& weight = in[0].toTensor();
  const auto index = dtype_at(in[1]);
  const int64_t bags = in[2].toTensor().numel() - (in[7].toBool() ? 1 : 0);
  const bool is_max = in[4].toInt() == 2;
  const Dims columns = {bags, weight.size(1)};
  return {typed(weight.scalar_type(), columns), typed_like(index, in[1]), typed(index, {bags}),
          typed(index, is_max ? columns : Dims{bags})};
}

ResultTypes embedding_bag_backward_shape(Arguments in) {
  const at::Tensor& grad = in[0].toTensor();
  return {typed(grad.scalar_type(), {in[6].toInt(), grad.size(1)})};
}

ResultTypes bag_weights_backward_shape(Arguments in) {
  return {typed_like(dtype_at(in[0]), in[2])};
}

/// A row or, with keepdim, one element of it; which argument says so.
Dims without_dim(const at::Tensor& tensor, int64_t dim, bool keepdim) {
  Dims sizes = tensor.sizes().vec();
  if (sizes.empty()) return sizes;
  dim = at::maybe_wrap_dim(dim, tensor.dim());
  if (keepdim) sizes[dim] = 1;
  if (!keepdim) sizes.erase(sizes.begin() + dim);
  return sizes;
}

template <size_t kDim>
ResultTypes row_and_place(Arguments in) {
  const at::Tensor& tensor = in[0].toTensor();
  const Dims sizes = without_dim(tensor, in[kDim].toInt(), in[kDim + 1].toBool());
  return {typed(tensor.scalar_type(), sizes), typed(at::kLong, sizes)};
}

/// They write into their arguments.
ResultTypes no_results(Arguments /*in*/) { return {}; }

ResultTypes one_element(Arguments in) { return {typed(dtype_at(in[0]), at::IntArrayRef())}; }

ResultTypes scan_with_place(Arguments in) {
  return {typed_like(dtype_at(in[0]), in[0]), typed_like(at::kLong, in[0])};
}

template <size_t kValues, size_t kIsInt>
ResultTypes search_shape(Arguments in) {
  const auto dtype = in[kIsInt].toBool() ? at::kInt : at::kLong;
  return {in[kValues].isTensor() ? typed_like(dtype, in[kValues])
                                 : typed(dtype, at::IntArrayRef())};
}

template <size_t kIndex>
ResultTypes sizes_of_argument(Arguments in) {
  return {typed(dtype_at(in[0]), in[kIndex].toIntVector())};
}

ResultTypes trace_shape(Arguments in) {
  const auto dtype = dtype_at(in[0]);
  return {typed(at::isIntegralType(dtype, true) ? at::kLong : dtype, at::IntArrayRef())};
}

ResultTypes repeat_shape(Arguments in) {
  Dims sizes = in[1].toIntVector();
  const at::IntArrayRef own = in[0].toTensor().sizes();
  const size_t front = sizes.size() - own.size();
  for (size_t i = 0; i < own.size(); ++i) sizes[front + i] *= own[i];
  return {typed(dtype_at(in[0]), sizes)};
}

ResultTypes dropout_shape(Arguments in) {
  return {typed_like(dtype_at(in[0]), in[0]), typed_like(at::kBool, in[0])};
}

ResultTypes normal_shape(Arguments in) {
  at::DimVector sizes;
  at::ScalarType dtype = at::kFloat;
  for (const c10::IValue& value : in.slice(0, 2)) {
    if (!value.isTensor()) continue;
    sizes = at::infer_size_dimvector(sizes, value.toTensor().sizes());
    dtype = value.toTensor().scalar_type();
  }
  return {typed(dtype, sizes)};
}

template <size_t kDtype>
ResultTypes permutation_shape(Arguments in) {
  return {typed(in[kDtype].isNone() ? at::kLong : in[kDtype].toScalarType(), {in[0].toInt()})};
}

ResultTypes multinomial_shape(Arguments in) {
  Dims sizes = in[0].toTensor().sizes().vec();
  sizes.back() = in[1].toInt();
  return {typed(at::kLong, sizes)};
}

/// Returns how many elements of [rows, columns] lie on and below the diagonal `offset`.
int64_t lower_count(int64_t rows, int64_t columns, int64_t offset) {
  int64_t count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    count += std::clamp<int64_t>(row + offset + 1, 0, columns);
  }
  return count;
}

template <bool kIsLower>
ResultTypes triangle_shape(Arguments in) {
  const int64_t rows = in[0].toInt();
  const int64_t columns = in[1].toInt();
  const int64_t offset = in[2].toInt() - (kIsLower ? 0 : 1);
  const int64_t below = lower_count(rows, columns, offset);
  const auto dtype = in[3].isNone() ? at::kLong : in[3].toScalarType();
  return {typed(dtype, {2, kIsLower ? below : rows * columns - below})};
}

}  // namespace

std::vector<std::pair<const char*, ShapeFunction>> element_shapes() {
  return {{"aten::relu", same_as<0>},
          {"aten::abs", same_as<0>},
          {"aten::logit", same_as<0>},
          {"aten::hardtanh", same_as<0>},
          {"aten::hardtanh_backward", same_as<0>},
          {"aten::hardswish", same_as<0>},
          {"aten::hardswish_backward", same_as<1>},
          {"aten::log_sigmoid_forward", twice_same_as<0>},
          {"aten::log_sigmoid_backward", same_as<0>},
          {"aten::_prelu_kernel", same_as<0>},
          {"aten::_prelu_kernel_backward", twice_same_as<1>},
          {"aten::rrelu_with_noise", same_as<0>},
          {"aten::glu_backward", same_as<1>},
          {"aten::where.self", where_shape},
          {"aten::mse_loss_backward", broadcast<1, 2>},
          {"aten::smooth_l1_loss_backward", broadcast<1, 2>},
          {"aten::huber_loss", loss_shape<2>},
          {"aten::huber_loss_backward", broadcast<1, 2>},
          {"aten::soft_margin_loss", loss_shape<2>},
          {"aten::soft_margin_loss_backward", same_as<1>},
          {"aten::binary_cross_entropy", loss_shape<3>},
          {"aten::binary_cross_entropy_backward", same_as<1>},
          {"aten::nll_loss2d_forward", nll_loss2d_shape},
          {"aten::nll_loss2d_backward", same_as<1>},
          {"aten::multi_margin_loss", margin_loss_shape<5>},
          {"aten::multi_margin_loss_backward", same_as<1>},
          {"aten::multilabel_margin_loss_forward", multilabel_shape},
          {"aten::multilabel_margin_loss_backward", same_as<1>},
          {"levin::chunked_nll", chunked_nll_shape},
          {"aten::index_select", index_select_shape},
          {"aten::masked_scatter_backward", sizes_of_argument<2>},
          {"aten::floor_divide", broadcast<0, 1>},
          {"aten::trace", trace_shape},
          {"aten::take", take_shape},
          {"aten::embedding", embedding_shape},
          {"aten::embedding_dense_backward", embedding_backward_shape},
          {"aten::_embedding_bag", embedding_bag_shape},
          {"aten::_embedding_bag_forward_only", embedding_bag_shape},
          {"aten::_embedding_bag_backward", embedding_bag_backward_shape},
          {"aten::_embedding_bag_per_sample_weights_backward", bag_weights_backward_shape},
          {"aten::kthvalue", row_and_place<2>},
          {"aten::median.dim", row_and_place<1>},
          {"aten::nanmedian.dim", row_and_place<1>},
          {"aten::median", one_element},
          {"aten::nanmedian", one_element},
          {"aten::cummax", scan_with_place},
          {"aten::cummin", scan_with_place},
          {"aten::_logcumsumexp", same_as<0>},
          {"aten::logcumsumexp", same_as<0>},
          {"aten::searchsorted.Tensor", search_shape<1, 2>},
          {"aten::searchsorted.Scalar", search_shape<1, 2>},
          {"aten::bucketize.Tensor", search_shape<0, 2>},
          {"aten::bucketize.Scalar", search_shape<0, 2>},
          {"aten::roll", same_as<0>},
          {"aten::flip", same_as<0>},
          {"aten::repeat", repeat_shape},
          {"aten::unfold_backward", sizes_of_argument<1>},
          {"aten::native_dropout", dropout_shape},
          {"aten::native_dropout_backward", same_as<0>},
          {"aten::normal.Tensor_float", normal_shape},
          {"aten::normal.float_Tensor", normal_shape},
          {"aten::normal.Tensor_Tensor", normal_shape},
          {"aten::bernoulli", same_as<0>},
          {"aten::bernoulli.p", same_as<0>},
          {"aten::randperm", permutation_shape<1>},
          {"aten::randperm.generator", permutation_shape<2>},
          {"aten::multinomial", multinomial_shape},
          {"aten::tril_indices", triangle_shape<true>},
          {"aten::triu_indices", triangle_shape<false>},
          {"levin::all_reduce_", no_results},
          {"levin::broadcast_", no_results}};
}

}  // namespace levin::xla
