#include "levin/strategy/ddp/buffers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include "levin/strategy/ddp/agreement.h"

namespace levin::ddp {

Buffers::Buffers(const torch::nn::Module& module) {
  for (const auto& buffer : module.buffers()) {
    if (buffer.defined()) buffers_.push_back(buffer);
  }
  note_values();
}

void Buffers::synchronize(comm::ProcessGroup& group) {
  if (buffers_.empty()) return;
  const at::Tensor written = at::zeros({std::ssize(buffers_)}, at::kByte);
  auto* flags = written.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < buffers_.size(); ++i) flags[i] = is_written(i) ? 1 : 0;
  group.all_reduce(written, ReduceOp::kMax);
  std::vector<at::Tensor> changed;
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (flags[i] != 0) changed.push_back(buffers_[i]);
  }
  broadcast_from_first(group, changed);
  if (!changed.empty()) note_values();
}

// To compare on a GPU would be to wait for it.
bool Buffers::is_written(size_t i) const {
  return !buffers_[i].is_cpu() || !at::equal(buffers_[i], values_[i]);
}

void Buffers::note_values() {
  const at::NoGradGuard no_grad;
  values_.resize(buffers_.size());
  for (size_t i = 0; i < buffers_.size(); ++i) {
    if (!buffers_[i].is_cpu()) continue;
    if (values_[i].defined()) {
      values_[i].copy_(buffers_[i]);
    } else {
      values_[i] = buffers_[i].detach().clone();
    }
  }
}

}  // namespace levin::ddp
