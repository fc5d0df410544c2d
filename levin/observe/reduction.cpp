#include "levin/observe/reduction.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace levin::detail {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
/// Values of one reduction read at a time: the program that stacks them is compiled for that many.
constexpr size_t kReadTogether = 64;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Whatever else a tensor carries (negative bit, functorch, Python) makes its memory not its value.
constexpr c10::DispatchKeySet kPlainHost({c10::DispatchKey::CPU, c10::DispatchKey::AutogradCPU,
                                          c10::DispatchKey::ADInplaceOrView,
                                          c10::DispatchKey::AutocastCPU});

double identity(Reduction::Kind kind) {
  if (kind == Reduction::Kind::kMin) return kInfinity;
  return kind == Reduction::Kind::kMax ? -kInfinity : 0.0;
}

at::Tensor as_scalar(const at::Tensor& value) {
  return value.dim() == 0 ? value : value.reshape({});
}

}  // namespace

namespace {

/// A step that is recorded without memory has tensors without values (graph/fake), of which item()
/// gives a number.
bool has_no_values(const at::Tensor& scalar) {
  if (!scalar.is_cpu() || !scalar.has_storage()) return false;
  return scalar.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get() == nullptr;
}

}  // namespace

std::optional<double> host_value(const at::Tensor& scalar) {
  if ((scalar.key_set() | kPlainHost) != kPlainHost) return std::nullopt;
  if (has_no_values(scalar)) return std::nullopt;
  const void* data = scalar.const_data_ptr();
  switch (scalar.scalar_type()) {
    case at::kFloat:
      return *static_cast<const float*>(data);
    case at::kDouble:
      return *static_cast<const double*>(data);
    case at::kLong:
      return static_cast<double>(*static_cast<const int64_t*>(data));
    case at::kBFloat16:
      return static_cast<float>(*static_cast<const at::BFloat16*>(data));
    case at::kHalf:
      return static_cast<float>(*static_cast<const at::Half*>(data));
    case at::kInt:
      return *static_cast<const int32_t*>(data);
    case at::kBool:
      return *static_cast<const bool*>(data) ? 1.0 : 0.0;
    default:
      return std::nullopt;
  }
}

std::vector<double> read_scalars(const std::vector<at::Tensor>& scalars) {
  const OrdinaryTensors guard;
  std::vector<double> values;
  for (size_t first = 0, end = 0; first < scalars.size(); first = end) {
    // On XLA an operator would be a program to compile.
    if (scalars[first].is_xla() || has_no_values(scalars[first])) {
      values.push_back(scalars[end++].cpu().item().toDouble());
      continue;
    }
    std::vector<at::Tensor> together;
    while (end < scalars.size() && scalars[end].device() == scalars[first].device()) {
      together.push_back(as_scalar(scalars[end++]).to(at::kDouble));
    }
    const at::Tensor read = at::stack(together).to(at::kCPU);
    const double* data = read.const_data_ptr<double>();
    values.insert(values.end(), data, data + together.size());
  }
  return values;
}

Reduction::Reduction(Kind kind) : kind_(kind), host_(identity(kind)) {}

void Reduction::add(double value, double weight) {
  if (weight == 0) return;
  weight_ += weight;
  combine(kind_ == Kind::kMean ? value * weight : value);
}

void Reduction::add(const at::Tensor& value, double weight) { add(value, weight, weight); }

void Reduction::add(const at::Tensor& value, double factor, double weight) {
  if (weight == 0) return;
  weight_ += weight;
  const double times = kind_ == Kind::kMean ? factor : 1.0;
  if (const auto host = host_value(value)) return combine(*host * times);
  const OrdinaryTensors guard;
  if (value.is_xla()) {
    unread_.push_back({value.detach(), times});
    ++unread_ever_;
    // The newest may still be computed.
    if (unread_.size() >= 2 * kReadTogether) read(kReadTogether);
    return;
  }
  if (device_.defined()) device_ = device_.to(value.device());
  combine(value, times);
}

void Reduction::read(size_t count) const {
  if (count == 0) return;
  const OrdinaryTensors guard;
  std::vector<at::Tensor> values;
  for (size_t i = 0; i < count; ++i) values.push_back(as_scalar(unread_[i].value));
  std::vector<double> read;
  if (count == kReadTogether) {
    const at::Tensor together = at::stack(values).cpu().to(at::kDouble);
    const double* data = together.const_data_ptr<double>();
    read.assign(data, data + count);
  } else {
    read = read_scalars(values);
  }
  for (size_t i = 0; i < count; ++i) combine(read[i] * unread_[i].factor);
  unread_.erase(unread_.begin(), unread_.begin() + static_cast<std::ptrdiff_t>(count));
}

void Reduction::combine(double value) const {
  // Not std::min: a NaN must stay, as in torch.minimum.
  if (kind_ == Kind::kMin) {
    if (value < host_ || std::isnan(value)) host_ = value;
  } else if (kind_ == Kind::kMax) {
    if (value > host_ || std::isnan(value)) host_ = value;
  } else {
    host_ += value;
  }
}

void Reduction::combine(const at::Tensor& value, double factor) {
  if (!device_.defined()) {
    device_ = at::full({}, identity(kind_), at::TensorOptions(at::kDouble).device(value.device()));
  }
  at::Tensor into = device_.use_count() > 1 ? memory_beside() : device_;
  const at::Tensor scalar = as_scalar(value).to(device_.device());
  if (kind_ == Kind::kMin) {
    at::minimum_out(into, device_, scalar);
  } else if (kind_ == Kind::kMax) {
    at::maximum_out(into, device_, scalar);
  } else {
    at::add_out(into, device_, scalar, factor);
  }
  device_ = std::move(into);
}

// Returns memory for a new value: a mark, a state or a copy of this may hold device_ too.
at::Tensor Reduction::memory_beside() {
  const bool is_free =
      spare_.defined() && spare_.use_count() == 1 && spare_.device() == device_.device();
  return is_free ? std::exchange(spare_, at::Tensor()) : at::empty_like(device_);
}

void Reduction::mark() {
  if (!marked_) marked_ = Mark();
  if (!marked_->device.is_same(device_)) {
    spare_ = std::exchange(marked_->device, device_);
  }
  marked_->weight = weight_;
  marked_->host = host_;
  marked_->unread = unread_ever_;
}

void Reduction::rewind() {
  if (!marked_) return reset();
  weight_ = marked_->weight;
  device_ = marked_->device;
  // On XLA the host's part holds what was read meanwhile, which is older than any mark.
  if (unread_ever_ == 0) host_ = marked_->host;
  const int64_t since = std::min(unread_ever_ - marked_->unread, std::ssize(unread_));
  unread_.erase(unread_.end() - since, unread_.end());
  unread_ever_ = marked_->unread;
}

double Reduction::finish(double total) const {
  if (empty()) return kind_ == Kind::kSum ? 0.0 : kNan;
  return kind_ == Kind::kMean ? total / weight_ : total;
}

std::optional<double> Reduction::host() const {
  read(unread_.size());
  if (device_.defined()) return std::nullopt;
  return finish(host_);
}

at::Tensor Reduction::value() const {
  read(unread_.size());
  const OrdinaryTensors guard;
  if (empty() || !device_.defined()) return at::scalar_tensor(finish(host_), at::kDouble);
  // A 0-dim CPU operand beside a CUDA tensor is passed to the kernel by value.
  const at::Tensor host = at::scalar_tensor(host_, at::kDouble);
  if (kind_ == Kind::kMin) return at::minimum(device_, host);
  if (kind_ == Kind::kMax) return at::maximum(device_, host);
  const at::Tensor total = device_ + host;
  return kind_ == Kind::kMean ? total / weight_ : total;
}

void Reduction::reset() {
  weight_ = 0;
  host_ = identity(kind_);
  unread_.clear();
  device_.reset();
  marked_.reset();
}

void Reduction::merge(const State& other) {
  weight_ += other.number("weight");
  combine(other.number("host"));
  if (!other.contains("device")) return;
  const OrdinaryTensors guard;
  combine(other.tensor("device"), 1.0);
}

State Reduction::state_dict() const {
  read(unread_.size());
  State state;
  state.set("weight", weight_).set("host", host_);
  if (device_.defined()) state.set("device", device_);
  return state;
}

}  // namespace levin::detail
