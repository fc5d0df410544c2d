#include "bench/gpu/session.h"

#include <ATen/DeviceAccelerator.h>

namespace gpu {
namespace {

levin::AcceleratorOptions accelerator_options(const Options& options,
                                              const levin::models::Config& sizes) {
  // A check of a replayed step costs what an eager step costs, and comes ever more rarely: in so few steps as
  // are timed here it would count for more than in a run.
  return {.mixed_precision = sizes.text("precision"),
          .accelerator = options.device,
          .devices = 1,
          .engine = {.compile = options.mode == "replay" ? "replay" : "no", .compile_check = "no"}};
}

}  // namespace

Session::Session(const Options& options)
    : options_(options),
      sizes_(levin::models::Config::from_folder(options.folder)),
      accelerator_(accelerator_options(options, sizes_)) {}

void Session::synchronize() const {
  if (accelerator_.device().is_cuda()) {
    at::accelerator::synchronizeDevice(accelerator_.device().index());
  }
}

void Session::trim() const {
  if (!accelerator_.device().is_cuda()) return;
  synchronize();
  at::accelerator::emptyCache();
}

int64_t Session::peak_bytes() const {
  if (!accelerator_.device().is_cuda()) return 0;
  constexpr size_t kAll = 0;  // of large and small pieces
  return at::accelerator::getDeviceStats(accelerator_.device().index()).allocated_bytes[kAll].peak;
}

std::vector<levin::Batch> Session::batches() const {
  const levin::State file =
      levin::load_weights(std::filesystem::path(options_.folder) / "batches.safetensors");
  std::vector<levin::Batch> batches;
  for (const auto& [name, value] : file.values()) {
    const at::Tensor all = file.tensor(name);
    batches.resize(static_cast<size_t>(all.size(0)));
    for (size_t i = 0; i < batches.size(); ++i) {
      at::Tensor tensor = all[static_cast<int64_t>(i)].to(accelerator_.device(), all.scalar_type(),
                                                          /*non_blocking=*/false, /*copy=*/true);
      if (tensor.dim() == 4) tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
      batches[i].set(name, tensor);
    }
  }
  return batches;
}

void Session::load(torch::nn::Module& net) const {
  const at::NoGradGuard no_grad;
  const levin::State file =
      levin::load_weights(std::filesystem::path(options_.folder) / "weights.safetensors");
  const auto parameters = net.named_parameters();
  TORCH_CHECK(parameters.size() == file.values().size(), "weights.safetensors has ",
              file.values().size(), " tensors and the net ", parameters.size(), " parameters");
  for (const auto& item : parameters) item.value().copy_(file.tensor(item.key()));
}

}  // namespace gpu
