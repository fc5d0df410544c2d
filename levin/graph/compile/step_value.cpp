#include <ATen/Dispatch_v2.h>
#include <ATen/EmptyTensor.h>

#include <utility>

#include "levin/graph/compile/host_part.h"
#include "levin/graph/replay/replay.h"

namespace levin {

struct StepValue::Impl {
  std::function<double()> value;
  at::Tensor tensor;

  /// Writes the number without an operator, since a recording would keep an operator's number. If
  /// the number is the same as before, the tensor's version stays, so that autograd does not take
  /// it for changed.
  void refresh() const {
    const double number = value();
    AT_DISPATCH_V2(tensor.scalar_type(), "step_value", AT_WRAP([&] {
                     const auto now = static_cast<scalar_t>(number);
                     auto& place = *tensor.mutable_data_ptr<scalar_t>();
                     if (std::exchange(place, now) == now) return;
                     tensor.unsafeGetTensorImpl()->bump_version();
                   }),
                   AT_EXPAND(AT_FLOATING_TYPES), at::kHalf, at::kBFloat16);
  }
};

StepValue::StepValue(std::function<double()> value, at::ScalarType dtype)
    : impl_(std::make_shared<Impl>(
          Impl{std::move(value), at::Tensor(at::detail::empty_cpu({}, dtype))})) {}

const at::Tensor& StepValue::operator()() const {
  graph::HostPart* recording = graph::HostPart::current();
  if (recording == nullptr) {
    impl_->refresh();
    return impl_->tensor;
  }
  const graph::HostPart::Pause pause(*recording);
  impl_->refresh();
  recording->before([impl = impl_] { impl->refresh(); });
  return impl_->tensor;
}

}  // namespace levin
