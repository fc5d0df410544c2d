#include "levin/trainer/callbacks/measures/available_flops.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <utility>

#include "levin/accelerator/engine/engine.h"
#include "levin/graph/cost/tpu_generations.h"
#include "levin/xla/device/runtime.h"

namespace levin::detail {
namespace {

/// FLOP/s in units of 1e12; 0: the GPU has none of that dtype. Products are dense: data sheets
/// often give the double, with sparsity.
struct Gpu {
  std::string_view chip;
  double float64 = 0.0;
  double float32 = 0.0;
  double tf32 = 0.0;
  double bfloat16 = 0.0;
  double float16 = 0.0;
};

// The numbers of Lightning's table, which names the data sheets. Lightning has twice as much for
// H200 (with sparsity) and H100 NVL (of a pair of cards).
constexpr std::array kGpus = {Gpu{"h200 sxm", 33.5, 66.9, 494.7, 989.4, 989.4},
                              Gpu{"h200 nvl", 30, 60, 417.5, 835.5, 835.5},
                              Gpu{"h100 nvl", 30, 60, 417.5, 835.5, 835.5},
                              Gpu{"h100 sxm", 33.5, 66.9, 494.7, 989.4, 989.4},
                              Gpu{"h100 pcie", 25.6, 51.2, 378, 756, 756},
                              Gpu{"rtx 4090", 0, 82.6, 82.6, 82.6, 82.6},
                              Gpu{"rtx 4080", 0, 48.7, 48.7, 48.7, 48.7},
                              Gpu{"rtx 4080 super", 0, 52.2, 52.2, 52.2, 52.2},
                              Gpu{"l4", 0, 30.3, 60, 121, 121},
                              Gpu{"l40", 0, 90.5, 90.5, 181, 181},
                              Gpu{"a100", 9.7, 19.5, 156, 312, 312},
                              Gpu{"a6000", 0, 38.7, 77.4, 38.7, 38.7},
                              Gpu{"a40", 0, 37.4, 74.8, 37.4, 37.4},
                              Gpu{"a10g", 0, 31.2, 62.5, 125, 125},
                              Gpu{"rtx 3090 ti", 0, 40, 40, 40, 40},
                              Gpu{"rtx 3090", 0, 35.6, 35.6, 35.6, 35.6},
                              Gpu{"rtx 3080 ti", 0, 34.1, 34.1, 34.1, 34.1},
                              Gpu{"rtx 3080", 0, 29.8, 29.8, 29.8, 29.8},
                              Gpu{"rtx 3070", 0, 20.3, 20.3, 20.3, 20.3},
                              Gpu{"t4", 0, 8.1, 0, 0, 65},
                              Gpu{"quadro rtx 5000", 0, 11.2, 0, 0, 89.2},
                              Gpu{"rtx 2080 super", 0, 11.2, 0, 0, 22.3},
                              Gpu{"rtx 2080 ti", 0, 14.2, 0, 0, 28.5},
                              Gpu{"rtx 2080", 0, 10.6, 0, 0, 21.2},
                              Gpu{"rtx 2070 super", 0, 9.1, 0, 0, 18.1},
                              Gpu{"titan rtx", 0, 16.3, 0, 0, 32.6},
                              Gpu{"v100 sxm", 7.8, 15.7, 0, 0, 125},
                              Gpu{"v100 pcie", 7, 14, 0, 0, 112},
                              Gpu{"v100s pcie", 8.2, 16.4, 0, 0, 130}};

std::string lower(std::string_view text) {
  std::string lowered(text);
  std::ranges::transform(lowered, lowered.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lowered;
}

/// Returns the number after "rtx ", with what follows it: "rtx 3080 ti".
std::string geforce(const std::string& name) {
  const size_t begin = name.find("rtx ");
  std::string chip = name.substr(begin, name.find(' ', begin + 4) - begin);
  if (name.find("super") != std::string::npos) return chip + " super";
  return name.find(" ti") != std::string::npos ? chip + " ti" : chip;
}

/// Returns whether the name has the word; a number in the word is a whole one (A40, not A4000).
bool has_word(const std::string& name, std::string_view word) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const size_t place = name.find(word);
  if (place == std::string::npos) return false;
  const size_t end = place + word.size();
  return !is_digit(word.back()) || end == name.size() || !is_digit(name[end]);
}

/// Returns the name of the table, "" if the GPU is not in it.
std::string chip_of(const std::string& name) {
  const auto has = [&](std::string_view word) { return has_word(name, word); };
  if (has("h200")) return has("nvl") ? "h200 nvl" : "h200 sxm";
  if (has("h100")) {
    if (has("hbm3")) return "h100 sxm";
    if (has("nvl")) return "h100 nvl";
    return has("pcie") || has("hbm2e") ? "h100 pcie" : "";
  }
  if (has("l40s")) return "";
  if (has("l40")) return "l40";
  if (has("geforce rtx ")) return geforce(name);
  constexpr std::array kWords = {std::pair{"a6000", "a6000"},
                                 std::pair{"a100", "a100"},
                                 std::pair{"a40", "a40"},
                                 std::pair{"a10g", "a10g"},
                                 std::pair{"t4", "t4"},
                                 std::pair{"quadro rtx 5000", "quadro rtx 5000"},
                                 std::pair{"titan rtx", "titan rtx"},
                                 std::pair{"v100-sxm", "v100 sxm"},
                                 std::pair{"v100-pcie", "v100 pcie"},
                                 std::pair{"v100s-pcie", "v100s pcie"},
                                 std::pair{"l4", "l4"}};
  for (const auto& [word, chip] : kWords) {
    if (has(word)) return chip;
  }
  return "";
}

/// TPU runtimes call v5e "TPU v5 lite", v6e "TPU v6 lite" and v5p "TPU v5" or "TPU v5p".
std::optional<double> tpu_flops(const std::string& name) {
  std::string generation = name.substr(name.starts_with("tpu") ? 3 : 0);
  std::erase(generation, ' ');
  if (generation == "v5lite" || generation == "v5litepod") generation = "v5e";
  if (generation == "v6lite") generation = "v6e";
  if (generation == "v5") generation = "v5p";
  if (generation == "7x") generation = "tpu7x";
  const auto found = std::ranges::find(kTpuGenerations, generation, &TpuGeneration::name);
  if (found == kTpuGenerations.end()) return std::nullopt;
  // A v4 or v5p shows one device a chip; of the older ones each core is a device.
  const bool is_megacore = generation == "v4";
  return found->flops_per_s * static_cast<double>(is_megacore ? found->cores_of_chip : 1);
}

// CUDA's headers are not LibTorch's; the driver is in the process where a CUDA device is.
std::string gpu_name(int device) {
  void* driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (driver == nullptr) return "";
  using Get = int(int* handle, int ordinal);
  using GetName = int(char* name, int length, int handle);
  auto* get = reinterpret_cast<Get*>(::dlsym(driver, "cuDeviceGet"));
  auto* get_name = reinterpret_cast<GetName*>(::dlsym(driver, "cuDeviceGetName"));
  std::array<char, 256> name = {};
  int handle = 0;
  const bool is_known = get != nullptr && get_name != nullptr && get(&handle, device) == 0 &&
                        get_name(name.data(), static_cast<int>(name.size()) - 1, handle) == 0;
  ::dlclose(driver);
  return is_known ? name.data() : "";
}

}  // namespace

std::optional<double> available_flops(std::string_view device_name, at::ScalarType dtype,
                                      bool in_tf32) {
  const std::string name = lower(device_name);
  if (name.starts_with("tpu")) return tpu_flops(name);
  const auto gpu = std::ranges::find(kGpus, chip_of(name), &Gpu::chip);
  if (gpu == kGpus.end()) return std::nullopt;
  const double tera = dtype == at::kDouble     ? gpu->float64
                      : dtype == at::kBFloat16 ? gpu->bfloat16
                      : dtype == at::kHalf     ? gpu->float16
                      : in_tf32                ? gpu->tf32
                                               : gpu->float32;
  return tera > 0.0 ? std::optional(tera * 1e12) : std::nullopt;
}

std::string device_name(const Engine& engine) {
  if (engine.xla() != nullptr) return engine.xla()->device_kind();
  if (engine.device().is_cuda()) return gpu_name(engine.device().index());
  return engine.device().is_cpu() ? "cpu" : "";
}

}  // namespace levin::detail
