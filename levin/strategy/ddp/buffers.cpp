#include "levin/strategy/ddp/buffers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <unordered_set>

#include "levin/comm/operators.h"
#include "levin/strategy/ddp/agreement.h"

namespace levin::ddp {
namespace {

int64_t version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : static_cast<int64_t>(tensor._version());
}

}  // namespace

Buffers::Buffers(const std::vector<const torch::nn::Module*>& modules) {
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const torch::nn::Module* module : modules) {
    for (const at::Tensor& buffer : module->buffers()) {
      if (!buffer.defined() || !seen.insert(buffer.unsafeGetTensorImpl()).second) continue;
      entries_.push_back({.buffer = buffer, .version = version_of(buffer), .value = {}});
    }
  }
}

void Buffers::synchronize(comm::ProcessGroup& group) {
  if (entries_.empty()) return;
  const at::Tensor written = at::zeros({std::ssize(entries_)}, at::kByte);
  auto* flags = written.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < entries_.size(); ++i) flags[i] = is_written(entries_[i]) ? 1 : 0;
  group.all_reduce(written, ReduceOp::kMax);
  std::vector<at::Tensor> changed;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (flags[i] != 0) changed.push_back(target(entries_[i]));
  }
  broadcast_from_first(group, changed);
  if (!changed.empty()) note();
}

void Buffers::broadcast(const comm::ProcessGroup& group) {
  if (entries_.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> targets;
  for (const Entry& entry : entries_) targets.push_back(target(entry));
  comm::call_broadcast(targets, group, /*root=*/0);
  for (Entry& entry : entries_) entry.version = version_of(entry.buffer);
}

// To compare on a GPU would be to wait for it.
bool Buffers::is_written(const Entry& entry) {
  const bool can_tell = entry.value.defined() && entry.buffer.is_cpu() &&
                        entry.buffer.scalar_type() == entry.value.scalar_type();
  return !can_tell || !at::equal(entry.buffer, entry.value);
}

at::Tensor Buffers::target(const Entry& entry) {
  const bool counts_writes = version_of(entry.buffer) != entry.version;
  return counts_writes ? entry.buffer : entry.buffer.variable_data();
}

void Buffers::note() {
  const at::NoGradGuard no_grad;
  for (Entry& entry : entries_) {
    entry.version = version_of(entry.buffer);
    if (!entry.buffer.is_cpu()) continue;
    if (entry.value.defined() && entry.value.sizes() == entry.buffer.sizes() &&
        entry.value.scalar_type() == entry.buffer.scalar_type()) {
      entry.value.copy_(entry.buffer);
    } else {
      entry.value = entry.buffer.detach().clone();
    }
  }
}

}  // namespace levin::ddp
