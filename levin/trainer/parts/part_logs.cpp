#include "levin/trainer/parts/part_logs.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

#include <algorithm>

namespace levin::detail {

PartLogs::PartLogs(LoggedValues& values) : values_(values) {
  values_.set_observer([this](std::string_view name, const at::Tensor& value,
                              const LogOptions& options) { return note(name, value, options); });
}

PartLogs::~PartLogs() { values_.set_observer({}); }

// log() itself refuses what is no number.
bool PartLogs::note(std::string_view name, const at::Tensor& value, const LogOptions& options) {
  if (!value.defined() || value.numel() != 1 || value.is_complex()) return false;
  const at::NoGradGuard no_grad;
  const int64_t samples = options.batch_size.value_or(samples_);
  at::Tensor own =
      value.detach().reshape({}).to(at::kDouble, /*non_blocking=*/false, /*copy=*/true);
  if (options.reduce == "mean") own *= static_cast<double>(samples);
  const auto found =
      std::ranges::find_if(entries_, [&](const Entry& entry) { return entry.name == name; });
  if (found == entries_.end()) {
    entries_.push_back({std::string(name), options, std::move(own), samples});
    return true;
  }
  found->samples += samples;
  if (options.reduce == "min") {
    found->value = at::minimum(found->value, own);
  } else if (options.reduce == "max") {
    found->value = at::maximum(found->value, own);
  } else {
    found->value += own;
  }
  return true;
}

void PartLogs::finish() {
  values_.set_observer({});
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    if (entry.options.reduce == "mean") entry.value /= static_cast<double>(entry.samples);
    entry.options.batch_size = entry.samples;
    values_.log_own(entry.name, entry.value, entry.options);
  }
  entries_.clear();
}

}  // namespace levin::detail
