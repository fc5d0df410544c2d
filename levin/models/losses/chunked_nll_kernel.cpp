// levin::chunked_nll, the operator: all that is computed of a chunk of scores while they are there.

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "levin/base/check.h"
#include "levin/models/losses/chunked_nll.h"
#include "levin/models/losses/chunked_nll_impl.h"

namespace levin::models {
namespace {

/// Scores of a chunk, 64 MB of float32: large enough for products at full speed.
constexpr int64_t kScores = int64_t{1} << 24;
constexpr int64_t kFewestRows = 16;

void check_labels(const at::Tensor& labels, int64_t vocabulary) {
  if (!labels.is_cpu() || labels.numel() == 0) return;
  const auto least = labels.min().item<int64_t>(), most = labels.max().item<int64_t>();
  LEVIN_CHECK(least >= 0 && most < vocabulary, "models.labels",
              "got the label {}, wanted 0 to {}, or {} for tokens that the loss ignores",
              least < 0 ? least : most, vocabulary - 1, kNotCounted);
}

/// Results of a call, filled chunk by chunk; results that are not wanted stay empty.
struct ChunkedNll {
  ChunkedNll(const at::Tensor& hidden, const OutputLayer& output, bool of_hidden, bool of_matrix)
      : output(output) {
    const auto made = [](const at::Tensor& like, bool is_wanted, at::ScalarType type) {
      return is_wanted ? at::zeros_like(like, type) : at::empty({0}, like.options().dtype(type));
    };
    nll = at::zeros({hidden.size(0)}, hidden.options().dtype(at::kFloat));
    d_hidden = made(hidden, of_hidden, hidden.scalar_type());
    d_matrix = made(output.matrix, of_matrix, at::kFloat);
    const bool has_bias = output.bias.defined();
    d_bias = made(has_bias ? output.bias : output.matrix, of_matrix && has_bias, at::kFloat);
  }

  /// places: which rows of all these are, int64 [R]; scale [R]: of their gradients.
  void add(const at::Tensor& hidden, const at::Tensor& labels, const at::Tensor& places,
           const std::optional<at::Tensor>& scale) {
    auto scores = at::linear(hidden, output.matrix, output.bias).to(at::kFloat);
    at::Tensor slope;
    if (output.softcap > 0) {
      scores = scores.div_(output.softcap).tanh_();
      if (has_gradients()) slope = 1 - scores.square();
      scores.mul_(output.softcap);
    }
    const auto column = labels.unsqueeze(1);
    const auto most = scores.amax(1, /*keepdim=*/true);
    const auto of_label = scores.gather(1, column) - most;
    scores.sub_(most).exp_();
    const auto sum = scores.sum(1, /*keepdim=*/true);
    nll.index_copy_(0, places, (sum.log() - of_label).squeeze(1));
    if (!has_gradients()) return;
    // The gradient of the scores, in their place: p - 1 at the label, p elsewhere.
    scores.div_(sum).scatter_add_(1, column, at::full_like(of_label, -1));
    if (slope.defined()) scores.mul_(slope);
    if (scale) scores.mul_(scale->unsqueeze(1));
    const auto given = scores.to(hidden.scalar_type());
    if (d_hidden.numel() > 0) d_hidden.index_copy_(0, places, given.mm(output.matrix));
    if (d_matrix.numel() > 0) add_product(given, hidden);
    if (d_bias.numel() > 0) d_bias.add_(scores.sum(0));
  }

  bool has_gradients() const { return d_hidden.numel() > 0 || d_matrix.numel() > 0; }

  void add_product(const at::Tensor& given, const at::Tensor& hidden) {
    if (given.scalar_type() == at::kFloat) {
      d_matrix.addmm_(given.t(), hidden);
    } else {
      d_matrix.add_(given.t().mm(hidden));
    }
  }

  const OutputLayer& output;
  at::Tensor nll, d_hidden, d_matrix, d_bias;
};

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> chunked_nll(
    const at::Tensor& hidden, const at::Tensor& matrix, const std::optional<at::Tensor>& bias,
    const at::Tensor& labels, const std::optional<at::Tensor>& scale, double softcap,
    bool of_hidden, bool of_matrix) {
  const at::NoGradGuard no_grad;
  const OutputLayer output{
      .matrix = matrix, .bias = bias.value_or(at::Tensor()), .softcap = softcap};
  ChunkedNll result(hidden, output, of_hidden, of_matrix);
  const auto places = labels.ne(kNotCounted).nonzero().squeeze(1);
  check_labels(labels.index_select(0, places), matrix.size(0));
  const int64_t rows = std::max(kFewestRows, kScores / matrix.size(0));
  for (int64_t begin = 0; begin < places.numel(); begin += rows) {
    const auto some = places.narrow(0, begin, std::min(rows, places.numel() - begin));
    std::optional<at::Tensor> own;
    if (scale) own = scale->index_select(0, some);
    result.add(hidden.index_select(0, some), labels.index_select(0, some), some, own);
  }
  return {result.nll, result.d_hidden, result.d_matrix.to(matrix.scalar_type()),
          result.d_bias.to(matrix.scalar_type())};
}

/// The results' sizes, for a step that is recorded without memory.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> chunked_nll_on_meta(
    const at::Tensor& hidden, const at::Tensor& matrix, const std::optional<at::Tensor>& bias,
    const at::Tensor&, const std::optional<at::Tensor>&, double, bool of_hidden, bool of_matrix) {
  const OutputLayer output{.matrix = matrix, .bias = bias.value_or(at::Tensor()), .softcap = 0};
  const ChunkedNll result(hidden, output, of_hidden, of_matrix);
  return {result.nll, result.d_hidden, result.d_matrix.to(matrix.scalar_type()),
          result.d_bias.to(matrix.scalar_type())};
}

}  // namespace

NllParts call_chunked_nll(const at::Tensor& hidden, const OutputLayer& output,
                          const at::Tensor& labels, const std::optional<at::Tensor>& scale,
                          bool of_hidden, bool of_matrix) {
  using Signature = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>(
      const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, const at::Tensor&,
      const std::optional<at::Tensor>&, double, bool, bool);
  static const auto call =
      c10::Dispatcher::singleton().findSchemaOrThrow("levin::chunked_nll", "").typed<Signature>();
  std::optional<at::Tensor> bias;
  if (output.bias.defined()) bias = output.bias;
  const auto [nll, d_hidden, d_matrix, d_bias] =
      call.call(hidden, output.matrix, bias, labels, scale, output.softcap, of_hidden, of_matrix);
  return {.nll = nll, .d_hidden = d_hidden, .d_matrix = d_matrix, .d_bias = d_bias};
}

TORCH_LIBRARY_FRAGMENT(levin, library) {
  library.def(
      "chunked_nll(Tensor hidden, Tensor matrix, Tensor? bias, Tensor labels, Tensor? scale, "
      "float softcap, bool of_hidden, bool of_matrix) -> (Tensor, Tensor, Tensor, Tensor)");
  library.impl("chunked_nll",
               torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &chunked_nll));
  library.impl("chunked_nll", torch::dispatch(c10::DispatchKey::Meta, &chunked_nll_on_meta));
}

}  // namespace levin::models
