#pragma once
// Passes: optimizations of a recorded graph that keep its results. Each pass changes the graph in
// place; most return how many operators or patterns they removed.
//
//   fold_constants(graph);
//   eliminate_common_subexpressions(graph);
//   graph.eliminate_dead_code();

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/comm/process_group.h"
#include "levin/graph/graph.h"

namespace levin::graph {

/// Common subexpression elimination: if operators compute the same from the same arguments, only
/// the first of them stays. These always stay: draws of random numbers, operators that write, and
/// operators whose results are read by the host. Returns how many operators were erased.
LEVIN_API size_t eliminate_common_subexpressions(Graph& graph);

/// Constant folding: operators without values among their arguments (full, arange) are run now,
/// once, and removed from the graph. Their results become state tensors named _constant0 and so on.
/// Returns how many operators were erased.
LEVIN_API size_t fold_constants(Graph& graph);

/// Erases everything that the graph's outputs do not depend on, side effects included: updates,
/// draws of random numbers and reads by the host. Returns how many operators were erased.
LEVIN_API size_t keep_what_outputs_need(Graph& graph);

// replace_pattern: replaces every occurrence of a small graph by another one, like
// torch.fx.replace_pattern.
//
//   auto swish = levin::trace([](const at::Tensor& x) { return x * torch::sigmoid(x); }, {x});
//   auto silu = levin::trace([](const at::Tensor& x) { return torch::silu(x); }, {x});
//   replace_pattern(module.graph(), swish.graph(), silu.graph());

/// Replaces every occurrence of pattern in graph and returns how many were replaced. An input of
/// the pattern matches any value, the same value at each of its uses. The operators must have the
/// same constants, and no operator outside the occurrence may use its inner values. If occurrences
/// overlap, only the first is replaced. The replacement must have the inputs and outputs of the
/// pattern. The types of its inner values are not known until propagate_types.
///
/// Throws Error "graph.pattern" for a pattern that has no operators, or that has state, updates or
/// random numbers, and if pattern and replacement differ in inputs or outputs.
LEVIN_API size_t replace_pattern(Graph& graph, const Graph& pattern, const Graph& replacement);

// fuse: operator fusion. A chain of operators becomes the one ATen operator that does the same.
// Memory traffic takes most of the time of such a chain; fused, it reads and writes memory once
// instead of twice.
//
//   fuse(graph);                     // results stay the same, bit for bit
//   fuse(graph, {.exact = false});   // also fusions that round once instead of twice

/// Options of fuse.
struct FuseOptions {
  bool exact = true;  ///< fuse only if the bits stay the same (a NaN may change its sign)
};

/// Fuses the chains below and returns how many it replaced. A chain is fused if no other operator
/// reads the values between its operators, and if all its tensors have the same floating dtype,
/// size and layout. Run it before rematerialize, because a fused chain keeps all its
/// operands alive until its last operator. The speedup is the time of the chain divided by the time
/// of the fused operator, in float32 with 4 M elements on one core; products are [256, 64] by [64,
/// 128].
///
///   chain                      operator            bits                        speedup
///   x + a / b                  addcdiv             equal in float32, float64   1.7
///   x + -a, x - -a             sub, add            equal                       2.1
///   min(max(x, low), high)     clamp               equal                       1.9
///   x + a * b                  addcmul             one rounding fewer          1.5
///   x + a * s, x - a * s       add, sub by alpha   one rounding fewer          2.0
///   x + (a - x) * s            lerp                other order                 2.9
///   1 / sqrt(x)                rsqrt               one rounding fewer          2.8
///   x * sigmoid(x)             silu                one rounding fewer          1.6
///   a mm b + c                 addmm               sums in another order       1.1
LEVIN_API size_t fuse(Graph& graph, const FuseOptions& options = {});

// rematerialize: activation (gradient) checkpointing to a memory budget. Some of the activations
// that a recorded step keeps for its backward pass are freed and recomputed when they are needed.
//
//   const Rematerialization done = rematerialize(graph, 8'000'000'000);
//   fmt::print("{} operators run twice, {} FLOPs\n", done.num_operators, done.flops);

/// Options of rematerialize.
struct RematerializeOptions {
  /// The group over which the graph gathers parameters (levin::all_gather_). With a group, tensors
  /// that were gathered may be freed and gathered again: one budget then decides for each tensor
  /// whether to keep it, to gather it again or to compute it again. All ranks of the group must call
  /// rematerialize with the same step; rank 0 decides for all of them.
  std::optional<comm::ProcessGroup> group = std::nullopt;
};

/// Result of rematerialize.
struct Rematerialization {
  int64_t peak_bytes_before = 0;  ///< peak memory before, in bytes
  int64_t peak_bytes = 0;         ///< peak memory now, by memory_of; at most the budget
  int64_t num_operators = 0;      ///< operators added to the graph, without views
  double flops = 0.0;  ///< FLOPs of the added operators; a multiplication and an addition are two
  int64_t num_gathers = 0;     ///< all-gathers added to the graph; num_operators counts them too
  int64_t gathered_bytes = 0;  ///< bytes that these gather
};

/// Recomputes values so that memory_of(graph).peak_bytes is at most the budget, with few additional
/// FLOPs. It repeatedly looks at the values that are alive at the peak but not read for a while,
/// and frees the value that costs the fewest FLOPs per byte to recompute (Kirisame et al., "Dynamic
/// Tensor Rematerialization", 2021; here the peak is known in advance). A value that is recomputed
/// from other freed values makes up a segment with them, as in Chen et al., "Training Deep Nets
/// with Sublinear Memory Cost" (2016). In the end, freed values for which the budget has room are
/// kept after all.
///
/// With RematerializeOptions::group, gathered parameters are among these values (FSDP's
/// reshard_after_forward). Gathering costs the time of the collective by the cost model (cost_of),
/// counted as the FLOPs that the device would do in that time.
///
/// All results stay the same, bit for bit. These run only once: draws of random numbers,
/// operators that write, and operators whose results are read by the host. A batch norm that runs
/// again does not change its running statistics. Run eliminate_common_subexpressions before this
/// pass, not after: it would undo the recomputation. Run it after bucket_collectives and before
/// overlap_collectives.
///
/// Throws Error "graph.budget", with the lowest peak that it found, if the budget is below that
/// peak; the graph is unchanged then. Throws Error "graph.cost" for a graph whose types are not
/// known, and "graph.collectives" if ranks of the group have other graphs.
LEVIN_API Rematerialization rematerialize(Graph& graph, int64_t budget_bytes,
                                          const RematerializeOptions& options = {});

// Data parallelism (DDP) as graph passes: a step that was recorded on one process becomes the step
// of one rank of many. Its gradients are averaged over the ranks before any operator reads them.
//
//   insert_gradient_all_reduces(graph, comm::operator_name(world));
//   bucket_collectives(graph, 25 << 20);
//   overlap_collectives(graph);
//   Replay step(graph);

/// Averages the gradients that backward leaves in the graph's parameters over the ranks of a group,
/// and returns how many gradients there are. Later operators that change the gradients in place
/// (clipping) or read them (the optimizer) get the mean. Buffers and the graph's outputs are not
/// averaged. If the step replaces gradients after backward instead of changing them in place,
/// their final values are averaged. Values that nothing reads are erased. A step may update some
/// parameters and use them for the gradients of others, like the two optimizers of a GAN. `group`
/// is comm::operator_name of the process group.
///
/// Throws Error "graph.data_parallel" for a parameter that is updated but has no gradient at the
/// end of the step (call zero_grad at the start of the step), and for a parameter whose gradient is
/// computed from another parameter's gradient.
LEVIN_API size_t insert_gradient_all_reduces(Graph& graph, const std::string& group);

// Collectives: the passes know the operators of levin/comm/operators.h. Run bucket_collectives, then
// rematerialize, then overlap_collectives. Results stay the same, bit for bit.
//
//   bucket_collectives(graph, 25 << 20);
//   rematerialize(graph, budget_bytes, {.group = world});
//   overlap_collectives(graph, {.bytes_under_way = 100 << 20});
//   lint_collectives(graph, world);

/// Joins collectives that have the same kind, group, reduction, dtype and device into buckets, and
/// makes one operator of each start and its wait. It
/// returns the number of all-gathers, reduce-scatters and all-reduces afterwards. A bucket has at
/// most this many bytes (of the full tensors), or one tensor. A bucket of gathers runs where its
/// first tensor is gathered, if all that it sends exists there; a bucket of reductions runs when the
/// last of its tensors is computed. An all-reduce does not move past another collective; a
/// reduce-scatter may move past gathers. Buckets follow Li et al., "PyTorch Distributed: Experiences
/// on Accelerating Data Parallel Training" (2020).
LEVIN_API size_t bucket_collectives(Graph& graph, int64_t bytes);

/// Options of overlap_collectives.
struct OverlapOptions {
  /// Most bytes of the full tensors of collectives that are under way at one time. A collective
  /// larger than this overlaps nothing.
  int64_t bytes_under_way = std::numeric_limits<int64_t>::max();
  /// Collectives start in the order of the graph: a rank that runs the step eagerly then goes with
  /// ranks that replay it. Without it gathers may start before reductions that stand before them.
  bool keeps_order = false;
};

/// Overlaps collectives with operators, and returns how many there are. Each one becomes a start and
/// a wait. The start goes to the first place where its tensors exist, and the wait to the first
/// reader. Reductions and messages keep their order. Gathers keep theirs, and may start before
/// reductions that stand before them: that prefetches parameters. The order is the same on all ranks
/// whose graphs differ in nothing but their own parts.
LEVIN_API size_t overlap_collectives(Graph& graph, const OverlapOptions& options = {});

/// Checks the graph like Graph::lint, and that all ranks of the group have the same collectives over
/// it, in the same order. All ranks must call it. Throws Error "graph.collectives", which names the
/// first that differs.
LEVIN_API void lint_collectives(const Graph& graph, const comm::ProcessGroup& group);

// Cost estimates: FLOPs, memory traffic and time of each operator on a device, and the memory that
// is alive while the graph runs. The estimates do not run the graph.
//
//   const GraphCost cost = cost_of(graph, *find_device("h100"));
//   const MemoryProfile memory = memory_of(graph);

/// Estimated cost of one operator.
struct NodeCost {
  const Node* node = nullptr;  ///< the operator
  double flops = 0.0;          ///< FLOPs; a multiplication and an addition are two
  double bytes = 0.0;          ///< bytes read and written, each tensor once
  /// Seconds on the device: the longer of arithmetic and memory traffic, plus the time to start an
  /// operator. For a collective, its time over the link of its group: see LinkDescription.
  double seconds = 0.0;
  double sent_bytes = 0.0;  ///< bytes that each rank sends, if it is a collective
};

/// Peak rates of a device, from its maker's data sheet. The entry "cpu" is one core.
struct DeviceDescription {
  std::string name;               ///< name for find_device
  double flops_per_s = 0.0;       ///< float32 FLOP/s, of matrix units if there are any
  double half_flops_per_s = 0.0;  ///< bfloat16 and float16 FLOP/s
  double bytes_per_s = 0.0;       ///< memory bandwidth
  double memory_bytes = 0.0;      ///< size of the memory
  double operator_s = 0.0;        ///< seconds to start an operator from eager code
};

/// Returns the devices that levin knows: "cpu", "a100", "h100", "h200" and generations of TPUs.
LEVIN_API const std::vector<DeviceDescription>& known_devices();
/// Returns the device of this name, or nothing if it is not known.
LEVIN_API std::optional<DeviceDescription> find_device(std::string_view name);

/// Connection between the ranks of a backend. A message of n bytes takes alpha_s + n / bytes_per_s.
/// Over N ranks, all_gather and reduce_scatter of n bytes in all take (N - 1) * alpha_s + (N - 1) / N
/// * n / bytes_per_s, all_reduce takes twice that (rings: Thakur et al., "Optimization of Collective
/// Communication Operations in MPICH", 2005).
struct LinkDescription {
  std::string backend;       ///< ProcessGroup::backend()
  double alpha_s = 0.0;      ///< seconds until a message of no bytes arrives
  double bytes_per_s = 0.0;  ///< bandwidth of one rank
};

/// Returns the links that levin knows, one for each backend. The figures are rounded from all_gather
/// of 40 bytes and of 40 MB by 2 ranks on one host (bench/RANKS.md); those of "nccl" are not measured.
LEVIN_API const std::vector<LinkDescription>& known_links();

/// Estimated cost of a graph.
struct GraphCost {
  std::vector<NodeCost> nodes;  ///< operators in the order of the graph, without views
  double flops = 0.0;           ///< FLOPs of all operators
  double bytes = 0.0;           ///< bytes read and written by all operators
  double seconds = 0.0;         ///< sum of their times
};

/// Estimates the cost of running a graph on a device. Throws Error "graph.cost" for a graph whose
/// types are not known.
LEVIN_API GraphCost cost_of(const Graph& graph, const DeviceDescription& device);

/// Use of a piece of memory.
enum class MemoryUse {
  kInput,      ///< an input of the graph
  kParameter,  ///< a state tensor that requires or gets a gradient
  kState,      ///< another state tensor: a buffer, optimizer state
  kGradient,   ///< a gradient that the step leaves
  kValue       ///< another value: an activation, a temporary tensor
};

/// A tensor that is alive at the peak.
struct LiveValue {
  const Value* value = nullptr;       ///< the value
  MemoryUse use = MemoryUse::kValue;  ///< use of its memory
  int64_t bytes = 0;                  ///< size of its memory
};

/// Memory that is alive while a graph runs. It is counted after each node, before tensors that were
/// read for the last time are freed. State tensors, and inputs that are read, are alive from the
/// first node to the last. A view needs no memory of its own.
struct MemoryProfile {
  std::vector<int64_t> bytes;            ///< bytes alive at each node, in the order of the graph
  int64_t peak_bytes = 0;                ///< the largest of `bytes`
  size_t peak_node = 0;                  ///< index of the node at the peak
  std::vector<LiveValue> alive_at_peak;  ///< tensors alive at the peak, the largest first
};

/// Returns the bytes of the state tensors and of the inputs that are read. memory_of counts them at
/// every node.
LEVIN_API int64_t state_bytes(const Graph& graph);
/// Estimates the memory of a graph. Throws Error "graph.cost" for a graph whose types are not
/// known.
LEVIN_API MemoryProfile memory_of(const Graph& graph);

}  // namespace levin::graph
