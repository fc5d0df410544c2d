#include "levin/strategy/ddp/agreement.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "levin/base/check.h"
#include "levin/files/memory_map.h"
#include "levin/module/base.h"

namespace levin::ddp {
namespace {

constexpr int64_t kBytesAtATime = 64 << 20;

std::string description(const NamedTensor& tensor) {
  return fmt::format("{} {} {}", tensor.name, c10::toString(tensor.tensor.scalar_type()),
                     c10::str(tensor.tensor.sizes()));
}

std::vector<std::string> digests_of(const State& bases) {
  std::vector<std::string> digests;
  for (const auto& [number, value] : bases.values())
    digests.push_back(bases.child(number).text("digest"));
  return digests;
}

/// Returns whether all ranks have opened the same files.
bool share_base(comm::ProcessGroup& group, const torch::nn::Module& module) {
  const State own = base_state(module);
  if (!group.any(!own.empty())) return false;
  const std::vector<State> ranks = group.all_gather(own);
  return std::ranges::all_of(
      ranks, [&](const State& rank) { return digests_of(rank) == digests_of(ranks.front()); });
}

State descriptions(const std::vector<NamedTensor>& tensors) {
  State state;
  for (size_t i = 0; i < tensors.size(); ++i) {
    state.set(fmt::format("{:06}", i), description(tensors[i]));
  }
  return state;
}

void broadcast_flat(comm::ProcessGroup& group, const std::vector<at::Tensor>& tensors) {
  int64_t count = 0;
  for (const at::Tensor& tensor : tensors) count += tensor.numel();
  const at::Tensor flat = at::empty({count}, tensors.front().options());
  const auto each = [&](auto&& act) {
    int64_t offset = 0;
    for (const at::Tensor& tensor : tensors) {
      act(flat.narrow(0, offset, tensor.numel()).view(tensor.sizes()), tensor);
      offset += tensor.numel();
    }
  };
  if (group.rank() == 0) each([](at::Tensor part, at::Tensor tensor) { part.copy_(tensor); });
  group.broadcast(flat, 0);
  if (group.rank() != 0) each([](at::Tensor part, at::Tensor tensor) { tensor.copy_(part); });
}

}  // namespace

std::vector<NamedTensor> tensors_of(const torch::nn::Module& module) {
  std::vector<NamedTensor> tensors = named_parameters(module);
  for (const auto& buffer : module.named_buffers()) {
    if (buffer.value().defined()) tensors.push_back({buffer.key(), buffer.value()});
  }
  return tensors;
}

std::vector<NamedTensor> parameters_apart_from(const std::vector<NamedTensor>& taken,
                                               const torch::nn::Module& module) {
  std::unordered_set<const c10::TensorImpl*> others;
  for (const NamedTensor& parameter : taken) others.insert(parameter.tensor.unsafeGetTensorImpl());
  std::vector<NamedTensor> parameters = named_parameters(module);
  std::erase_if(parameters, [&](const NamedTensor& parameter) {
    return others.contains(parameter.tensor.unsafeGetTensorImpl());
  });
  return parameters;
}

void check_same_tensors(comm::ProcessGroup& group, const std::vector<NamedTensor>& tensors) {
  const std::vector<State> ranks = group.all_gather(descriptions(tensors));
  const auto& wanted = ranks.front().values();
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const auto& got = ranks[rank].values();
    for (const auto& [number, value] : got.size() < wanted.size() ? wanted : got) {
      const bool here = got.contains(number);
      const bool there = wanted.contains(number);
      const std::string mine = here ? ranks[rank].text(number) : "nothing";
      const std::string first = there ? ranks.front().text(number) : "nothing";
      LEVIN_CHECK(mine == first, "strategy.parameters",
                  "rank {} has {}, but rank 0 has {}; build the same module on every rank", rank,
                  mine, first);
    }
  }
}

std::unordered_set<const c10::TensorImpl*> same_base(comm::ProcessGroup& group,
                                                     const torch::nn::Module& module,
                                                     bool in_place) {
  if (!share_base(group, module)) return {};
  std::unordered_set<const c10::TensorImpl*> same = base_tensors(module);
  const std::vector<NamedTensor> parameters = named_parameters(module);
  const at::Tensor are_same = at::zeros({std::ssize(parameters)}, at::kByte);
  auto* flags = are_same.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& parameter = parameters[i].tensor;
    const bool lies_well = !in_place || (parameter.is_cpu() && parameter.is_contiguous() &&
                                         files::is_mapped(parameter.const_data_ptr()));
    flags[i] = same.contains(parameter.unsafeGetTensorImpl()) && lies_well ? 1 : 0;
  }
  group.all_reduce(are_same, ReduceOp::kMin);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (flags[i] == 0) same.erase(parameters[i].tensor.unsafeGetTensorImpl());
  }
  return same;
}

void broadcast_from_first(comm::ProcessGroup& group, std::span<const at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  std::map<at::ScalarType, std::vector<at::Tensor>> open;
  std::map<at::ScalarType, int64_t> bytes;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    const at::ScalarType type = tensor.scalar_type();
    open[type].push_back(tensor.detach());
    bytes[type] += static_cast<int64_t>(tensor.nbytes());
    if (bytes[type] < kBytesAtATime) continue;
    broadcast_flat(group, open[type]);
    open[type].clear();
    bytes[type] = 0;
  }
  for (const auto& [type, rest] : open) {
    if (!rest.empty()) broadcast_flat(group, rest);
  }
}

void place_as_first(comm::ProcessGroup& group, torch::nn::Module& module, at::Device device,
                    InitValues values) {
  if (is_on_meta(module)) materialize(module, {.device = device, .values = values});
  module.to(device);
  const std::vector<NamedTensor> tensors = tensors_of(module);
  check_same_tensors(group, tensors);
  // Written to, they would be a copy of each rank's own.
  const auto same = same_base(group, module, /*in_place=*/false);
  std::vector<at::Tensor> all;
  for (const NamedTensor& tensor : tensors) {
    if (!same.contains(tensor.tensor.unsafeGetTensorImpl())) all.push_back(tensor.tensor);
  }
  broadcast_from_first(group, all);
}

}  // namespace levin::ddp
