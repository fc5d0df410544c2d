#pragma once
// Collective: a node that exchanges tensors with other ranks, as the passes see it.
//
//   for (Node& node : graph.nodes()) {
//     if (const auto collective = Collective::of(node)) bytes += collective->bytes();
//   }

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "levin/graph/graph.h"

namespace levin::graph {

enum class CollectiveKind {
  kAllReduce,
  kBroadcast,
  kBarrier,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSend,
  kRecv
};

struct Collective {
  Node* node = nullptr;
  CollectiveKind kind = CollectiveKind::kAllReduce;
  bool is_start = false;

  /// Nothing for a wait, and for what is no operator of levin/comm/operators.h.
  static std::optional<Collective> of(Node& node);
  static std::optional<Collective> of(const Node& node);

  /// Name of the operator, without "levin::" and its end: "all_gather".
  std::string name() const;
  /// The argument that is the group.
  const Argument& group() const;
  std::string group_name() const;
  /// Tensors that it writes, and tensors that it only sends.
  Values written() const;
  Values sent() const;
  /// Elements of each rank's part, of a gather or a reduce-scatter.
  std::vector<int64_t> counts() const;
  /// "sum", ... of a reduction; empty for others.
  std::string reduction() const;
  /// Bytes of all parts together: the same on all ranks, except for all_to_all.
  int64_t bytes() const;
};

struct StartAndWait {
  Node* start = nullptr;
  Node* wait = nullptr;  ///< nullptr if there is none
};
/// The started collectives, in the order of the graph. Sends of one tensor are matched in their
/// order.
std::vector<StartAndWait> started_in(const Graph& graph);

/// Makes a start and a wait, where new nodes go, of a collective that ends with its result. All users
/// of its values get those of the wait.
StartAndWait split(Graph& graph, const Collective& collective);

/// Makes one node of each start and its wait, where the wait is for a gather, which is read there,
/// and else where the start is. Passes that join and repeat collectives begin with it, and
/// overlap_collectives splits them again.
void join_starts(Graph& graph);

/// Moves inputs and state to the front of the graph, so that each node may be moved before others.
void move_state_to_front(Graph& graph);

/// Gives started collectives numbers that tell those apart that are under way at one time.
void number_starts(Graph& graph);

int64_t tensor_bytes(const ValueType& type);

}  // namespace levin::graph
