#pragma once
// ProcessSettings: what an engine changes for the whole process, which goes back when the last one
// ends: levin may be a part of a larger program.

#include "levin/base/error.h"
#include "levin/base/export.h"

namespace levin::detail {

/// Each Trainer and Accelerator has one. The last that ends puts back the flags that any of them
/// has changed, and glibc's thresholds (restore_freed_memory). For all threads.
class LEVIN_API ProcessSettings {
 public:
  ProcessSettings();
  ~ProcessSettings();
  ProcessSettings(const ProcessSettings&) = delete;
  ProcessSettings& operator=(const ProcessSettings&) = delete;

  /// LibTorch's flags, set as an engine wants them.
  /// warns: an operator without a deterministic algorithm warns, instead of an error.
  void use_deterministic_algorithms(bool warns = false);
  void use_cudnn_benchmark();
  void use_no_onednn();

 private:
  LastWords last_words_{LastWords::Of::kEngine};
};

}  // namespace levin::detail
