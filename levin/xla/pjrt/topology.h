#pragma once
// Topology: devices that are not there. A program is compiled for them ahead of time, to know
// whether it fits and what it costs, or to carry the executable to where they are.
//
//   const pjrt::Plugin libtpu(pjrt::find_plugin("tpu"), {.compile_only = true});
//   const pjrt::Topology pod(libtpu, "v5e:2x4");
//   const pjrt::Program program = pod.compile(stablehlo, {.num_replicas = pod.num_devices()});
//   program.memory()->temporary

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "levin/base/export.h"
#include "levin/xla/pjrt/executable.h"
#include "levin/xla/pjrt/plugin.h"

namespace levin::xla::pjrt {

/// Names that libtpu 0.0.42 was seen to take; it knows more, of the same pattern.
LEVIN_API std::span<const std::string_view> known_topologies();

/// Copies share it.
class LEVIN_API Topology {
 public:
  /// `name` is the plugin's: "v5e:2x4" of libtpu is eight chips of a TPU v5e. Throws
  /// "xla.topology", with known_topologies(), for one that the plugin does not know.
  Topology(const Plugin& plugin, const std::string& name);

  const std::string& name() const;
  const std::string& platform() const;
  const std::string& platform_version() const;
  int64_t num_devices() const;
  /// "TPU v5 lite".
  const std::string& device_kind() const;

  /// Does Client::compile for the topology; without device_ids it takes the topology's devices in
  /// their order. Throws "xla.compile", "xla.memory" (larger than the devices' memory, by how
  /// much).
  Program compile(std::string_view text, const CompileOptions& options = {}) const;

  struct Impl;

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace levin::xla::pjrt
