#pragma once
// Capture: records the operators that a thread calls, above autograd, autocast and the operators that only
// call others: linear, not addmm. So a program of them has PyTorch's gradients.
// export_program runs a module within it.
// Not for users.
//
//   Capture capture(tensors_of(module), inputs, {.frames = true});
//   const Recording recording = capture.record([&] { return module.forward(inputs); });

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <memory>
#include <vector>

#include "levin/interchange/export/record/recording.h"

namespace levin::interchange {

struct CaptureOptions {
  at::DeviceType device = at::kCPU;  ///< autocast's
  bool training = true;
  bool frames = false;  ///< note the line of each call
};

class Capture {
 public:
  Capture(const std::vector<ModuleTensor>& module_tensors, const std::vector<at::Tensor>& inputs,
          const CaptureOptions& options);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// Calls the function and records it. Throws what the function throws; Error "interchange.export.read"
  /// where the host reads a value, "interchange.export.host_write" where it writes to a tensor that an
  /// operator computed, and "interchange.export.operator" for one that no program can have. Each names the
  /// line of C++, where there is debug information.
  Recording record(const std::function<c10::IValue()>& function);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace levin::interchange
