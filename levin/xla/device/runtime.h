#pragma once
// Runtime: LibTorch's device "xla" (TPUs, and GPUs or CPUs through XLA), as torch_xla provides it
// for PyTorch. Its tensors are lazy: operators are recorded and not run. When the program needs
// values (sync(), item()), the recorded operators are compiled as one program, which a PJRT plugin
// runs.
//
//   const auto runtime = levin::xla::Runtime::open({.plugin = "cpu"});
//   net->to(runtime->device());
//   loss = step(net, x.to(runtime->device()));
//   runtime->sync();                      // starts the step and does not wait, like mark_step
//   std::cout << loss.item<float>();      // waits for the step

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::xla {

/// Options of Runtime::open.
struct RuntimeOptions {
  /// PJRT plugin: "cpu", "cuda", "tpu", the path of a plugin, or "" for the first that is found.
  std::string plugin = {};
  /// Number of this process's devices to use; 0 means all. For a CPU, the number of devices into
  /// which it is split; 0 means one.
  int64_t num_devices = 0;
  /// Rank of this process among the processes that run programs together, each on the same number
  /// of devices (the hosts of a TPU slice).
  int64_t rank = 0;
  int64_t world_size = 1;  ///< number of these processes
  /// Store through which these processes meet. It must be for this runtime alone (a
  /// c10d::PrefixStore).
  c10::intrusive_ptr<c10d::Store> store = {};
  /// Time that a process waits for the others when they agree on a program.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Folder of the compilation cache; "" means the default of pjrt::CacheOptions.
  std::string cache_dir = {};
};

/// A compilation: a program that the runtime did not have yet.
struct Compilation {
  std::string reason;         ///< difference from an earlier program, and where in the code
  int64_t num_operators = 0;  ///< number of operators in the program
  double seconds = 0.0;       ///< time to compile it or to read it from disk
  bool from_disk = false;     ///< true if it came from the compilation cache on disk
};

/// Counters of the runtime since it was opened, as torch_xla's metrics.
struct RuntimeReport {
  int64_t compilations = 0;     ///< programs compiled
  int64_t disk_cache_hits = 0;  ///< programs read from the compilation cache on disk
  int64_t lowerings = 0;        ///< graphs lowered, because no equal graph came before
  int64_t executions = 0;       ///< runs of programs
  int64_t trace_hits = 0;  ///< runs that repeated an earlier sequence of operators, without a graph
  int64_t host_fallbacks = 0;  ///< operators that the CPU computed, because they have no lowering
  int64_t uploads = 0;         ///< tensors copied to the devices
  int64_t downloads = 0;       ///< tensors copied from the devices
  double compile_s = 0.0;      ///< seconds of compilation, without reads from disk
  double execute_s = 0.0;      ///< seconds that the calling thread took to start programs
  /// Seconds that the calling thread took to copy tensors to and from the devices. They include the
  /// time that it waited for the programs of these tensors.
  double transfer_s = 0.0;
  std::vector<Compilation> programs = {};  ///< every compilation, in order

  /// Returns the counters in one line.
  LEVIN_API std::string summary() const;
};

/// The device "xla" of this process. The device is closed when the last shared_ptr to its Runtime
/// is gone; its tensors cannot be read afterwards.
class LEVIN_API Runtime {
 public:
  /// Opens the process's device "xla". Trainer and Accelerator run backward on it by themselves. If
  /// you call tensor.backward() yourself, call open before the first backward of the process,
  /// because autograd counts the devices then. Throws Error "xla.open" if another Runtime is open,
  /// "xla.library" if the library levin::xla is not there, and what pjrt::Plugin and pjrt::Client
  /// throw.
  static std::shared_ptr<Runtime> open(const RuntimeOptions& options = {});
  /// Returns the open Runtime, or nullptr if none is open.
  static std::shared_ptr<Runtime> current();
  virtual ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// The device for tensor.to() and tensor options.
  at::Device device() const { return {at::kXLA, 0}; }
  /// Number of PJRT devices of this process, over which its tensors are placed.
  virtual int64_t num_devices() const = 0;
  /// Platform of the devices: "cpu", "cuda" or "tpu".
  virtual const std::string& platform() const = 0;
  /// Model of the devices, as the plugin calls it: "TPU v5 lite", "cpu".
  virtual const std::string& device_kind() const = 0;

  /// Compiles the recorded operators, if they are new, and starts the program without waiting for
  /// it, like torch_xla.sync (mark_step).
  virtual void sync() = 0;
  /// Starts the recorded operators and waits until all started programs are done. Throws their
  /// errors.
  virtual void wait() = 0;
  /// Returns a copy of a CPU tensor on the device. With `split`, its first dim is sharded over the
  /// devices in equal parts, if the size can be divided; else each device has the full tensor.
  virtual at::Tensor upload(const at::Tensor& tensor, bool split) = 0;
  /// Same, not sharded.
  at::Tensor upload(const at::Tensor& tensor) { return upload(tensor, false); }
  /// Returns whether a tensor of the device covers all of its memory and is not a view of another.
  virtual bool is_whole(const at::Tensor& tensor) const = 0;
  /// Sets a function that returns the signal which asks the run to stop, or 0 for none. It is
  /// called while a program is compiled; a signal ends the compilation with Error
  /// "xla.interrupted". nullptr: there is no such function.
  virtual void set_stop_signal(int (*stop_signal)()) = 0;
  /// While an object of this class lives, the recorded operators count as those of an optimizer
  /// step.
  class LEVIN_API OptimizerScope {
   public:
    /// is_fused: true if one call of the optimizer updates many parameters.
    OptimizerScope(Runtime& runtime, bool is_fused) : runtime_(runtime) {
      runtime_.begin_optimizer(is_fused);
    }
    ~OptimizerScope() { runtime_.end_optimizer(); }
    OptimizerScope(const OptimizerScope&) = delete;
    OptimizerScope& operator=(const OptimizerScope&) = delete;

   private:
    Runtime& runtime_;
  };

  /// Sets whether tensors that are copied to the device are split, as in upload(). Returns the
  /// previous setting.
  virtual bool set_split(bool split) = 0;

  /// Returns the counters so far.
  virtual RuntimeReport report() const = 0;

 protected:
  Runtime();

 private:
  virtual void begin_optimizer(bool is_fused) = 0;
  virtual void end_optimizer() = 0;
};

/// Returns the counters and compilations of the process's device as text, like torch_xla's
/// met.metrics_report(); empty text if no device is open.
LEVIN_API std::string metrics_report();

/// While an object of this class lives, tensors that are copied to the device count as batches:
/// they are split over the devices, and the copy may still be under way when the call returns. The
/// source memory is kept until the copy is done, and must not be written until then.
class LEVIN_API SplitScope {
 public:
  /// Turns splitting on; the destructor restores the previous setting.
  explicit SplitScope(Runtime& runtime) : runtime_(runtime), before_(runtime.set_split(true)) {}
  ~SplitScope() { runtime_.set_split(before_); }
  SplitScope(const SplitScope&) = delete;
  SplitScope& operator=(const SplitScope&) = delete;

 private:
  Runtime& runtime_;
  bool before_;
};

}  // namespace levin::xla
