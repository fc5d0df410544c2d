// What was recorded, run.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <set>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/current_place.h"
#include "levin/graph/passes.h"
#include "levin/xla/device/runtime_impl.h"
#include "levin/xla/device/stopwatch.h"

namespace levin::xla {
namespace {

/// A program in which it says nothing to the others a process runs by itself, as often as it likes.
bool exchanges(const graph::Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const graph::Node& node) {
    return node.opcode() == graph::Opcode::kCallFunction && node.target().starts_with("levin::");
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
  for (const auto& [number, contents] : live) {
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
  if (recorder == nullptr) return;
  std::vector<Contents*> targets;
  // The recorder may be the last to hold some of them.
  const std::vector<at::Tensor> results = pending(targets);
  graph::Graph graph = recorder->finish(results);
  recorder.reset();
  graph.eliminate_dead_code();
  run(graph, targets, step_binding(graph));
  numbers.clear();
}

void Runtime::Impl::lose_pending() noexcept {
  numbers.clear();
  for (const auto& [number, contents] : live) {
    if (contents->is_pending && contents->buffers.empty()) contents->is_lost = true;
    contents->is_pending = false;
  }
}

/// While `error` is being handled. What the program was to change has gone with it where the plugin
/// had begun.
void Runtime::Impl::fail(const pjrt::Executable& executable, const Error& error) {
  int64_t num_gone = 0;
  for (const auto& [number, contents] : live) {
    const bool is_gone = std::ranges::any_of(
        contents->buffers, [](const auto& buffer) { return buffer.is_deleted(); });
    if (!is_gone) continue;
    ++num_gone;
    contents->is_lost = true;
    contents->buffers.clear();
  }
  if (num_gone == 0) throw;
  // A plugin that found no memory tries once more, with arguments that it has given away already,
  // and complains of those.
  const std::optional<pjrt::ProgramMemory> memory = executable.memory();
  const auto megabytes = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  const std::string needs =
      memory ? fmt::format(
                   "; it needs {:.1f} MB for what goes in, {:.1f} MB for what comes out and "
                   "{:.1f} MB in between, on each device",
                   megabytes(memory->arguments), megabytes(memory->outputs),
                   megabytes(memory->temporary))
             : "";
  LEVIN_FAIL("xla.memory",
             "a program failed that was to change {} tensors, and these are lost{}; make the batch "
             "or the network smaller, and resume from the last checkpoint. The plugin says: {}",
             num_gone, needs, error.text());
}

Binding Runtime::Impl::step_binding(const graph::Graph& graph) const {
  if (step_inputs.empty()) {
    return [](const graph::Node& node) -> const at::Tensor& { return node.tensor(); };
  }
  std::unordered_map<const graph::Node*, const at::Tensor*> inputs;
  for (const graph::Node& node : graph.nodes()) {
    if (node.opcode() == graph::Opcode::kPlaceholder) inputs[&node] = &step_inputs[inputs.size()];
  }
  return [inputs = std::move(inputs)](const graph::Node& node) -> const at::Tensor& {
    const auto found = inputs.find(&node);
    return found == inputs.end() ? node.tensor() : *found->second;
  };
}

void Runtime::Impl::begin_step(const std::vector<at::Tensor>& inputs) {
  is_in_step = true;
  step_inputs = inputs;
  step_trouble.clear();
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

/// The floats of the host in one vector: a transfer each would cost more than a small step.
at::Tensor Runtime::Impl::numbers_of(const std::vector<RuntimeNumber>& wanted, at::ScalarType dtype,
                                     const Binding& binding) const {
  at::Tensor values = at::empty({static_cast<int64_t>(wanted.size())}, dtype);
  const auto value_of = [&](const RuntimeNumber& number) {
    if (number.tensor == nullptr) return number.value;
    const at::Tensor& tensor = binding(*number.tensor);
    const auto known = numbers.find(tensor.unsafeGetTensorImpl());
    if (known != numbers.end()) return known->second.value;
    return tensor.scalar_type() == at::kDouble
               ? *tensor.const_data_ptr<double>()
               : static_cast<double>(*tensor.const_data_ptr<float>());
  };
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (dtype == at::kDouble) {
      values.mutable_data_ptr<double>()[i] = value_of(wanted[i]);
    } else {
      values.mutable_data_ptr<float>()[i] = static_cast<float>(value_of(wanted[i]));
    }
  }
  return values;
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
  const Stopwatch watch;
  pjrt::Executable executable =
      cache.compile(client, program.text, compile_options(program.num_replicas));
  note_compilation(program, graph, watch.seconds(), cache.hits() > hits);
  return executables.emplace(program.text, std::move(executable)).first->second;
}

void Runtime::Impl::gather_arguments(const Program& program, const Binding& binding) {
  std::vector<at::Tensor> vectors;
  if (!program.numbers.empty()) {
    vectors.push_back(numbers_of(program.numbers, at::kFloat, binding));
  }
  if (!program.wide_numbers.empty()) {
    vectors.push_back(numbers_of(program.wide_numbers, at::kDouble, binding));
  }
  if (program.draws_random_numbers) {
    // One draw of the host's generator a run: its seed and its checkpoints are those of the device.
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::scoped_lock lock(generator.mutex());
    const uint64_t key = at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
    at::Tensor halves = at::empty({2}, at::kUInt32);
    auto* data = halves.mutable_data_ptr<uint32_t>();
    data[0] = static_cast<uint32_t>(key);
    data[1] = static_cast<uint32_t>(key >> 32U);
    vectors.push_back(halves);
  }
  uploaded.clear();
  arguments.clear();
  uploaded.reserve(vectors.size() * static_cast<size_t>(num_devices));
  for (int64_t device = 0; device < num_devices; ++device) {
    for (const graph::Node* input : program.inputs) {
      arguments.push_back(&Contents::of(binding(*input)).buffers[device]);
    }
    for (const at::Tensor& vector : vectors) {
      uploaded.push_back(client.upload(vector, device, pjrt::HostMemory::kUntilTransferred));
      arguments.push_back(&uploaded.back());
    }
  }
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

void Runtime::Impl::execute(const Program& program, const pjrt::Executable& executable,
                            const Binding& binding) {
  gather_arguments(program, binding);
  const Stopwatch watch;
  try {
    executable.execute(arguments, outputs);
  } catch (const Error& error) {
    lose_pending();
    fail(executable, error);
  }
  report.execute_s += watch.seconds();
  ++report.executions;
}

void Runtime::Impl::take_outputs(const Program& program,
                                 const std::function<Contents*(const ProgramOutput&)>& place_of) {
  const size_t count = program.outputs.size();
  for (size_t i = 0; i < count; ++i) {
    Contents* contents = place_of(program.outputs[i]);
    if (contents == nullptr) continue;
    contents->buffers.resize(static_cast<size_t>(num_devices));
    for (int64_t device = 0; device < num_devices; ++device) {
      contents->buffers[device] = std::move(outputs[device * count + i]);
    }
    contents->split_dim = -1;
    contents->is_pending = false;
    contents->is_lost = false;
  }
}

void Runtime::Impl::run(const graph::Graph& graph, const std::vector<Contents*>& results,
                        const Binding& binding) {
  const KnownProgram* known = nullptr;
  try {
    known = &program_of(graph, binding);
    if (known->executable == nullptr) return;
    execute(known->program, *known->executable, binding);
  } catch (...) {
    lose_pending();
    throw;
  }
  take_outputs(known->program, [&](const ProgramOutput& output) {
    return output.updates != nullptr ? &Contents::of(binding(*output.updates))
                                     : results[output.index];
  });
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

at::Tensor Runtime::Impl::download(Contents& contents) {
  const std::scoped_lock lock(mutex);
  if (contents.is_pending) {
    flush(is_in_step && step_trouble.empty()
              ? "the host reads a value of it" + graph::current_place()
              : "");
  }
  check_not_lost(contents);
  if (contents.buffers.empty()) return at::zeros(contents.sizes, contents.dtype);
  ++report.downloads;
  const Stopwatch watch(report.transfer_s);
  if (contents.split_dim < 0) return contents.buffers.front().download();
  std::vector<at::Tensor> parts;
  for (const pjrt::Buffer& buffer : contents.buffers) parts.push_back(buffer.download());
  return at::cat(parts, contents.split_dim);
}

}  // namespace levin::xla
