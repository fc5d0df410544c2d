#include "levin/accelerator/engine/offload.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "levin/accelerator/compiled/graph_file.h"
#include "levin/accelerator/engine/device.h"
#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/files/folder.h"

namespace levin::detail {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

std::filesystem::path folder_of(const AcceleratorOptions& options) {
  if (!options.engine.offload.folder.empty()) return options.engine.offload.folder;
  if (!options.project_dir.empty()) return options.project_dir;
  return files::temporary_folder();
}

bool offloads(const OffloadOptions& options) { return options.state != "no"; }

/// A GPU's state is kept in memory of the host.
void check_on_gpu(const OffloadOptions& offload) {
  LEVIN_CHECK(offload.state == "optimizer", "accelerator.offload",
              "got --offload {} with a GPU, which supports --offload optimizer only; set that, and "
              "shard the parameters over GPUs with --strategy fsdp, or set --accelerator cpu",
              offload.state);
  const char* const of_a_file = !offload.folder.empty() ? "--offload-folder"
                                : offload.tmpfs         ? "--offload-tmpfs"
                                                        : nullptr;
  LEVIN_CHECK(
      of_a_file == nullptr, "accelerator.offload",
      "got {} with a GPU, whose optimizer state is kept in pinned memory of the host and not "
      "in a file; leave it out, or set --accelerator cpu",
      of_a_file);
}

}  // namespace

void check_offload(const AcceleratorOptions& options, at::Device device) {
  const OffloadOptions& offload = options.engine.offload;
  LEVIN_CHECK(
      offload.state == "no" || offload.state == "optimizer" || offload.state == "parameters",
      "accelerator.offload", "got '{}', wanted no, optimizer or parameters; set --offload",
      offload.state);
  const bool shards = options.strategy == "fsdp" ||
                      (options.strategy == "zero" && options.engine.fsdp.zero_stage == 3);
  LEVIN_CHECK(
      offload.state != "parameters" || shards, "accelerator.offload",
      "got --offload parameters with strategy '{}', which keeps all parameters in memory; set "
      "--strategy fsdp, or zero with --zero-stage 3",
      options.strategy);
  LEVIN_CHECK(offload.memory_mb >= 1, "accelerator.offload",
              "got --offload-memory-mb {}, wanted at least 1", offload.memory_mb);
  if (!offloads(offload)) {
    const OffloadOptions defaults;
    const char* const changed = !offload.folder.empty()                   ? "--offload-folder"
                                : offload.memory_mb != defaults.memory_mb ? "--offload-memory-mb"
                                : offload.tmpfs                           ? "--offload-tmpfs"
                                                                          : nullptr;
    LEVIN_CHECK(changed == nullptr, "accelerator.offload",
                "got {}, which has an effect with --offload optimizer or parameters only; set one, "
                "or leave it out",
                changed);
    return;
  }
  LEVIN_CHECK(
      !is_xla(options), "accelerator.offload",
      "got --offload {} with XLA devices, whose programs keep the optimizer's state on the device; "
      "leave it out, or set --accelerator cpu",
      offload.state);
  if (device.is_cuda()) check_on_gpu(offload);
  LEVIN_CHECK(
      options.engine.compile == "no", "accelerator.offload",
      "got --offload {} with --compile {}, but a recorded step cannot read files; set --compile no",
      offload.state, options.engine.compile);
}

std::shared_ptr<optim::StateMemory> open_state_memory(const AcceleratorOptions& options,
                                                      at::Device device) {
  const OffloadOptions& offload = options.engine.offload;
  if (!offloads(offload)) return nullptr;
  if (device.is_cuda()) return optim::make_host_memory(device, offload.memory_mb * kMiB);
  const std::filesystem::path folder = folder_of(options);
  std::error_code ignored;  // the error shows when the file is made
  std::filesystem::create_directories(folder, ignored);
  auto file = files::ScratchFile::create({.folder = folder, .allow_tmpfs = offload.tmpfs});
  return optim::make_file_memory(std::move(file), offload.memory_mb * kMiB);
}

void say_where_state_is(const optim::StateMemory& memory) {
  const int64_t size_mb = (memory.size() + kMiB - 1) / kMiB,
                at_once_mb = memory.memory_bytes() / kMiB;
  if (memory.file() == nullptr) {
    log::info(
        "offload: {} MB of this rank's state are in pinned memory of the host, and at most {} MB "
        "of "
        "it on {}",
        size_mb, at_once_mb, memory.device().str());
    return;
  }
  log::info(
      "offload: {} MB of this rank's state are in a file in {}, and at most {} MB of it in memory; "
      "the file has no name and vanishes with the process",
      size_mb, memory.file()->folder().string(), at_once_mb);
}

}  // namespace levin::detail
