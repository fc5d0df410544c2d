#pragma once
// search_checkpoint: the folder that "last" or "best" stands for. Not for users.

#include <filesystem>
#include <optional>
#include <string>

#include "levin/trainer/trainer.h"

namespace levin::detail {

/// Looks in the folders of the trainer's runs, loggers and callbacks, on the main process. Another path is returned as it
/// is. Nothing: no run has saved a checkpoint, or none has ranked one.
std::optional<std::filesystem::path> search_checkpoint(
    Trainer& trainer, const std::string& ckpt_path,
    const std::vector<std::shared_ptr<Callback>>& callbacks);

}  // namespace levin::detail
