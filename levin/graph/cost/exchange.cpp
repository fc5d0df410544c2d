#include <ATen/core/ivalue.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "levin/base/error.h"
#include "levin/comm/collectives/named_group.h"
#include "levin/graph/cost/exchange_impl.h"
#include "levin/graph/operator_info.h"
#include "levin/graph/passes/collective_impl.h"
#include "levin/graph/passes/passes.h"
#include "levin/graph/values.h"

namespace levin::graph {
namespace {

struct GroupSize {
  std::string backend = "gloo";
  int64_t ranks = 2;
};

GroupSize size_of_group(const Collective& collective) {
  GroupSize size;
  const auto counts = collective.counts();
  if (!counts.empty()) size.ranks = std::ssize(counts);
  const auto named = comm::NamedGroup::in(*constant_of(collective.group()));
  if (named == nullptr) return size;
  try {
    const comm::ProcessGroup group = named->group();
    return {group.backend(), group.size()};
  } catch (const Error&) {  // a graph from a file, whose group is not connected here
    return size;
  }
}

const LinkDescription& link_of(const std::string& backend) {
  const auto& links = known_links();
  const auto known = std::ranges::find(links, backend, &LinkDescription::backend);
  if (known != links.end()) return *known;
  return *std::ranges::find(links, "gloo", &LinkDescription::backend);
}

}  // namespace

const std::vector<LinkDescription>& known_links() {
  constexpr double kMicro = 1e-6, kGiga = 1e9;
  static const std::vector<LinkDescription> kLinks = {{"shm", 3 * kMicro, 2.3 * kGiga},
                                                      {"gloo", 300 * kMicro, 0.7 * kGiga},
                                                      {"mpi", 5 * kMicro, 2.2 * kGiga},
                                                      {"hierarchical", 300 * kMicro, 0.7 * kGiga},
                                                      {"hierarchical-mpi", 5 * kMicro, 2.2 * kGiga},
                                                      {"nccl", 20 * kMicro, 200 * kGiga}};
  return kLinks;
}

std::optional<ExchangeCost> exchange_cost(const Node& node) {
  if (node.opcode() != Opcode::kCallFunction) return std::nullopt;
  if (info_of(node).is_wait) return ExchangeCost{};
  const auto collective = Collective::of(node);
  if (!collective) return std::nullopt;
  const auto [backend, size] = size_of_group(*collective);
  if (size <= 1) return ExchangeCost{};
  const LinkDescription& link = link_of(backend);
  const auto ranks = static_cast<double>(size);
  const auto bytes = static_cast<double>(collective->bytes());
  double messages = ranks - 1, sent = bytes * (ranks - 1) / ranks, elements = 0.0;
  switch (collective->kind) {
    case CollectiveKind::kAllReduce:
      messages *= 2;
      sent *= 2;
      break;
    case CollectiveKind::kBroadcast:
      messages = std::ceil(std::log2(ranks));
      sent = bytes;
      break;
    case CollectiveKind::kBarrier:
      messages = std::ceil(std::log2(ranks));
      break;
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      messages = 1;
      sent = bytes;
      break;
    default:
      break;
  }
  const bool reduces = !collective->reduction().empty();
  if (reduces) {
    const Values tensors =
        collective->kind == CollectiveKind::kAllReduce ? collective->written() : collective->sent();
    const auto width = static_cast<double>(
        c10::elementSize(tensors.empty() ? at::kFloat : tensors.front()->type().dtype));
    elements = bytes / width * (ranks - 1) / ranks;
  }
  return ExchangeCost{elements, sent, messages * link.alpha_s + sent / link.bytes_per_s};
}

}  // namespace levin::graph
