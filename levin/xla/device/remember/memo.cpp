#include <algorithm>
#include <utility>

#include "levin/base/log.h"
#include "levin/xla/device/compile/compile_watch.h"
#include "levin/xla/device/remember/memo_impl.h"
#include "levin/xla/device/run/stopwatch.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {
namespace {

/// From so many operators on, a line is logged before compiling, which may take minutes.
constexpr int64_t kManyOperators = 500;

/// A program in which it says nothing to the others a process runs by itself, as often as it likes.
bool exchanges(const graph::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const graph::Node& node) {
    return node.opcode() == graph::Opcode::kCallFunction &&
           (node.target() == "levin::all_reduce_" || node.target() == "levin::broadcast_");
  });
}

}  // namespace

Memo::Memo(RuntimeImpl& owner, const std::string& cache_dir, Devices& devices,
           RuntimeReport& report)
    : log(report),
      owner_(owner),
      devices_(devices),
      report_(report),
      cache_({.folder = cache_dir}) {}

const pjrt::Executable& Memo::executable_of(const Program& program, const graph::Graph& graph) {
  const auto known = executables_.find(program.text);
  if (known != executables_.end()) return known->second;
  if (program.num_replicas > 1) devices_.world().agree_on(program.text, inputs_of(program));
  const int64_t hits = cache_.hits();
  const std::string words = log.words_of(program, graph);
  const auto tell = [words, is_large = program.num_operators >= kManyOperators] {
    if (is_large) log::info("xla: compiling {}", words);
  };
  const Stopwatch watch;
  pjrt::Executable executable =
      watched([this, owner = owner_.shared_from_this(), text = program.text,
               options = devices_.compile_options(program.num_replicas),
               tell] { return cache_.compile(devices_.client(), text, options, tell); },
              {.what = words, .stop_signal = stop_signal});
  log.note(program, graph, watch.seconds(), cache_.hits() > hits);
  return executables_.emplace(program.text, std::move(executable)).first->second;
}

Program Memo::lowered(const graph::Graph& graph, const SplitDim& split_dim) {
  ++report_.lowerings;
  return lower(graph, {.num_replicas = exchanges(graph) ? devices_.world().size() : 1,
                       .num_partitions = devices_.count(),
                       .split_dim = split_dim,
                       .may_donate = [&](const auto& node) { return split_dim(node) < 0; }});
}

const KnownProgram& Memo::program_of(const graph::Graph& graph, const SplitDim& split_dim) {
  if (const KnownProgram* known = programs_.find(graph, split_dim)) return *known;
  KnownProgram made = {.program = lowered(graph, split_dim)};
  if (!made.program.outputs.empty()) made.executable = &executable_of(made.program, graph);
  made.program.text = {};  // long, and needed no more
  return programs_.add(std::move(made));
}

}  // namespace levin::xla
