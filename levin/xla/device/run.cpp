// What was recorded, run.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/graph/passes.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {

void Runtime::Impl::sync() {
  const std::scoped_lock lock(mutex);
  if (recorder == nullptr) return;
  std::vector<at::Tensor> results;
  std::vector<Contents*> targets;
  for (const auto& [number, contents] : live) {
    if (!contents->is_pending || !contents->buffers.empty()) continue;
    results.push_back(contents->base());
    targets.push_back(contents);
  }
  graph::Graph graph = recorder->finish(results);
  recorder.reset();
  num_recorded = 0;
  graph.eliminate_dead_code();
  if (!graph.outputs().empty() || !graph.updates().empty()) run(graph, targets);
  numbers.clear();
}

/// The floats of the host in one vector: a transfer each would cost more than a small step.
at::Tensor Runtime::Impl::numbers_of(const std::vector<RuntimeNumber>& wanted,
                                     at::ScalarType dtype) const {
  at::Tensor values = at::empty({static_cast<int64_t>(wanted.size())}, dtype);
  const auto value_of = [&](const RuntimeNumber& number) {
    if (number.tensor == nullptr) return number.value;
    const auto known = numbers.find(number.tensor->tensor().unsafeGetTensorImpl());
    return known == numbers.end() ? number.tensor->tensor().item().toDouble() : known->second.value;
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

const pjrt::Executable& Runtime::Impl::executable_of(const Program& program) {
  const auto known = executables.find(program.text);
  if (known != executables.end()) return known->second;
  const bool is_split = num_devices > 1;
  const int64_t hits = cache.hits();
  pjrt::Executable executable = cache.compile(
      client, program.text, {.num_partitions = num_devices, .use_spmd_partitioning = is_split});
  const bool was_on_disk = cache.hits() > hits;
  (was_on_disk ? report.disk_cache_hits : report.compilations) += 1;
  report.compile_s = cache.compile_s();
  return executables.emplace(program.text, std::move(executable)).first->second;
}

std::vector<const pjrt::Buffer*> Runtime::Impl::arguments_of(const Program& program,
                                                             std::vector<pjrt::Buffer>& uploaded) {
  std::vector<at::Tensor> vectors;
  if (!program.numbers.empty()) vectors.push_back(numbers_of(program.numbers, at::kFloat));
  if (!program.wide_numbers.empty()) {
    vectors.push_back(numbers_of(program.wide_numbers, at::kDouble));
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
  for (int64_t device = 0; device < num_devices; ++device) {
    for (const at::Tensor& vector : vectors) {
      uploaded.push_back(client.upload(vector, device, pjrt::HostMemory::kUntilTransferred));
    }
  }
  std::vector<const pjrt::Buffer*> arguments;
  for (int64_t device = 0; device < num_devices; ++device) {
    for (const graph::Node* input : program.inputs) {
      arguments.push_back(&Contents::of(input->tensor()).buffers[device]);
    }
    for (size_t i = 0; i < vectors.size(); ++i) {
      arguments.push_back(&uploaded[device * vectors.size() + i]);
    }
  }
  return arguments;
}

void Runtime::Impl::run(graph::Graph& graph, const std::vector<Contents*>& results) {
  const auto split_dim = [](const graph::Node& node) {
    return Contents::of(node.tensor()).split_dim;
  };
  const auto may_donate = [](const graph::Node& node) {
    return Contents::of(node.tensor()).split_dim < 0;
  };
  const Program program = lower(
      graph,
      {.num_partitions = num_devices, .split_dim = split_dim, .may_donate = may_donate});
  if (program.outputs.empty()) return;
  const pjrt::Executable& executable = executable_of(program);
  std::vector<pjrt::Buffer> uploaded;
  const std::vector<const pjrt::Buffer*> arguments = arguments_of(program, uploaded);
  executable.execute(arguments, outputs);
  ++report.executions;
  const size_t count = program.outputs.size();
  for (size_t i = 0; i < count; ++i) {
    const ProgramOutput& output = program.outputs[i];
    Contents& contents = output.updates != nullptr ? Contents::of(output.updates->tensor())
                                                   : *results[output.index];
    contents.buffers.clear();
    for (int64_t device = 0; device < num_devices; ++device) {
      contents.buffers.push_back(std::move(outputs[device * count + i]));
    }
    contents.split_dim = -1;
    contents.is_pending = false;
  }
}

void Runtime::Impl::upload(Contents& contents, const at::Tensor& tensor, bool split) {
  const at::Tensor source = tensor.detach().to(contents.dtype).contiguous();
  const bool is_split = split && num_devices > 1 && source.dim() > 0 &&
                        source.size(0) > 0 && source.size(0) % num_devices == 0;
  contents.split_dim = is_split ? 0 : -1;
  contents.buffers.clear();
  const bool is_own = source.data_ptr() != tensor.data_ptr();
  for (int64_t device = 0; device < num_devices; ++device) {
    const int64_t rows = is_split ? source.size(0) / num_devices : 0;
    const at::Tensor part = is_split ? source.narrow(0, device * rows, rows) : source;
    contents.buffers.push_back(client.upload(
        part, device,
        is_own ? pjrt::HostMemory::kUntilTransferred : pjrt::HostMemory::kDuringCall));
  }
  ++report.uploads;
}

at::Tensor Runtime::Impl::download(Contents& contents) {
  const std::scoped_lock lock(mutex);
  if (contents.is_pending) sync();
  if (contents.buffers.empty()) return at::zeros(contents.sizes, contents.dtype);
  ++report.downloads;
  if (contents.split_dim < 0) return contents.buffers.front().download();
  std::vector<at::Tensor> parts;
  for (const pjrt::Buffer& buffer : contents.buffers) parts.push_back(buffer.download());
  return at::cat(parts, contents.split_dim);
}

}  // namespace levin::xla
