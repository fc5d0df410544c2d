#pragma once
// The zip file of a program, as torch.export.save writes it. ProgramArchive reads it.
// Not for users.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <string>
#include <vector>

#include "levin/interchange/export/record/recording.h"

namespace levin::interchange {

struct ArchiveContents {
  std::string program;  ///< models/model.json
  const std::vector<ModuleTensor>& tensors;
  const std::vector<at::Tensor>& constants;
  std::string constants_prefix;  ///< prefix of the constants' names
  const std::vector<at::Tensor>& example;
};

/// Tensors that share a storage are written once. Throws Error "files.write"; then the file is as it was.
void write_archive(const std::filesystem::path& path, const ArchiveContents& contents);

}  // namespace levin::interchange
