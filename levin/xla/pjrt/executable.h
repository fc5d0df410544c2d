#pragma once
// Program: what the compiler made of a module. Executable: one that is loaded on devices and runs.
// Between StableHLO text and the step of a compiled module.
//
//   const pjrt::Executable add = client.compile(text);
//   std::vector<pjrt::Buffer> results;
//   add.execute({{&x, &y}}, results);                  // does not wait
//   results[0].download();

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "levin/base/export.h"
#include "levin/xla/pjrt/buffer.h"

namespace levin::xla::pjrt {

/// XLA's own options: the program runs on num_replicas * num_partitions devices.
struct CompileOptions {
  int64_t num_replicas = 1;              ///< each with arguments of its own (data parallel)
  int64_t num_partitions = 1;            ///< each with a part of every argument
  bool use_spmd_partitioning = false;    ///< XLA splits the program by its mhlo.sharding
  std::vector<int64_t> device_ids = {};  ///< [replica][partition], flat; none: the plugin's choice

  bool operator==(const CompileOptions&) const = default;
};

/// Bytes on one device.
struct ProgramMemory {
  int64_t arguments = 0;
  int64_t outputs = 0;
  int64_t aliased = 0;  ///< part of the outputs that lies in donated arguments
  int64_t temporary = 0;
  int64_t code = 0;
  int64_t peak = 0;  ///< 0 where the plugin does not tell
};

/// Copies share the program.
class LEVIN_API Program {
 public:
  /// The module's name, "jit_step".
  const std::string& name() const;
  int64_t num_outputs() const;
  int64_t num_replicas() const;
  int64_t num_partitions() const;

  /// Returns nothing if the plugin does not tell.
  std::optional<ProgramMemory> memory() const;
  /// XLA's estimates for one run by its names, "flops", "bytes accessed"; none where the plugin
  /// has none.
  std::map<std::string, double> costs() const;
  /// The program after XLA's passes, one instruction a line, as HLO text without its attributes:
  /// to read what was fused and which collectives were put in. Throws "xla.program".
  std::string optimized_text() const;
  /// "" where the plugin has none.
  std::string fingerprint() const;
  /// For Client::load. Throws "xla.serialize" where the plugin cannot.
  std::string serialize() const;

  struct Impl;
  explicit Program(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<const Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

class LEVIN_API Executable : public Program {
 public:
  using Program::Program;

  /// The devices of this process that it runs on, in the order of arguments and outputs, by place
  /// in Client::addressable_devices().
  const std::vector<int64_t>& devices() const;

  /// Starts a run on all of devices() and returns. `arguments` holds the first device's arguments,
  /// then the second's; each lies on its device and has the program's sizes and dtype. `outputs`
  /// becomes devices().size() * num_outputs() buffers in the same order; handing in the vector of
  /// the last run saves its allocation. Arguments that the program aliases to outputs
  /// (tf.aliasing_output, jax.buffer_donor) are deleted, but for those in `kept`, places within the
  /// arguments of one device: then the plugin copies. If the run fails, the outputs' await()
  /// throws. Throws "xla.arguments", "xla.buffer" (empty, deleted), "xla.execute", "xla.memory".
  /// Runs may be started from several threads.
  void execute(std::span<const Buffer* const> arguments, std::vector<Buffer>& outputs,
               std::span<const int64_t> kept = {}) const;
};

}  // namespace levin::xla::pjrt
