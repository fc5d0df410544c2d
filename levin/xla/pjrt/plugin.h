#pragma once
// Plugin: a shared library that compiles and runs XLA programs: one for CPUs, GPUs or TPUs each,
// behind PJRT's C interface. Everything of this folder begins with one; levin links none.
//
//   const pjrt::Plugin plugin(pjrt::find_plugin("cpu"));
//   const pjrt::Client client(plugin, {.num_devices = 4});

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "levin/base/export.h"

namespace levin::xla::pjrt {

/// Returns whether levin was built with pjrt_c_api.h. Otherwise find_plugin and Plugin throw
/// "xla.unavailable", and nothing else of this folder works.
LEVIN_API bool is_available();

/// The version of the interface that levin was built with, "0.81"; "" where it is not available.
LEVIN_API std::string api_version();

struct PluginFile {
  std::string kind;  ///< "cpu", "cuda", "tpu"; "" where the name does not tell
  std::string path;
  bool named = false;  ///< by the environment, and not found by looking for it
};

/// Every plugin that this machine has, in the order in which find_plugin takes them. Looked at are
/// the environment (LEVIN_PJRT_PLUGIN, PJRT_CPU_LIBRARY_PATH and so for CUDA and TPU; as JAX and
/// torch_xla have them TPU_LIBRARY_PATH and PJRT_NAMES_AND_LIBRARY_PATHS), the folder of liblevin,
/// .deps/pjrt of the build, and the Python packages of VIRTUAL_ENV, CONDA_PREFIX, of the python3 in
/// PATH, of ~/.local, /usr/local and /usr. Python is not started. A file that the environment names
/// is listed though it be missing: to load it tells the user so.
LEVIN_API std::vector<PluginFile> found_plugins();

/// The file of a plugin. `wanted` is a path (anything with a slash), a kind, or "" for the best
/// that this machine can use: a TPU's where there is a TPU, a GPU's where there is a GPU, the
/// CPU's. Throws "xla.unavailable", "xla.plugin.absent" (with the places it looked at and what to
/// install), "xla.plugin.trust" for one that was found, not named, and that other users than this
/// one and root own or may write.
LEVIN_API std::string find_plugin(const std::string& wanted = "");

struct PluginOptions {
  /// Use only the compiler and no TPU of this machine: variables tell libtpu (TPU_SKIP_MDS_QUERY=1,
  /// ALLOW_MULTIPLE_LIBTPU_LOAD=1, a host and kind for form's sake, quiet logs, each unless it is
  /// set) not to look for one, which takes minutes. Changes the environment of the process.
  bool compile_only = false;
};

/// A loaded plugin; copies share it. It is never unloaded: its threads live as long as the process.
/// XLA's log below warnings is turned off (TF_CPP_MIN_LOG_LEVEL=1, unless that is set).
class LEVIN_API Plugin {
 public:
  /// Throws "xla.unavailable", "xla.plugin.load" (no such file, no library, no plugin, or it does
  /// not start), "xla.plugin.version" (an interface that levin cannot call).
  explicit Plugin(const std::string& path, const PluginOptions& options = {});

  const std::string& path() const;
  /// "cpu", "cuda" or "tpu", by the file's name; "" where that does not tell.
  const std::string& kind() const;
  /// Returns the version of the plugin's interface, "0.115".
  const std::string& api_version() const;
  /// Returns the plugin's attributes as "name=value", sorted: "stablehlo_current_version=1.13.0".
  const std::vector<std::string>& attributes() const;
  /// The same for the same file, also on another machine; another for another build of it.
  const std::string& identity() const;

  struct Impl;
  const std::shared_ptr<const Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

}  // namespace levin::xla::pjrt
