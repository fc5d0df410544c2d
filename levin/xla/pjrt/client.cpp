#include "levin/xla/pjrt/client.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>

#include "levin/base/check.h"
#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt {
namespace {

/// Gives a client of the CPU's plugin that is made while this lives threads for so many devices. By
/// default it has one for each core, or as NPROC says. A device that waits in a collective for
/// others holds a thread; if such devices hold all threads, the rest never comes and XLA ends the
/// process after 40 s. A value that the user has set stays.
class EnoughWorkerThreads {
 public:
  explicit EnoughWorkerThreads(int64_t num_devices)
      : is_set_(num_devices > 1 && std::getenv(kVariable) == nullptr) {
    if (!is_set_) return;
    const int64_t count = std::thread::hardware_concurrency() + 2 * num_devices;
    ::setenv(kVariable, std::to_string(count).c_str(), 1);
  }
  ~EnoughWorkerThreads() {
    if (is_set_) ::unsetenv(kVariable);
  }
  EnoughWorkerThreads(const EnoughWorkerThreads&) = delete;
  EnoughWorkerThreads& operator=(const EnoughWorkerThreads&) = delete;

 private:
  static constexpr const char* kVariable = "NPROC";
  bool is_set_;
};

/// While it lives, threads that this one makes do not take its core away from it, or from others,
/// when they wake: a program that is started runs on a core that is free, or here once this thread
/// waits. Where host and program share a core, each step else pays for two changes between them.
class PatientThreads {
 public:
#ifdef SCHED_BATCH
  explicit PatientThreads(bool is_wanted) {
    sched_param parameters = {};
    is_set_ = is_wanted && ::pthread_getschedparam(::pthread_self(), &policy_, &parameters) == 0 &&
              policy_ == SCHED_OTHER && set(SCHED_BATCH);
  }
  ~PatientThreads() {
    if (is_set_) set(policy_);
  }

 private:
  static bool set(int policy) {
    const sched_param parameters = {};
    return ::pthread_setschedparam(::pthread_self(), policy, &parameters) == 0;
  }
  int policy_ = 0;
  bool is_set_ = false;

 public:
#else
  explicit PatientThreads(bool) {}
#endif
  PatientThreads(const PatientThreads&) = delete;
  PatientThreads& operator=(const PatientThreads&) = delete;
};

using detail::Doing;

// A plugin refuses options that it does not know, so each gets its own names.
detail::PluginOptionMap words_for(const Plugin& plugin, const ClientOptions& options) {
  LEVIN_CHECK(options.world_size >= 1 && options.rank >= 0 && options.rank < options.world_size,
              "xla.option", "got rank {} of world_size {}, wanted 0 <= rank < world_size",
              options.rank, options.world_size);
  LEVIN_CHECK(options.world_size == 1 || options.store, "xla.option",
              "got world_size {} and no store, wanted the store where the processes meet",
              options.world_size);
  LEVIN_CHECK(options.num_devices >= 0, "xla.option", "got num_devices {}, wanted 0 or more",
              options.num_devices);
  LEVIN_CHECK(options.num_devices == 0 || plugin.kind() == "cpu" || plugin.kind().empty(),
              "xla.option",
              "got num_devices {} for a {} plugin, which always has all its devices; set "
              "visible_devices, or neither",
              options.num_devices, plugin.kind());
  detail::PluginOptionMap words = options.plugin_options;
  if (options.num_devices > 0) words.emplace("cpu_device_count", options.num_devices);
  if (!options.visible_devices.empty()) words.emplace("visible_devices", options.visible_devices);
  if (options.world_size > 1 && plugin.kind() == "cuda") {
    words.emplace("node_id", options.rank);
    words.emplace("num_nodes", options.world_size);
  }
  return words;
}

void read_platform(Client::Impl& impl) {
  LEVIN_PJRT_ARGS(PJRT_Client_PlatformName, name);
  name.client = impl.client;
  impl.check(impl.api->PJRT_Client_PlatformName(&name));
  impl.platform.assign(name.platform_name, name.platform_name_size);
  impl.on_cpu = impl.platform == "cpu";
  LEVIN_PJRT_ARGS(PJRT_Client_PlatformVersion, version);
  version.client = impl.client;
  impl.check(impl.api->PJRT_Client_PlatformVersion(&version));
  impl.platform_version.assign(version.platform_version, version.platform_version_size);
}

Device description_of(const Client::Impl& impl, PJRT_Device* handle) {
  LEVIN_PJRT_ARGS(PJRT_Device_GetDescription, get);
  get.device = handle;
  impl.check(impl.api->PJRT_Device_GetDescription(&get));
  LEVIN_PJRT_ARGS(PJRT_DeviceDescription_Id, id);
  id.device_description = get.device_description;
  impl.check(impl.api->PJRT_DeviceDescription_Id(&id));
  LEVIN_PJRT_ARGS(PJRT_DeviceDescription_ProcessIndex, process);
  process.device_description = get.device_description;
  impl.check(impl.api->PJRT_DeviceDescription_ProcessIndex(&process));
  LEVIN_PJRT_ARGS(PJRT_DeviceDescription_Kind, kind);
  kind.device_description = get.device_description;
  impl.check(impl.api->PJRT_DeviceDescription_Kind(&kind));
  LEVIN_PJRT_ARGS(PJRT_Device_IsAddressable, addressable);
  addressable.device = handle;
  impl.check(impl.api->PJRT_Device_IsAddressable(&addressable));
  return {.id = id.id,
          .process = process.process_index,
          .kind = std::string(kind.device_kind, kind.device_kind_size),
          .is_addressable = addressable.is_addressable};
}

void read_devices(Client::Impl& impl) {
  LEVIN_PJRT_ARGS(PJRT_Client_Devices, all);
  all.client = impl.client;
  impl.check(impl.api->PJRT_Client_Devices(&all));
  for (size_t i = 0; i < all.num_devices; ++i)
    impl.devices.push_back(description_of(impl, all.devices[i]));
  LEVIN_PJRT_ARGS(PJRT_Client_AddressableDevices, own);
  own.client = impl.client;
  impl.check(impl.api->PJRT_Client_AddressableDevices(&own));
  for (size_t i = 0; i < own.num_addressable_devices; ++i) {
    impl.handles.push_back(own.addressable_devices[i]);
    impl.addressable.push_back(description_of(impl, own.addressable_devices[i]));
  }
}

// A plugin that knows nothing of other processes would run each program on this one's devices
// alone.
void check_processes(const Client::Impl& impl, const ClientOptions& options) {
  std::set<int64_t> processes;
  for (const Device& device : impl.devices) processes.insert(device.process);
  const auto count = static_cast<int64_t>(processes.size());
  LEVIN_CHECK(options.world_size == 1 || count == options.world_size, "xla.client",
              "plugin {} shows the devices of {} process{}, wanted those of {}; the {} platform "
              "cannot connect processes, or they are not configured for it",
              impl.plugin.path(), count, count == 1 ? "" : "es", options.world_size, impl.platform);
}

}  // namespace

namespace detail {

std::vector<PJRT_NamedValue> named_values(const PluginOptionMap& options) {
  std::vector<PJRT_NamedValue> values;
  for (const auto& [name, option] : options) {
    PJRT_NamedValue value = {};
    value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
    value.name = name.c_str();
    value.name_size = name.size();
    value.value_size = 1;
    if (const auto* text = std::get_if<std::string>(&option)) {
      value.type = PJRT_NamedValue_kString;
      value.string_value = text->c_str();
      value.value_size = text->size();
    } else if (const auto* number = std::get_if<int64_t>(&option)) {
      value.type = PJRT_NamedValue_kInt64;
      value.int64_value = *number;
    } else if (const auto* list = std::get_if<std::vector<int64_t>>(&option)) {
      value.type = PJRT_NamedValue_kInt64List;
      value.int64_array_value = list->data();
      value.value_size = list->size();
    } else if (const auto* real = std::get_if<float>(&option)) {
      value.type = PJRT_NamedValue_kFloat;
      value.float_value = *real;
    } else {
      value.type = PJRT_NamedValue_kBool;
      value.bool_value = std::get<bool>(option);
    }
    values.push_back(value);
  }
  return values;
}

}  // namespace detail

Client::Impl::~Impl() {
  if (client == nullptr) return;
  LEVIN_PJRT_ARGS(PJRT_Client_Destroy, args);
  args.client = client;
  PJRT_Error* error = api->PJRT_Client_Destroy(&args);
  if (error != nullptr) detail::free_error(api, error);
}

Client::Client(const Plugin& plugin, const ClientOptions& options) {
  const auto words = words_for(plugin, options);
  const auto values = detail::named_values(words);
  auto impl = std::make_shared<Impl>(plugin);
  LEVIN_PJRT_ARGS(PJRT_Client_Create, args);
  args.create_options = values.data();
  args.num_options = values.size();
  if (options.store) {
    impl->store = std::make_unique<detail::KeyValues>(options.store);
    impl->store->give_to(args);
  }
  {
    const EnoughWorkerThreads threads(options.num_devices);
    const PatientThreads patient(plugin.kind() == "cpu");
    impl->check(impl->api->PJRT_Client_Create(&args));
  }
  impl->client = args.client;
  read_platform(*impl);
  read_devices(*impl);
  check_processes(*impl, options);
  impl_ = impl;
  uploads_ = std::make_shared<const detail::Origin>(impl->api, impl, "");
}

const Plugin& Client::plugin() const { return impl_->plugin; }
const std::string& Client::platform() const { return impl_->platform; }
const std::string& Client::platform_version() const { return impl_->platform_version; }
const std::vector<Device>& Client::devices() const { return impl_->devices; }
const std::vector<Device>& Client::addressable_devices() const { return impl_->addressable; }

PJRT_Device* Client::handle_of(int64_t device) const {
  const auto count = static_cast<int64_t>(impl_->handles.size());
  LEVIN_CHECK(device >= 0 && device < count, "xla.device",
              "got device {}, wanted 0 to {}: this process has {} {} device{}", device, count - 1,
              count, impl_->platform, count == 1 ? "" : "s");
  return impl_->handles[static_cast<size_t>(device)];
}

std::optional<DeviceMemory> Client::memory(int64_t device) const {
  LEVIN_PJRT_ARGS(PJRT_Device_MemoryStats, args);
  args.device = handle_of(device);
  if (!detail::is_implemented(impl_->api, impl_->api->PJRT_Device_MemoryStats(&args),
                              Doing::kClient, impl_->subject())) {
    return std::nullopt;
  }
  DeviceMemory memory{.bytes_in_use = args.bytes_in_use};
  if (args.peak_bytes_in_use_is_set) memory.peak_bytes_in_use = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) memory.bytes_limit = args.bytes_limit;
  return memory;
}

}  // namespace levin::xla::pjrt
