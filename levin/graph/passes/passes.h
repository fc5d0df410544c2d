#pragma once
// Passes: what a graph may leave out without giving anything else. Each changes the graph in place
// and says how many operators went.
//
//   fold_constants(graph);
//   eliminate_common_subexpressions(graph);
//   graph.eliminate_dead_code();

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/graph.h"

namespace levin::graph {

/// Of operators that compute the same from the same, the first stays. Draws of random numbers and
/// operators that write, or that the host reads, are never the same.
LEVIN_API size_t eliminate_common_subexpressions(Graph& graph);

/// Operators without values among their arguments (full, arange) are run once; what they give
/// becomes state of the name _constant0 and so on.
LEVIN_API size_t fold_constants(Graph& graph);

/// What its outputs do not depend on goes, whatever it would do: updates, draws, reads of the host.
LEVIN_API size_t keep_what_outputs_need(Graph& graph);

// replace_pattern: every occurrence of one small graph in a large one becomes another.
//
//   const auto pattern = levin::trace([](const at::Tensor& x) { return x * torch::sigmoid(x); },
//   {x}); const auto silu = levin::trace([](const at::Tensor& x) { return torch::silu(x); }, {x});
//   replace_pattern(module.graph(), pattern.graph(), silu.graph());

/// The pattern's inputs stand for any values, the same one each time; its operators must have the
/// same constants, and nobody else may use the values between them. Occurrences do not overlap: the
/// first one counts. The replacement takes inputs and gives outputs as the pattern does; of what it
/// gives, the types are not known until propagate_types, but for the outputs. Returns how many were
/// replaced.
///
/// Throws Error "graph.pattern" for a pattern without operators, with state, updates or random
/// numbers, and where the two differ in inputs or outputs.
LEVIN_API size_t replace_pattern(Graph& graph, const Graph& pattern, const Graph& replacement);

// fuse: chains of operators for which ATen has one operator become that one. Memory is read and
// written once instead of twice, which is what such chains take their time with.
//
//   fuse(graph);                     // results stay what they are, bit for bit
//   fuse(graph, {.exact = false});   // those too that round once where the chain rounds twice

struct FuseOptions {
  bool exact = true;  ///< only what gives the same bits (a NaN may change its sign)
};

/// Fuses where nobody else reads what is between the operators, and all tensors are of one floating
/// type, size and layout. Run it before rematerialize: operands live on until the last operator.
/// Returns how many chains went. Speed is that of the chain by that of the one, float32, 4 M
/// elements, one core; products of [256, 64] by [64, 128].
///
///   chain                      operator            bits                        speed
///   x + a / b                  addcdiv             equal in float32, float64   1.7
///   x + -a, x - -a             sub, add            equal                       2.1
///   min(max(x, low), high)     clamp               equal                       1.9
///   x + a * b                  addcmul             rounds once less            1.5
///   x + a * s, x - a * s       add, sub by alpha   rounds once less            2.0
///   x + (a - x) * s            lerp                other order                 2.9
///   1 / sqrt(x)                rsqrt               rounds once less            2.8
///   x * sigmoid(x)             silu                rounds once less            1.6
///   a mm b + c                 addmm               sums in another order       1.1
LEVIN_API size_t fuse(Graph& graph, const FuseOptions& options = {});

// rematerialize: activation checkpointing by a budget of memory. Of what a recorded step keeps for
// its backward pass, some is thrown away and computed anew when it is needed.
//
//   const Rematerialization done = rematerialize(graph, 8'000'000'000);
//   fmt::print("{} operators run twice, {} FLOPs\n", done.num_operators, done.flops);

struct Rematerialization {
  int64_t peak_bytes_before = 0;
  int64_t peak_bytes = 0;     ///< as memory_of has it, at most the budget
  int64_t num_operators = 0;  ///< that the graph has more than before, without views
  double flops = 0.0;         ///< of those; a multiplication and an addition are two
};

/// Brings memory_of(graph).peak_bytes under the budget with little arithmetic: again and again, of
/// what is alive at the peak but not read for a while, goes what costs the fewest FLOPs to have
/// back for each byte (Kirisame et al., "Dynamic Tensor Rematerialization", 2021, with the peak
/// known ahead); what has it computed anew from what is gone as well is a segment of Chen et al.,
/// "Training Deep Nets with Sublinear Memory Cost" (2016). In the end, what the budget has room for
/// stays after all. All results are what they were, bit for bit: draws of random numbers, operators
/// that write and what the host reads run once; a batch norm that runs again leaves its statistics
/// alone. eliminate_common_subexpressions would undo it: run that before.
///
/// Throws Error "graph.budget" with the least peak that it found where the budget is below that,
/// and leaves the graph as it was; "graph.cost" for a graph whose types are not known.
LEVIN_API Rematerialization rematerialize(Graph& graph, int64_t budget_bytes);

// Data parallel by transformation: a step recorded on one process becomes one rank's of many. Its
// gradients are averaged over the ranks before anything reads them.
//
//   insert_gradient_all_reduces(graph, comm::operator_name(world));
//   bucket_all_reduces(graph, 25 << 20);
//   overlap_all_reduces(graph);
//   Replay step(graph);

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

// What a graph costs: arithmetic, memory traffic and time of each operator on a device, and the
// memory that is alive while it runs. Nothing is run for it.
//
//   const GraphCost cost = cost_of(graph, *find_device("h100"));
//   const MemoryProfile memory = memory_of(graph);

struct NodeCost {
  const Node* node = nullptr;
  double flops = 0.0;    ///< a multiplication and an addition are two
  double bytes = 0.0;    ///< read and written, each tensor once
  double seconds = 0.0;  ///< the longer of both on the device, and its time to start an operator
};

/// The rates that a device reaches at best, from its maker's data sheet; of the CPU, a core's.
struct DeviceDescription {
  std::string name;
  double flops_per_s = 0.0;       ///< float32, by matrix units where there are any
  double half_flops_per_s = 0.0;  ///< bfloat16 and float16
  double bytes_per_s = 0.0;       ///< of its memory
  double memory_bytes = 0.0;
  double operator_s = 0.0;  ///< to start an operator from eager code
};

LEVIN_API const std::vector<DeviceDescription>& known_devices();
LEVIN_API std::optional<DeviceDescription> find_device(std::string_view name);

struct GraphCost {
  std::vector<NodeCost> nodes;  ///< of the operators, in their order
  double flops = 0.0;
  double bytes = 0.0;
  double seconds = 0.0;
};

/// Throws Error "graph.cost" for a graph whose types are not known.
LEVIN_API GraphCost cost_of(const Graph& graph, const DeviceDescription& device);

enum class MemoryUse { kInput, kParameter, kState, kGradient, kValue };

struct LiveValue {
  const Value* value = nullptr;
  MemoryUse use = MemoryUse::kValue;
  int64_t bytes = 0;
};

/// Bytes alive after each node has run, before what it was the last to read goes away. State is
/// there from the first node to the last, and so are inputs that anyone reads. Views lie in what
/// they are views of.
struct MemoryProfile {
  std::vector<int64_t> bytes;  ///< by node, in their order
  int64_t peak_bytes = 0;
  size_t peak_node = 0;
  std::vector<LiveValue> alive_at_peak;  ///< the largest first
};

/// Of what lives across calls, and of the inputs that are read: what memory_of has all the time.
LEVIN_API int64_t state_bytes(const Graph& graph);
/// Throws Error "graph.cost" for a graph whose types are not known.
LEVIN_API MemoryProfile memory_of(const Graph& graph);

}  // namespace levin::graph
