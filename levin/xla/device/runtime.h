#pragma once
// Runtime: the device "xla" of LibTorch. Operators on its tensors are recorded and not run; what
// somebody wants to see is compiled, together with all that it depends on, and run by a PJRT
// plugin.
//
//   const auto runtime = levin::xla::Runtime::open({.plugin = "cpu"});
//   net->to(runtime->device());
//   loss = step(net, x.to(runtime->device()));
//   runtime->sync();                      // the step runs, and this thread goes on
//   std::cout << loss.item<float>();      // waits for it

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::xla {

struct RuntimeOptions {
  /// "cpu", "cuda", "tpu", the path of a plugin, or "" for the first that is found.
  std::string plugin = {};
  /// How many of the devices that this process has; 0 for all. Of a CPU: how many it is divided
  /// into; 0 for one.
  int64_t num_devices = 0;
  /// Processes that run programs together, each on as many devices of its own (the hosts of a TPU
  /// slice): which of them this is, how many there are, and where they meet (a store of this
  /// runtime alone, as a c10d::PrefixStore).
  int64_t rank = 0;
  int64_t world_size = 1;
  c10::intrusive_ptr<c10d::Store> store = {};
  /// How long one waits for the others where they agree on a program.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Where compiled programs are kept; "" is the default of pjrt::CacheOptions.
  std::string cache_dir = {};
};

/// A program that was not there yet.
struct Compilation {
  std::string reason;  ///< what is other than in the program before, and where in the code
  int64_t num_operators = 0;
  double seconds = 0.0;
  bool from_disk = false;  ///< an earlier process had compiled it
};

/// What has been done so far.
struct RuntimeReport {
  int64_t compilations = 0;
  int64_t disk_cache_hits = 0;
  int64_t lowerings = 0;  ///< graphs that were not like one before
  int64_t executions = 0;
  int64_t trace_hits = 0;      ///< of these, whose operators were as once before: no graph was made
  int64_t host_fallbacks = 0;  ///< operators without lowering, which the CPU computed
  int64_t uploads = 0;
  int64_t downloads = 0;
  double compile_s = 0.0;
  double execute_s = 0.0;   ///< of this thread, to start programs
  double transfer_s = 0.0;  ///< of this thread, to bring tensors to the devices and back: with what
                            ///< it waits for their programs
  std::vector<Compilation> programs = {};

  /// In one line.
  LEVIN_API std::string summary() const;
};

/// A handle; the last one closes the device. Tensors of a closed device can be read no more.
class LEVIN_API Runtime {
 public:
  struct Impl;

  /// The process's device "xla" from now on. Trainer and Accelerator walk backward by themselves;
  /// for a tensor.backward() of one's own it is to be called before the process's first one, at
  /// which autograd counts the devices. Throws "xla.open" while there is another one, and what
  /// pjrt::Plugin and pjrt::Client throw.
  static std::shared_ptr<Runtime> open(const RuntimeOptions& options = {});
  /// nullptr where none is open.
  static std::shared_ptr<Runtime> current();
  ~Runtime();

  at::Device device() const { return {at::kXLA, 0}; }
  /// How many devices of the plugin the tensors of this process lie on: those of the process.
  int64_t num_devices() const;
  /// "cpu", "cuda", "tpu".
  const std::string& platform() const;

  /// Compiles what has been recorded, if that is new, and starts it. Does not wait.
  void sync();
  /// Waits until all that was started is done. Throws what went wrong in it.
  void wait();
  /// A copy of a CPU tensor on the device. With `split` its first dimension lies over the devices,
  /// in equal parts, where it can be divided; else each device has all of it.
  at::Tensor upload(const at::Tensor& tensor, bool split = false);
  /// Whether a tensor of the device is all of its memory, and no view of another.
  static bool is_whole(const at::Tensor& tensor);
  /// The signal that asks the run to stop, 0 for none: looked at while a program is compiled, which
  /// Error "xla.interrupted" then ends. nullptr: nobody asks.
  void set_stop_signal(int (*stop_signal)());
  /// What is recorded is an optimizer's; is_fused: one call of it updates many parameters.
  class LEVIN_API OptimizerScope {
   public:
    OptimizerScope(Runtime& runtime, bool is_fused);
    ~OptimizerScope();
    OptimizerScope(const OptimizerScope&) = delete;
    OptimizerScope& operator=(const OptimizerScope&) = delete;

   private:
    Runtime& runtime_;
  };

  /// Whether tensors that come to the device are split, as upload() says.
  bool set_split(bool split);

  RuntimeReport report() const;
  Impl& impl() { return *impl_; }

 private:
  Runtime();
  std::shared_ptr<Impl> impl_;
};

/// The report of the process's device for people, as torch_xla's met.metrics_report(); empty where
/// none is open.
LEVIN_API std::string metrics_report();

/// Tensors that come to the device while it lives are batches: split over the devices, and on their
/// way when the call returns. Their memory is kept until they are there, and nobody may write to
/// it.
class LEVIN_API SplitScope {
 public:
  explicit SplitScope(Runtime& runtime) : runtime_(runtime), before_(runtime.set_split(true)) {}
  ~SplitScope() { runtime_.set_split(before_); }
  SplitScope(const SplitScope&) = delete;
  SplitScope& operator=(const SplitScope&) = delete;

 private:
  Runtime& runtime_;
  bool before_;
};

}  // namespace levin::xla
