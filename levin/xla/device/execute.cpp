// A program, run: what goes in, what comes out, and what is lost where it fails.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/xla/device/runtime_impl.h"
#include "levin/xla/device/stopwatch.h"

namespace levin::xla {
namespace {

/// One draw of the host's generator a run: its seed and its checkpoints are those of the device.
at::Tensor random_key() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::scoped_lock lock(generator.mutex());
  const uint64_t key = at::check_generator<at::CPUGeneratorImpl>(generator)->random64();
  at::Tensor halves = at::empty({2}, at::kUInt32);
  auto* data = halves.mutable_data_ptr<uint32_t>();
  data[0] = static_cast<uint32_t>(key);
  data[1] = static_cast<uint32_t>(key >> 32U);
  return halves;
}

}  // namespace

/// While `error` is being handled. What the program was to change has gone with it where the plugin
/// had begun.
void Runtime::Impl::fail(const pjrt::Executable& executable, const Error& error) {
  int64_t num_gone = 0;
  for (Contents* contents : live) {
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

/// Of the host: as it was when the recording first read it.
double Runtime::Impl::value_of(const RuntimeNumber& number, const Binding& binding) const {
  if (number.tensor == nullptr) return number.value;
  const at::Tensor& tensor = binding(*number.tensor);
  const auto known = numbers.find(tensor.unsafeGetTensorImpl());
  if (known != numbers.end()) return known->second.value;
  return tensor.scalar_type() == at::kDouble ? *tensor.const_data_ptr<double>()
                                             : static_cast<double>(*tensor.const_data_ptr<float>());
}

/// In the order of Program. The floats of the host are one vector: a transfer each would cost more
/// than a small step.
void Runtime::Impl::gather(const RunArguments& given) {
  std::vector<at::Tensor> vectors;
  const auto count = [](const std::vector<double>& values) {
    return static_cast<int64_t>(values.size());
  };
  if (!given.numbers.empty()) {
    at::Tensor floats = at::empty({count(given.numbers)}, at::kFloat);
    std::ranges::transform(given.numbers, floats.mutable_data_ptr<float>(),
                           [](double value) { return static_cast<float>(value); });
    vectors.push_back(std::move(floats));
  }
  if (!given.wide_numbers.empty()) {
    at::Tensor doubles = at::empty({count(given.wide_numbers)}, at::kDouble);
    std::ranges::copy(given.wide_numbers, doubles.mutable_data_ptr<double>());
    vectors.push_back(std::move(doubles));
  }
  if (given.draws_random_numbers) vectors.push_back(random_key());
  uploaded.clear();
  arguments.clear();
  uploaded.reserve(vectors.size() * static_cast<size_t>(num_devices));
  for (int64_t device = 0; device < num_devices; ++device) {
    for (const Contents* input : given.inputs) arguments.push_back(&input->buffers[device]);
    for (const at::Tensor& vector : vectors) {
      uploaded.push_back(client.upload(vector, device, pjrt::HostMemory::kUntilTransferred));
      arguments.push_back(&uploaded.back());
    }
  }
}

void Runtime::Impl::execute(const Program& program, const pjrt::Executable& executable,
                            const Binding& binding) {
  RunArguments given = {.draws_random_numbers = program.draws_random_numbers};
  for (const graph::Node* input : program.inputs) {
    given.inputs.push_back(&Contents::of(binding(*input)));
  }
  for (const RuntimeNumber& number : program.numbers) {
    given.numbers.push_back(value_of(number, binding));
  }
  for (const RuntimeNumber& number : program.wide_numbers) {
    given.wide_numbers.push_back(value_of(number, binding));
  }
  execute(executable, given);
}

void Runtime::Impl::execute(const pjrt::Executable& executable, const RunArguments& given) {
  gather(given);
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

void Runtime::Impl::take_outputs(size_t count, c10::function_ref<Contents*(size_t)> place_of) {
  for (size_t i = 0; i < count; ++i) {
    Contents* contents = place_of(i);
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

}  // namespace levin::xla
