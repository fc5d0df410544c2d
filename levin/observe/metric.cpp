#include "levin/observe/metric.h"

#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sum.h>

#include <cmath>
#include <limits>

#include "levin/base/check.h"
#include "levin/observe/reduction.h"

namespace levin {

Metric::~Metric() = default;

bool Metric::is_scalar() const { return true; }

at::Tensor Metric::nothing() {
  return at::scalar_tensor(std::numeric_limits<double>::quiet_NaN(), at::kDouble);
}

namespace metrics {

using detail::Reduction;

static void check_weight(double weight) {
  LEVIN_CHECK(weight >= 0 && std::isfinite(weight), "observe.metric.weight",
              "got the weight {}, wanted a finite number that is not negative", weight);
}

namespace {

Reduction::Kind kind_of(Reduced::Kind kind) {
  switch (kind) {
    case Reduced::Kind::kMean:
      return Reduction::Kind::kMean;
    case Reduced::Kind::kSum:
      return Reduction::Kind::kSum;
    case Reduced::Kind::kMin:
      return Reduction::Kind::kMin;
    case Reduced::Kind::kMax:
      return Reduction::Kind::kMax;
  }
  TORCH_INTERNAL_ASSERT(false);
}

}  // namespace

Reduced::Reduced(Kind kind) : kind_(kind), reduction_(std::make_unique<Reduction>(kind_of(kind))) {}

Reduced::~Reduced() = default;

Reduced::Reduced(const Reduced& other)
    : Metric(other),
      kind_(other.kind_),
      reduction_(std::make_unique<Reduction>(*other.reduction_)) {}

Reduced& Reduced::operator=(const Reduced& other) {
  kind_ = other.kind_;
  *reduction_ = *other.reduction_;
  return *this;
}

void Reduced::take(double value, double weight) {
  check_weight(weight);
  reduction_->add(value, weight);
}

void Reduced::take(const at::Tensor& values, double weight) {
  check_weight(weight);
  LEVIN_CHECK(!values.is_complex(), "observe.metric.dtype",
              "got values of {}, wanted real ones; take abs() or real()",
              c10::toString(values.scalar_type()));
  const int64_t count = values.numel();
  if (count == 1) return reduction_->add(values, weight);
  if (count == 0) return;
  const detail::OrdinaryTensors guard;
  if (kind_ == Kind::kMin) return reduction_->add(values.min(), weight);
  if (kind_ == Kind::kMax) return reduction_->add(values.max(), weight);
  reduction_->add(values.sum(at::kDouble), weight, weight * static_cast<double>(count));
}

at::Tensor Reduced::compute() const { return reduction_->value(); }
void Reduced::reset() { reduction_->reset(); }
void Reduced::merge(const State& other) { reduction_->merge(other); }
State Reduced::state_dict() const { return reduction_->state_dict(); }

void Reduced::load_state_dict(const State& state) {
  reduction_->reset();
  reduction_->merge(state);
}

}  // namespace metrics
}  // namespace levin
