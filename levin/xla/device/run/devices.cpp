#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/xla/device/run/devices_impl.h"
#include "levin/xla/device/run/stopwatch.h"

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

/// Opens the client. A TPU slice or GPUs have a fixed number of devices. A CPU is split only as
/// asked: the number into which its plugin would split it means nothing.
pjrt::Client open_client(const RuntimeOptions& options) {
  const pjrt::Plugin plugin(pjrt::find_plugin(options.plugin));
  const bool is_divided = plugin.kind() == "cpu" || plugin.kind().empty();
  pjrt::ClientOptions wanted = {.num_devices = is_divided ? options.num_devices : 0};
  if (plugin.kind() == "cpu") wanted.num_devices = std::max<int64_t>(1, options.num_devices);
  if (options.world_size > 1) {
    wanted.rank = options.rank;
    wanted.world_size = options.world_size;
    wanted.store = c10::make_intrusive<c10d::PrefixStore>("pjrt", options.store);
  }
  return pjrt::Client(plugin, wanted);
}

}  // namespace

Devices::Devices(const RuntimeOptions& options, LiveContents& live, RuntimeReport& report)
    : world_(options), client_(open_client(options)), live_(live), report_(report) {
  const auto available = static_cast<int64_t>(client_.addressable_devices().size());
  const int64_t unasked = client_.platform() == "cpu" ? 1 : available;
  count_ = options.num_devices == 0 ? unasked : options.num_devices;
  LEVIN_CHECK(count_ <= available, "xla.device",
              "got {} devices, but {} has {}; set devices to at most that number", count_,
              client_.platform(), available);
  ids_ = world_.devices(client_, count_);
}

/// A replica is a process, a partition one of its devices.
pjrt::CompileOptions Devices::compile_options(int64_t num_replicas) const {
  pjrt::CompileOptions options = {
      .num_replicas = num_replicas, .num_partitions = count_, .use_spmd_partitioning = count_ > 1};
  const auto available = static_cast<int64_t>(client_.addressable_devices().size());
  if (world_.size() == 1 && count_ == available) return options;
  const auto first = ids_.begin() + (num_replicas > 1 ? 0 : world_.rank() * count_);
  options.device_ids.assign(first, first + num_replicas * count_);
  return options;
}

void Devices::upload(Contents& contents, const at::Tensor& tensor, bool split) {
  const Stopwatch watch(report_.transfer_s);
  const at::Tensor source = tensor.detach().to(contents.dtype).resolve_neg().contiguous();
  const bool is_split =
      split && count_ > 1 && source.dim() > 0 && source.size(0) > 0 && source.size(0) % count_ == 0;
  contents.split_dim = is_split ? 0 : -1;
  contents.buffers.clear();
  // Batches are uploaded while the step before runs, and nobody changes them; other tensors their
  // owner may change at once.
  const bool stays = splits_uploads || source.data_ptr() != tensor.data_ptr();
  for (int64_t device = 0; device < count_; ++device) {
    const int64_t rows = is_split ? source.size(0) / count_ : 0;
    const at::Tensor part = is_split ? source.narrow(0, device * rows, rows) : source;
    contents.buffers.push_back(client_.upload(
        part, device, stays ? pjrt::HostMemory::kUntilTransferred : pjrt::HostMemory::kDuringCall));
  }
  ++report_.uploads;
}

/// Called while `error` is being handled. If the plugin had begun, the contents that the program
/// was about to change are lost.
void Devices::fail(const pjrt::Executable& executable, const Error& error) {
  int64_t num_gone = 0;
  for (Contents* contents : live_) {
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
  const std::string needs = memory ? fmt::format(
                                         "; it needs {:.1f} MB for inputs, {:.1f} MB for outputs "
                                         "and {:.1f} MB for temporaries on each device",
                                         megabytes(memory->arguments), megabytes(memory->outputs),
                                         megabytes(memory->temporary))
                                   : "";
  LEVIN_FAIL("xla.memory",
             "a program that changes {} tensors failed, so these are lost{}; use a smaller batch "
             "or model, and resume from the last checkpoint. The plugin says: {}",
             num_gone, needs, error.text());
}

/// In the order of Program. The floats of the host are one vector: a transfer each would cost more
/// than a small step.
void Devices::gather(const RunArguments& given) {
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
  uploaded_.clear();
  arguments_.clear();
  uploaded_.reserve(vectors.size() * static_cast<size_t>(count_));
  for (int64_t device = 0; device < count_; ++device) {
    for (const Contents* input : given.inputs) arguments_.push_back(&input->buffers[device]);
    for (const at::Tensor& vector : vectors) {
      uploaded_.push_back(client_.upload(vector, device, pjrt::HostMemory::kUntilTransferred));
      arguments_.push_back(&uploaded_.back());
    }
  }
}

void Devices::execute(const pjrt::Executable& executable, const RunArguments& given) {
  gather(given);
  const Stopwatch watch;
  try {
    executable.execute(arguments_, outputs_);
  } catch (const Error& error) {
    live_.lose_pending();
    fail(executable, error);
  }
  report_.execute_s += watch.seconds();
  ++report_.executions;
}

void Devices::take_outputs(size_t count, c10::function_ref<Contents*(size_t)> place_of) {
  for (size_t i = 0; i < count; ++i) {
    Contents* contents = place_of(i);
    if (contents == nullptr) continue;
    contents->buffers.resize(static_cast<size_t>(count_));
    for (int64_t device = 0; device < count_; ++device) {
      contents->buffers[device] = std::move(outputs_[device * count + i]);
    }
    contents->split_dim = -1;
    contents->is_pending = false;
    contents->is_lost = false;
  }
}

at::Tensor Devices::contents_of(const Contents& contents) {
  check_not_lost(contents);
  if (contents.buffers.empty()) return at::zeros(contents.sizes, contents.dtype);
  ++report_.downloads;
  const Stopwatch watch(report_.transfer_s);
  if (contents.split_dim < 0) return contents.buffers.front().download();
  std::vector<at::Tensor> parts;
  for (const pjrt::Buffer& buffer : contents.buffers) parts.push_back(buffer.download());
  return at::cat(parts, contents.split_dim);
}

at::Tensor Devices::contents_of(const at::Tensor& tensor) {
  const Contents& contents = Contents::of(tensor);
  at::Tensor logical = contents_of(contents);
  if (contents.is_base(tensor)) return logical;
  const at::Tensor memory =
      at::empty_strided(contents.sizes, contents.strides, contents.dtype).copy_(logical);
  return memory.as_strided(tensor.sizes(), tensor.strides(), tensor.storage_offset());
}

/// The outputs of the last run of a program that changes nothing.
std::vector<at::Tensor> Devices::downloaded_outputs(const Program& program) {
  const Stopwatch watch(report_.transfer_s);
  std::vector<at::Tensor> values(program.outputs.size());
  for (size_t i = 0; i < values.size(); ++i) {
    values[program.outputs[i].index] = outputs_[i].download();
    ++report_.downloads;
  }
  return values;
}

}  // namespace levin::xla
