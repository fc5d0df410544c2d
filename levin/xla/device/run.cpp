// What was recorded, run.
#include <algorithm>
#include <set>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/passes/passes.h"
#include "levin/xla/device/compile/compile_watch.h"
#include "levin/xla/device/runtime_impl.h"
#include "levin/xla/device/stopwatch.h"

namespace levin::xla {
namespace {

/// From so many on one is told of before it is compiled, which may take minutes.
constexpr int64_t kManyOperators = 500;

/// A program in which it says nothing to the others a process runs by itself, as often as it likes.
bool exchanges(const graph::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const graph::Node& node) {
    return node.opcode() == graph::Opcode::kCallFunction &&
           (node.target() == "levin::all_reduce_" || node.target() == "levin::broadcast_");
  });
}

/// One of the step's inputs or of a parameter.
bool is_gradient(const at::Tensor& tensor, const graph::RecordedCall& call) {
  const auto is_its = [&](const at::Tensor& of) {
    return of.defined() && of.is_leaf() && of.grad().defined() && of.grad().is_alias_of(tensor);
  };
  return std::ranges::any_of(call.inputs, is_its) ||
         std::ranges::any_of(call.state, is_its, &NamedTensor::tensor);
}

/// How many of the tensors hold its memory.
size_t num_held(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  std::set<const c10::TensorImpl*> holders;
  for (const at::Tensor& other : tensors) {
    if (other.defined() && other.is_alias_of(tensor)) holders.insert(other.unsafeGetTensorImpl());
  }
  return holders.size();
}

}  // namespace

SplitDim split_dims(const Binding& binding) {
  return [&](const graph::Node& node) { return Contents::of(binding(node)).split_dim; };
}

void check_not_lost(const Contents& contents) {
  LEVIN_CHECK(!contents.is_lost, "xla.lost",
              "a tensor {} that a program was to compute which failed; begin again with what there "
              "was before it",
              c10::str(at::IntArrayRef(contents.sizes)));
}

void Runtime::Impl::sync() {
  const std::scoped_lock lock(mutex);
  if (!is_in_step) flush("");
}

/// What was recorded and is still there to be seen.
std::vector<at::Tensor> Runtime::Impl::pending(std::vector<Contents*>& targets) const {
  std::vector<at::Tensor> results;
  for (Contents* contents : live) {
    if (!contents->is_pending || !contents->buffers.empty()) continue;
    if (std::ranges::find(targets, contents) != targets.end()) continue;
    results.push_back(contents->base());
    targets.push_back(contents);
  }
  return results;
}

void Runtime::Impl::flush(const std::string& reason) {
  const std::scoped_lock lock(mutex);
  if (is_in_step && step_trouble.empty()) step_trouble = reason;
  if (recorder == nullptr && trace.is_empty()) return;
  struct Ending {
    Impl& impl;
    ~Ending() { impl.end_recording(); }
  } const ending{*this};
  try {
    run_recorded();
  } catch (...) {
    lose_pending();
    throw;
  }
}

void Runtime::Impl::run_recorded() {
  const std::vector<uint32_t> seen = trace.seen();
  if (recorder == nullptr) {
    const CallTree::End* end = trace.at()->end_of(seen, trace.numbers());
    if (end != nullptr) return run_end(*end);
  }
  graph::Recorder& recorded = recording();
  std::vector<Contents*> targets;
  // The recorder may be the last to hold some of them.
  const std::vector<at::Tensor> results = pending(targets);
  graph::Graph graph = recorded.finish(results);
  recorder.reset();
  graph.eliminate_dead_code();
  const KnownProgram& known = run(graph, targets, step_binding(graph));
  if (!trace.is_empty()) remember_end(seen, known, targets);
}

void Runtime::Impl::end_recording() noexcept {
  recorder.reset();
  calls_of_nodes.clear();
  optimizer_nodes.clear();
  numbers.clear();
  trace.reset();
}

void Runtime::Impl::lose_pending() noexcept {
  numbers.clear();
  for (Contents* contents : live) {
    if (contents->is_pending && contents->buffers.empty()) contents->is_lost = true;
    contents->is_pending = false;
  }
}

Binding Runtime::Impl::step_binding(const graph::Graph& graph) const {
  std::unordered_map<const graph::Node*, const at::Tensor*> tensors;
  for (const graph::Node& node : graph.nodes()) {
    if (node.opcode() == graph::Opcode::kPlaceholder) tensors[&node] = &step_inputs[tensors.size()];
  }
  for (const graph::Node& node : graph.nodes()) {
    if (node.opcode() != graph::Opcode::kGetAttr) continue;
    const auto known = step_memory.find(node.tensor().unsafeGetTensorImpl());
    if (known != step_memory.end()) tensors[&node] = &known->second.memory;
  }
  return [tensors = std::move(tensors)](const graph::Node& node) -> const at::Tensor& {
    const auto found = tensors.find(&node);
    return found == tensors.end() ? node.tensor() : *found->second;
  };
}

void Runtime::Impl::begin_step(const std::vector<at::Tensor>& inputs) {
  is_in_step = true;
  step_inputs.clear();
  for (const at::Tensor& input : inputs) {
    const bool is_memory = input.defined() && input.is_xla() && Contents::of(input).is_base(input);
    step_inputs.push_back(is_memory ? Contents::of(input).base() : input);
  }
  step_memory.clear();
  step_trouble.clear();
}

void Runtime::Impl::forget_step() {
  step_inputs.clear();
  step_memory.clear();
}

at::Tensor Runtime::Impl::with_other_memory() const {
  const auto found = std::ranges::find_if(step_memory, [](const auto& entry) {
    return !entry.second.tensor.is_alias_of(entry.second.memory);
  });
  return found == step_memory.end() ? at::Tensor() : found->second.tensor;
}

std::string Runtime::Impl::end_step() {
  const std::scoped_lock lock(mutex);
  is_in_step = false;
  return std::exchange(step_trouble, "");
}

/// What the step returned, and whatever else of it is there to be seen, are results of its program:
/// first what it left with somebody, then gradients.
graph::Graph Runtime::Impl::run_step(const graph::RecordedCall& call,
                                     const std::vector<at::Tensor>& values,
                                     std::vector<graph::KeptTensor>& kept) {
  std::vector<Contents*> targets;
  for (const at::Tensor& value : values) {
    Contents* contents = value.defined() && value.is_xla() ? &Contents::of(value) : nullptr;
    const bool is_own = contents != nullptr && contents->is_pending && contents->buffers.empty() &&
                        contents->is_base(value) &&
                        std::ranges::find(targets, contents) == targets.end();
    targets.push_back(is_own ? contents : nullptr);
  }
  // A value that somebody else has too is kept, as an output of its own.
  std::vector<at::Tensor> seen, copies;
  for (size_t i = 0; i < values.size(); ++i) {
    if (targets[i] == nullptr || values[i].storage().use_count() <= num_held(values, values[i])) {
      continue;
    }
    seen.push_back(values[i]);
    copies.push_back(values[i].clone());
    targets.push_back(&Contents::of(copies.back()));
  }
  const size_t num_copies = copies.size();
  std::vector<at::Tensor> others = pending(targets);
  targets.resize(values.size() + num_copies);
  const auto gradients = std::ranges::stable_partition(
      others, [&](const at::Tensor& tensor) { return !is_gradient(tensor, call); });
  const auto num_kept = num_copies + static_cast<size_t>(gradients.begin() - others.begin());
  std::vector<at::Tensor> results = values;
  results.insert(results.end(), copies.begin(), copies.end());
  for (const at::Tensor& tensor : others) {
    seen.push_back(tensor);
    results.push_back(tensor);
    targets.push_back(&Contents::of(tensor));
  }
  graph::Graph graph = recording().finish(results);
  recorder.reset();
  const graph::Values outputs = graph.outputs();
  for (size_t i = 0; i < num_kept; ++i) {
    const graph::Node& node = outputs[values.size() + i]->node();
    const std::string place = node.source().empty() ? "" : " in " + node.source();
    kept.push_back({.storage = seen[i].storage().getWeakStorageImpl(),
                    .sizes = at::DimVector(seen[i].sizes()),
                    .strides = at::DimVector(seen[i].strides()),
                    .dtype = seen[i].scalar_type(),
                    .made_by = std::string(node.target()) + place});
  }
  graph.eliminate_dead_code();
  run(graph, targets, step_binding(graph));
  numbers.clear();
  return graph;
}

/// A replica is a process, a partition one of its devices.
pjrt::CompileOptions Runtime::Impl::compile_options(int64_t num_replicas) const {
  pjrt::CompileOptions options = {.num_replicas = num_replicas,
                                  .num_partitions = num_devices,
                                  .use_spmd_partitioning = num_devices > 1};
  const auto available = static_cast<int64_t>(client.addressable_devices().size());
  if (world.size() == 1 && num_devices == available) return options;
  const auto first = device_ids.begin() + (num_replicas > 1 ? 0 : world.rank() * num_devices);
  options.device_ids.assign(first, first + num_replicas * num_devices);
  return options;
}

const pjrt::Executable& Runtime::Impl::executable_of(const Program& program,
                                                     const graph::Graph& graph) {
  const auto known = executables.find(program.text);
  if (known != executables.end()) return known->second;
  if (program.num_replicas > 1) world.agree_on(program.text, inputs_of(program));
  const int64_t hits = cache.hits();
  const std::string words = words_of(program, graph);
  const auto tell = [words, is_large = program.num_operators >= kManyOperators] {
    if (is_large) log::info("xla: compiling {}", words);
  };
  const Stopwatch watch;
  pjrt::Executable executable =
      watched([self = shared_from_this(), text = program.text,
               options = compile_options(program.num_replicas),
               tell] { return self->cache.compile(self->client, text, options, tell); },
              {.what = words, .stop_signal = stop_signal});
  note_compilation(program, graph, watch.seconds(), cache.hits() > hits);
  return executables.emplace(program.text, std::move(executable)).first->second;
}

Program Runtime::Impl::lowered(const graph::Graph& graph, const SplitDim& split_dim) {
  ++report.lowerings;
  return lower(graph, {.num_replicas = exchanges(graph) ? world.size() : 1,
                       .num_partitions = num_devices,
                       .split_dim = split_dim,
                       .may_donate = [&](const auto& node) { return split_dim(node) < 0; }});
}

/// A graph that is like one before has its program.
const KnownProgram& Runtime::Impl::program_of(const graph::Graph& graph, const Binding& binding) {
  const SplitDim split_dim = split_dims(binding);
  if (const KnownProgram* known = programs.find(graph, split_dim)) return *known;
  KnownProgram made = {.program = lowered(graph, split_dim)};
  if (!made.program.outputs.empty()) made.executable = &executable_of(made.program, graph);
  made.program.text = {};  // long, and needed no more
  return programs.add(std::move(made));
}

const KnownProgram& Runtime::Impl::run(const graph::Graph& graph,
                                       const std::vector<Contents*>& results,
                                       const Binding& binding) {
  try {
    const KnownProgram& known = program_of(graph, binding);
    if (known.executable == nullptr) return known;
    const Program& program = known.program;
    execute(program, *known.executable, binding);
    take_outputs(program.outputs.size(), [&](size_t i) {
      const ProgramOutput& output = program.outputs[i];
      return output.updates != nullptr ? &Contents::of(binding(*output.updates))
                                       : results[output.index];
    });
    return known;
  } catch (...) {
    lose_pending();
    throw;
  }
}

void Runtime::Impl::upload(Contents& contents, const at::Tensor& tensor, bool split) {
  const Stopwatch watch(report.transfer_s);
  const at::Tensor source = tensor.detach().to(contents.dtype).resolve_neg().contiguous();
  const bool is_split = split && num_devices > 1 && source.dim() > 0 && source.size(0) > 0 &&
                        source.size(0) % num_devices == 0;
  contents.split_dim = is_split ? 0 : -1;
  contents.buffers.clear();
  // Batches are uploaded while the step before runs, and nobody changes them; other tensors their
  // owner may change at once.
  const bool stays = splits_uploads || source.data_ptr() != tensor.data_ptr();
  for (int64_t device = 0; device < num_devices; ++device) {
    const int64_t rows = is_split ? source.size(0) / num_devices : 0;
    const at::Tensor part = is_split ? source.narrow(0, device * rows, rows) : source;
    contents.buffers.push_back(client.upload(
        part, device, stays ? pjrt::HostMemory::kUntilTransferred : pjrt::HostMemory::kDuringCall));
  }
  ++report.uploads;
}

}  // namespace levin::xla
