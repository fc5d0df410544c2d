#include <ATen/TensorOperators.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include <cmath>
#include <limits>
#include <utility>

#include "levin/base/check.h"
#include "levin/observe/metric.h"
#include "levin/observe/metrics/samples.h"
#include "levin/observe/reduction.h"

namespace levin::metrics {
namespace {

// Rows of the sums [8, outputs], in float64: found numbers are x, wanted ones y.
enum Row : int64_t {
  kCount,
  kMeanX,
  kMeanY,
  kVarianceX,  // sum of squares of x - mean
  kVarianceY,
  kCovariance,
  kAbsoluteError,
  kSquaredError
};

const char* name_of(Regression::Kind kind) {
  switch (kind) {
    case Regression::Kind::kMae:
      return "MeanAbsoluteError";
    case Regression::Kind::kMse:
      return "MeanSquaredError";
    case Regression::Kind::kR2:
      return "R2Score";
    case Regression::Kind::kPearson:
      return "PearsonCorrCoef";
    case Regression::Kind::kSpearman:
      return "SpearmanCorrCoef";
  }
  TORCH_INTERNAL_ASSERT(false);
}

at::Tensor moments(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor mean_x = x.mean(0), mean_y = y.mean(0);
  const at::Tensor from_x = x - mean_x, from_y = y - mean_y, error = x - y;
  return at::stack({at::full_like(mean_x, static_cast<double>(x.size(0))), mean_x, mean_y,
                    from_x.square().sum(0), from_y.square().sum(0), (from_x * from_y).sum(0),
                    error.abs().sum(0), error.square().sum(0)});
}

/// The rank of each number, from 0; equal ones have the mean of theirs.
at::Tensor ranks_of(const at::Tensor& values) {
  const at::Tensor own = values.contiguous();
  const at::Tensor sorted = std::get<0>(own.sort());
  const at::Tensor first = at::searchsorted(sorted, own, /*out_int32=*/false, /*right=*/false);
  const at::Tensor past = at::searchsorted(sorted, own, /*out_int32=*/false, /*right=*/true);
  return (first + past - 1).to(at::kDouble) / 2;
}

/// Rows [N, 2, outputs] -> [outputs]
at::Tensor spearman(const at::Tensor& rows) {
  std::vector<at::Tensor> each;
  for (int64_t i = 0; i < rows.size(2); ++i) {
    const auto centred = [&](int64_t side) {
      const at::Tensor ranks = ranks_of(rows.select(2, i).select(1, side));
      return ranks - ranks.mean();
    };
    const at::Tensor x = centred(0), y = centred(1);
    each.push_back(safe_divide((x * y).sum(), (x.square().sum() * y.square().sum()).sqrt()));
  }
  return at::stack(each).clamp(-1, 1);
}

at::Tensor pearson(const at::Tensor& sums) {
  // Equal numbers have no variance: a remainder of the size of rounding errors counts as none.
  const auto varies = [&](Row variance, Row mean) {
    constexpr double kRounding = 8 * std::numeric_limits<double>::epsilon();
    return sums[variance] > sums[kCount] * (sums[mean] * kRounding).square();
  };
  const at::Tensor value =
      (sums[kCovariance] / (sums[kVarianceX].sqrt() * sums[kVarianceY].sqrt())).clamp(-1, 1);
  return at::where(varies(kVarianceX, kMeanX).logical_and(varies(kVarianceY, kMeanY)), value,
                   at::full_like(value, std::numeric_limits<double>::quiet_NaN()));
}

/// As torchmetrics' _r2_score_compute, which takes sums of up to 1e-4 for 0.
at::Tensor r2(const at::Tensor& sums, const RegressionOptions& options) {
  constexpr double kNone = 1e-4;
  const at::Tensor &rss = sums[kSquaredError], tss = sums[kVarianceY], count = sums[kCount][0];
  const at::Tensor errs = rss > kNone, varies = tss > kNone;
  at::Tensor value = at::where(varies, 1 - rss / tss, 0.0);
  value = at::where(errs, value, at::ones_like(value));
  if (options.multioutput == "uniform_average") value = value.mean();
  if (options.multioutput == "variance_weighted") value = (tss / tss.sum() * value).sum();
  if (options.adjusted > 0) {
    const at::Tensor left = count - static_cast<double>(options.adjusted) - 1;
    value = at::where(left > 0, 1 - (1 - value) * (count - 1) / left, value);
  }
  return at::where(count >= 2, value,
                   at::full_like(value, std::numeric_limits<double>::quiet_NaN()));
}

}  // namespace

Regression::Regression(Kind kind, RegressionOptions options)
    : kind_(kind), options_(std::move(options)) {
  const char* name = name_of(kind);
  const bool is_r2 = kind == Kind::kR2;
  const std::string& multioutput = options_.multioutput;
  check_option(name, options_.num_outputs >= 1, "num_outputs", std::to_string(options_.num_outputs),
               "1 or more");
  check_option(name, options_.squared || kind == Kind::kMse, "squared", "false",
               "true: only MeanSquaredError has the other");
  check_option(name, options_.adjusted == 0 || (is_r2 && options_.adjusted > 0), "adjusted",
               std::to_string(options_.adjusted), is_r2 ? "0 or more" : "0: only R2Score has it");
  check_option(name,
               multioutput == "uniform_average" ||
                   (is_r2 && (multioutput == "raw_values" || multioutput == "variance_weighted")),
               "multioutput", "'" + multioutput + "'",
               is_r2 ? "uniform_average, raw_values or variance_weighted"
                     : "uniform_average: only R2Score has others");
}

bool Regression::is_scalar() const {
  if (options_.num_outputs == 1) return true;
  return kind_ == Kind::kR2 && options_.multioutput != "raw_values";
}

void Regression::update(const at::Tensor& found, const at::Tensor& wanted) {
  const int64_t outputs = options_.num_outputs;
  const bool is_error = kind_ == Kind::kMae || kind_ == Kind::kMse;
  const bool fits = outputs > 1
                        ? found.dim() == 2 && found.size(1) == outputs
                        : is_error || found.dim() <= 1 || (found.dim() == 2 && found.size(1) == 1);
  LEVIN_CHECK(found.sizes() == wanted.sizes() && fits, "observe.metric.shape",
              "got {} and {} to compare it with, wanted {} (num_outputs = {})",
              c10::str(found.sizes()), c10::str(wanted.sizes()),
              outputs > 1 ? "both [N, num_outputs]"
              : is_error  ? "the same shape"
                          : "both [N]",
              outputs);
  LEVIN_CHECK(!found.is_complex() && !wanted.is_complex(), "observe.metric.dtype",
              "got numbers of dtype {} and {}, wanted real ones",
              c10::toString(found.scalar_type()), c10::toString(wanted.scalar_type()));
  if (found.numel() == 0) return;
  const detail::OrdinaryTensors guard;
  const at::Tensor x = found.to(at::kDouble).reshape({-1, outputs});
  const at::Tensor y = wanted.to(at::kDouble).reshape({-1, outputs});
  if (kind_ == Kind::kSpearman) return keep(at::stack({x, y}, 1));
  add(moments(x, y));
}

/// Chan, Golub and LeVeque, Updating formulae and a pairwise algorithm for computing sample variances (1979).
at::Tensor Regression::joined(const at::Tensor& sums, const at::Tensor& more) const {
  const at::Tensor count = sums[kCount] + more[kCount];
  const at::Tensor part = more[kCount] / count.clamp_min(1);
  const at::Tensor apart_x = more[kMeanX] - sums[kMeanX], apart_y = more[kMeanY] - sums[kMeanY];
  const at::Tensor weight = sums[kCount] * part;
  const at::Tensor both = sums + more;
  return at::stack(
      {count, sums[kMeanX] + apart_x * part, sums[kMeanY] + apart_y * part,
       both[kVarianceX] + apart_x.square() * weight, both[kVarianceY] + apart_y.square() * weight,
       both[kCovariance] + apart_x * apart_y * weight, both[kAbsoluteError], both[kSquaredError]});
}

at::Tensor Regression::compute() const {
  const detail::OrdinaryTensors guard;
  const at::Tensor own = kind_ == Kind::kSpearman ? rows() : sums();
  if (!own.defined()) return nothing();
  const at::Tensor all = own.is_xla() ? own.cpu() : own;
  at::Tensor value;
  switch (kind_) {
    case Kind::kMae:
      value = all[kAbsoluteError] / all[kCount];
      break;
    case Kind::kMse:
      value = all[kSquaredError] / all[kCount];
      if (!options_.squared) value = value.sqrt();
      break;
    case Kind::kPearson:
      value = pearson(all);
      break;
    case Kind::kSpearman:
      value = spearman(all);
      break;
    case Kind::kR2:
      value = r2(all, options_);
      break;
  }
  return is_scalar() ? value.reshape({}) : value;
}

}  // namespace levin::metrics
