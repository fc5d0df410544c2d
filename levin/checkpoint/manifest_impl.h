#pragma once
// The list of a checkpoint's files with their sizes and checksums.
// Not for users.

#include <filesystem>
#include <map>
#include <string>

#include "levin/files/file_writer.h"

namespace levin::detail {

constexpr const char* kManifestName = "manifest.json";
constexpr const char* kTrainingJson = "training_state.json";
constexpr const char* kTrainingTensors = "training_state.safetensors";

/// By name: files of the folder itself, each of weights or of the training state.
using Manifest = std::map<std::string, files::FileDigest>;

void write_manifest(const std::filesystem::path& folder, const Manifest& manifest);

/// Throws Error "checkpoint.missing" where there is none, "checkpoint.corrupt" for one that levin
/// has not written or that was changed since.
Manifest read_manifest(const std::filesystem::path& folder);

[[noreturn]] void fail_corrupt(const std::filesystem::path& file, std::string_view reason);

/// A name that stays in its folder.
bool is_plain_name(std::string_view name);

}  // namespace levin::detail
