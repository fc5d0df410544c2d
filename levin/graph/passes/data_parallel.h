#pragma once
// Data parallel by transformation: a step recorded on one process becomes one rank's of many. Its
// gradients are averaged over the ranks before anything reads them.
//
//   insert_gradient_all_reduces(graph, comm::operator_name(world));
//   bucket_all_reduces(graph, 25 << 20);
//   overlap_all_reduces(graph);
//   Replay step(graph);

#include <cstddef>
#include <cstdint>
#include <string>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

/// The gradients that backward leaves in the graph's parameters become their mean over the group's
/// ranks. What writes to them in place afterwards (clipping) and what reads them (the optimizer)
/// works with the mean; buffers and what the graph returns stay each rank's own. Gradients that are
/// not changed in place but replaced after backward are averaged as they are in the end. What
/// nobody reads is erased. A step may update some parameters and go on with them to the gradients
/// of others, as adversaries do in turn. Returns how many gradients there are.
///
/// Throws Error "graph.data_parallel" for a parameter that is updated and has no gradient in the
/// end (zero_grad belongs to the start of the step), and for a gradient that another is made from.
LEVIN_API size_t insert_gradient_all_reduces(Graph& graph, const std::string& group);

/// Joins all-reduces of one group, reduction, dtype and device, as they follow each other, into
/// calls of at most so many bytes, or of one tensor; each runs when the last of its tensors is
/// there, and none passes another collective. Returns how many calls there are afterwards. Buckets
/// as in Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training"
/// (2020).
LEVIN_API size_t bucket_all_reduces(Graph& graph, int64_t bytes);

/// Each all-reduce starts as soon as its tensors are there, in the order of the graph, which is the
/// same on all ranks, and is waited for right before its first reader. Returns how many there are.
LEVIN_API size_t overlap_all_reduces(Graph& graph);

}  // namespace levin::graph
