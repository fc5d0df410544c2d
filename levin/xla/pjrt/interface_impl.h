#pragma once
// PJRT's C interface as the sources of this folder call it: argument structs that know their size,
// errors as exceptions, events that are freed.
//
//   LEVIN_PJRT_ARGS(PJRT_Client_Devices, args);
//   args.client = client;
//   check(api, api->PJRT_Client_Devices(&args), Doing::kClient, path);

#include <pjrt_c_api.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/xla/pjrt/client.h"
#include "levin/xla/pjrt/executable.h"
#include "levin/xla/pjrt/plugin.h"
#include "levin/xla/pjrt/topology.h"

#define LEVIN_PJRT_ARGS(Function, args) \
  Function##_Args args = {.struct_size = Function##_Args_STRUCT_SIZE}

namespace levin::xla::pjrt {

struct Plugin::Impl {
  std::string path;
  std::string kind;
  std::string version;
  std::vector<std::string> attributes;
  std::string identity;
  const PJRT_Api* api = nullptr;
};

namespace detail {

/// The subject of a call; decides the id of its error.
enum class Doing { kClient, kTransfer, kCompile, kExecute, kLoad, kSerialize, kProgram, kTopology };

/// Throws "subject: " and the error's message, and frees the error. Out of memory is "xla.memory"
/// in every call.
[[noreturn]] void fail(const PJRT_Api* api, PJRT_Error* error, Doing doing,
                       std::string_view subject);
inline void check(const PJRT_Api* api, PJRT_Error* error, Doing doing, std::string_view subject) {
  if (error != nullptr) [[unlikely]]
    fail(api, error, doing, subject);
}

PJRT_Error_Code code_of(const PJRT_Api* api, PJRT_Error* error);
void free_error(const PJRT_Api* api, PJRT_Error* error) noexcept;
/// False, and the error freed, where the plugin has no such function.
bool is_implemented(const PJRT_Api* api, PJRT_Error* error, Doing doing, std::string_view subject);

bool is_ready(const PJRT_Api* api, PJRT_Event* event);
/// Waits and frees the event; the error, if any, is the caller's.
PJRT_Error* await(const PJRT_Api* api, PJRT_Event* event);
void free_event(const PJRT_Api* api, PJRT_Event* event) noexcept;

/// The origin of a buffer: "program 'step'", or "" for one that was uploaded.
struct Origin {
  const PJRT_Api* api;
  std::shared_ptr<const Client::Impl> client;
  std::string subject;

  /// Throws what went wrong in making or moving it.
  [[noreturn]] void fail(PJRT_Error* error) const;
};

PJRT_Buffer_Type type_of(at::ScalarType dtype);
at::ScalarType dtype_of(PJRT_Buffer_Type type);

/// Throws "xla.tensor" unless it is dense and on the CPU; `role` names it.
void check_host_tensor(const at::Tensor& tensor, const char* role);

/// CompileOptionsProto.
std::string encoded(const CompileOptions& options);
/// A module's text as the compiler takes it; valid as long as `text`.
PJRT_Program program_of(std::string_view text);
/// The HLO text of a HloModuleProto, or of a HloModuleProtoWithConfig, without attributes.
std::string hlo_text(std::string_view module, bool with_config);

/// Options of a client by name, as the interface takes them; valid as long as `options`.
using PluginOptionMap = decltype(ClientOptions::plugin_options);
std::vector<PJRT_NamedValue> named_values(const PluginOptionMap& options);

/// The key-value callbacks of a client, over a store. Outlives the client.
class KeyValues {
 public:
  explicit KeyValues(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void give_to(PJRT_Client_Create_Args& args);

 private:
  template <class Args>
  static PJRT_Error* look_up(Args* args, std::chrono::milliseconds timeout);
  static PJRT_Error* get(PJRT_KeyValueGetCallback_Args* args);
  static PJRT_Error* try_get(PJRT_KeyValueTryGetCallback_Args* args);
  static PJRT_Error* put(PJRT_KeyValuePutCallback_Args* args);

  c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace detail

struct Client::Impl {
  Plugin plugin;
  const PJRT_Api* api;
  std::unique_ptr<detail::KeyValues> store;
  PJRT_Client* client = nullptr;
  std::string platform;
  std::string platform_version;
  bool on_cpu = false;
  std::vector<Device> devices;
  std::vector<Device> addressable;
  std::vector<PJRT_Device*> handles;  // handles of the addressable devices

  explicit Impl(const Plugin& plugin) : plugin(plugin), api(plugin.impl()->api) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::string subject() const { return "plugin " + plugin.path(); }
  void check(PJRT_Error* error) const {
    detail::check(api, error, detail::Doing::kClient, error == nullptr ? "" : subject());
  }
};

struct Program::Impl {
  const PJRT_Api* api;
  std::shared_ptr<const void> keeps;      // the client or topology that it was compiled for
  PJRT_Executable* executable = nullptr;  // owned, as is `loaded`
  std::string name;
  int64_t num_outputs = 0;
  int64_t num_replicas = 1;
  int64_t num_partitions = 1;

  // Members of an Executable:
  PJRT_LoadedExecutable* loaded = nullptr;
  std::vector<int64_t> devices;
  std::shared_ptr<const detail::Origin> origin;

  Impl(const PJRT_Api* api, std::shared_ptr<const void> keeps)
      : api(api), keeps(std::move(keeps)) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  /// Fills in what `executable` says of itself.
  void read();
  /// "program 'step'", for errors.
  std::string subject() const { return "program '" + name + "'"; }
};

}  // namespace levin::xla::pjrt
