#pragma once
// The parts of `levin ckpt`: what is in checkpoints, of levin, Hugging Face and PyTorch.

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "levin/base/state.h"

namespace levin::tools {

/// What a path holds.
struct CheckpointContents {
  std::string kind;                      ///< "levin checkpoint", "safetensors file", ...
  std::map<std::string, State> weights;  ///< by model
  State training;                        ///< empty where there is none
};

/// A checkpoint of levin, a folder or file of safetensors, or what PyTorch saved; every byte that has a
/// checksum is checked. Throws what the readers throw, and Error "tools.ckpt" for anything else.
CheckpointContents read_contents(const std::filesystem::path& path);

/// Throws Error "tools.ckpt" where its tensors have far more elements than are stored, as views that
/// repeat one element have.
void check_expansion(const CheckpointContents& contents, const std::filesystem::path& path);

/// Tensors with their types and sizes, and the scalars of the training state. num_tensors: so many of
/// each model, the largest first; below 0: all, by name.
std::string inspected(const std::filesystem::path& path, int64_t num_tensors, bool as_json);

/// Reads each byte that has a checksum; says how many, or that there are none. Throws what the readers throw.
std::string verified(const std::filesystem::path& path);

struct Tolerance {
  double relative = 0.0;
  double absolute = 0.0;
};
/// A line for each tensor and scalar in which two differ; "" where they are equal. NaNs are equal.
std::string differences(const CheckpointContents& one, const CheckpointContents& other,
                        const Tolerance& tolerance);

struct ConvertOptions {
  std::string dtype;  ///< "float32", "bfloat16" ...; empty: as they are. Of floating tensors
  int64_t max_shard_bytes = 5'000'000'000;
};
/// The weights alone: a .safetensors file, a .pt, .pth or .bin file as torch.save writes it, or a folder as
/// save_pretrained writes it. In PyTorch's form tied weights keep all of their names and their common memory.
/// What stands at `to` is not replaced. Throws Error "tools.ckpt".
void convert(const std::filesystem::path& from, const std::filesystem::path& to,
             const ConvertOptions& options);

/// "1.5 GB"
std::string bytes_text(int64_t bytes);

}  // namespace levin::tools
