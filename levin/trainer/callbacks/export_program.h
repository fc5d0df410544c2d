#pragma once
// With `levin export`, the first fit of a program's Trainer writes the module as a program of
// torch.export instead of training it. The environment says so.
//
//   LEVIN_EXPORT_TO=net.pt2                     the file
//   LEVIN_EXPORT_CKPT=best                      weights, as EvaluateOptions::ckpt_path; "": the module's own
//   LEVIN_EXPORT_DYNAMIC=image:0;image:2:max=512  dims, or "none"; unset: dim 0 of each input
//   LEVIN_EXPORT_TRAINING=1                     the form that trains

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"
#include "levin/interchange/export_program.h"
#include "levin/module/module.h"
#include "levin/trainer/options.h"

namespace levin::detail {

struct ExportRequest {
  std::filesystem::path path;
  std::optional<std::string> ckpt_path;            ///< unset: the Trainer's, else "last"
  std::optional<std::vector<DynamicDim>> dynamic;  ///< unset: dim 0 of each input
  bool training = false;
};

/// "image:0;image:2:min=32:max=512:multiple_of=32:name=height", or "none". Throws Error "trainer.export".
LEVIN_API std::vector<DynamicDim> dynamic_dims(std::string_view text);

/// Returns nothing if no export was requested.
std::optional<ExportRequest> export_request();
/// One process on the CPU does it, without what a run writes.
TrainerOptions for_export(TrainerOptions options);

/// Exports predict_step on the first batch of an evaluation, and ends the program.
std::shared_ptr<Callback> export_callback(ExportRequest request);

}  // namespace levin::detail
