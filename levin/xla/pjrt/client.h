#pragma once
// Client: the devices of a plugin. Tensors go up to one as Buffers, programs are compiled for them.
//
//   const pjrt::Client client(plugin, {.num_devices = 2});
//   const auto program = client.compile(stablehlo, {.num_replicas = 2});
//   const pjrt::Buffer x = client.upload(torch::ones({4}), 1);   // to the second device

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "levin/base/export.h"
#include "levin/xla/pjrt/buffer.h"
#include "levin/xla/pjrt/executable.h"
#include "levin/xla/pjrt/plugin.h"

struct PJRT_Device;

namespace levin::xla::pjrt {

struct ClientOptions {
  /// CPU plugin: how many devices it is to show; 0 is its own default.
  int64_t num_devices = 0;
  /// GPU plugin: the GPUs of this process by number; none means all.
  std::vector<int64_t> visible_devices = {};
  /// The store in which the clients of several processes meet: one client of each, under keys of
  /// their own (a c10d::PrefixStore, another one for the next client). Needed if world_size is over
  /// 1.
  c10::intrusive_ptr<c10d::Store> store = {};
  int64_t rank = 0;
  int64_t world_size = 1;
  /// Further options of the plugin, by its own names ("memory_fraction", "allocator").
  std::map<std::string, std::variant<std::string, int64_t, std::vector<int64_t>, float, bool>>
      plugin_options = {};
};

struct Device {
  int64_t id = 0;               ///< unique among all processes
  int64_t process = 0;          ///< the rank that it belongs to
  std::string kind;             ///< "cpu", "NVIDIA H100 80GB HBM3", "TPU v5 lite"
  bool is_addressable = false;  ///< true if it belongs to this process
};

/// Bytes; what a plugin does not tell is unset.
struct DeviceMemory {
  int64_t bytes_in_use = 0;
  std::optional<int64_t> peak_bytes_in_use;
  std::optional<int64_t> bytes_limit;
};

/// The time for which upload() reads the tensor's memory.
enum class HostMemory {
  kDuringCall,        ///< the tensor may be changed when upload() returns
  kUntilTransferred,  ///< not before the buffer is ready; the tensor is kept alive until then
  kShared,  ///< not as long as the buffer lives; a CPU device then reads the tensor's own memory
};

/// Copies share the devices, which stay as long as a Client, Buffer or Executable of them does.
class LEVIN_API Client {
 public:
  /// Throws "xla.client" with the plugin's message (libtpu without a TPU, GPUs that others hold, a
  /// peer that does not come), "xla.option".
  explicit Client(const Plugin& plugin, const ClientOptions& options = {});

  const Plugin& plugin() const;
  /// "cpu", "cuda", "tpu".
  const std::string& platform() const;
  const std::string& platform_version() const;
  /// Returns the devices of all processes.
  const std::vector<Device>& devices() const;
  /// Returns the devices of this process; a "device" below is an index into this list.
  const std::vector<Device>& addressable_devices() const;
  /// Returns nothing if the plugin does not know (CPU).
  std::optional<DeviceMemory> memory(int64_t device) const;

  /// A dense CPU tensor (contiguous; any sizes, also none or 0) as a buffer on a device. Returns
  /// before the transfer is done, except under kDuringCall. kShared is kUntilTransferred where the
  /// memory is not aligned to 64 bytes or the device is no CPU. Throws "xla.tensor" (not on the
  /// CPU, not contiguous), "xla.dtype", "xla.device", "xla.memory", "xla.transfer".
  Buffer upload(const at::Tensor& tensor, int64_t device = 0,
                HostMemory memory = HostMemory::kUntilTransferred) const;

  /// Compiles StableHLO text (a module with a function @main) for the devices. Throws "xla.compile"
  /// with the plugin's message, line and column; "xla.memory" for what does not fit.
  Executable compile(std::string_view text, const CompileOptions& options = {}) const;
  /// Loads the bytes of Program::serialize(), made by the same build of the same plugin. Throws
  /// "xla.load".
  Executable load(std::string_view serialized) const;

  struct Impl;

 private:
  PJRT_Device* handle_of(int64_t device) const;

  std::shared_ptr<const Impl> impl_;
  std::shared_ptr<const detail::Origin> uploads_;  // the origin of uploaded buffers
};

}  // namespace levin::xla::pjrt
