#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "levin/graph/compile/result_memory_impl.h"

namespace levin::graph {
namespace {

bool is_plain(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.has_storage() &&
         tensor.numel() != 0;
}

/// The result as a part of another tensor.
ResultMemory part_of(const at::Tensor& whole, const at::Tensor& result) {
  ResultMemory memory;
  memory.sizes = result.sizes();
  memory.strides = result.strides();
  memory.offset = result.storage_offset() - whole.storage_offset();
  memory.is_whole =
      memory.offset == 0 && whole.sizes() == result.sizes() && whole.strides() == result.strides();
  return memory;
}

bool is_same_type(const at::Tensor& left, const at::Tensor& right) {
  return left.dtype() == right.dtype() && left.is_conj() == right.is_conj() &&
         left.is_neg() == right.is_neg();
}

}  // namespace

std::vector<ResultMemory> memory_of(const std::vector<at::Tensor>& results,
                                    const std::vector<at::Tensor>& inputs, const Graph& graph,
                                    std::string& reason) {
  std::vector<ResultMemory> all(results.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const at::Tensor& result = results[i];
    if (!is_plain(result)) continue;
    const auto take = [&](ResultMemory::Of of, const at::Tensor& whole, size_t number) {
      if (all[i].of != ResultMemory::Of::kOwn || !is_plain(whole)) return;
      if (!whole.is_alias_of(result)) return;
      all[i] = part_of(whole, result);
      all[i].of = of;
      all[i].number = number;
      const bool is_within = of != ResultMemory::Of::kResult || all[i].is_whole;
      if (!is_same_type(whole, result) || !is_within) {
        reason = fmt::format(
            "result {} shares memory with {}, which a replay cannot reproduce; return a clone", i,
            of == ResultMemory::Of::kResult ? "another result" : "one of its arguments");
      }
    };
    for (size_t j = 0; j < inputs.size(); ++j) take(ResultMemory::Of::kInput, inputs[j], j);
    for (const Node& node : graph.nodes()) {
      if (node.opcode() != Opcode::kGetAttr) continue;
      take(ResultMemory::Of::kState, node.tensor(), 0);
      if (all[i].of == ResultMemory::Of::kState && !all[i].state.defined()) {
        all[i].state = node.tensor();
      }
    }
    for (size_t j = 0; j < i; ++j) take(ResultMemory::Of::kResult, results[j], j);
  }
  return all;
}

void place_results(const std::vector<ResultMemory>& memory, const std::vector<at::Tensor>& inputs,
                   std::vector<at::Tensor>& results) {
  for (size_t i = 0; i < memory.size(); ++i) {
    const ResultMemory& place = memory[i];
    if (place.of == ResultMemory::Of::kOwn) continue;
    const at::Tensor& whole = place.of == ResultMemory::Of::kInput   ? inputs[place.number]
                              : place.of == ResultMemory::Of::kState ? place.state
                                                                     : results[place.number];
    if (place.is_whole) {
      results[i] = at::Tensor(whole);
    } else {
      results[i] = whole.detach().as_strided(place.sizes, place.strides,
                                             whole.storage_offset() + place.offset);
    }
  }
}

}  // namespace levin::graph
