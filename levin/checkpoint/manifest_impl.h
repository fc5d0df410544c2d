#pragma once
// The list of a checkpoint's files, of the pieces that they are checked by, and of whose they are.
// Not for users.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace levin::detail {

constexpr const char* kManifestName = "manifest.json";
constexpr const char* kTrainingJson = "training_state.json";
constexpr const char* kTrainingTensors = "training_state.safetensors";
constexpr std::string_view kWeightsSuffix = ".safetensors";
constexpr std::string_view kIndexSuffix = ".safetensors.index.json";

/// Bytes of a file with a checksum of their own. They begin where the piece before ends.
struct Piece {
  int64_t end = 0;
  uint64_t xxh3 = 0;
  bool is_here = true;  ///< false: another host has it, see Manifest::part
};

struct ListedFile {
  int64_t size = 0;  ///< bytes
  std::vector<Piece> pieces;
};

/// Describes a folder that one of several hosts has written (save_on_each_node).
struct Part {
  std::string save;   ///< the same for all parts of one save, and for no other
  int64_t index = 0;  ///< number of this host among them
  int64_t count = 1;
};

struct Manifest {
  /// By name: files of the folder itself, each of weights or of the training state.
  std::map<std::string, ListedFile> files;
  /// By the name of a model, its safetensors files.
  std::map<std::string, std::vector<std::string>> weights;
  std::optional<Part> part;
};

/// Synced when it returns.
void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);

/// Reads a manifest of this version or an older one. Throws Error "checkpoint.missing" without one,
/// "checkpoint.version" for one of a newer levin, "checkpoint.corrupt" for one that levin has not
/// written or that was changed since.
Manifest read_manifest(const std::filesystem::path& folder);

[[noreturn]] void fail_corrupt(const std::filesystem::path& file, std::string_view reason);

/// A name that stays in its folder.
bool is_plain_name(std::string_view name);

}  // namespace levin::detail
