#pragma once
// Project: a folder of numbered checkpoints, for save_state without a path.
// Beside the engine, which writes and reads them.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "levin/accelerator/options.h"
#include "levin/base/export.h"

namespace levin {

/// Folders project_dir/checkpoints/checkpoint_N, in the order of their numbers.
class LEVIN_API Project {
 public:
  /// Throws Error "accelerator.project" for a number below 0.
  Project(std::filesystem::path project_dir, const ProjectConfiguration& configuration);

  /// Returns the number of the next checkpoint. Throws as next_checkpoint().
  int64_t next_number() const;
  /// Returns the folder of the next checkpoint. Throws Error "accelerator.project" without
  /// project_dir or without automatic_checkpoint_naming.
  std::filesystem::path next_checkpoint() const;
  /// Throws Error "accelerator.project" when there is none.
  std::filesystem::path newest_checkpoint() const;
  /// Removes all checkpoints but the newest total_limit; other entries with such a name stay.
  void remove_old_checkpoints() const;

 private:
  void check() const;
  std::vector<int64_t> numbers() const;
  std::filesystem::path folder(int64_t number) const;

  std::filesystem::path project_dir_;
  ProjectConfiguration configuration_;
};

}  // namespace levin
