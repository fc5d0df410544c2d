// A plugin of CPU devices that lie in several processes, for tests: the CPU's own joins none. In
// each process the CPU's plugin has the devices of all of them, of which the process shows its own.
// When a program of several processes is executed they tell each other their arguments through the
// key-value store, each runs the program on all devices, and keeps the outputs of its own.
//
// LEVIN_JOINED_PJRT_PLUGIN is the CPU's plugin, LEVIN_JOINED_DEVICES how many devices each process
// has; "node_id" and "num_nodes" are the rank and the number of processes, as a GPU's plugin has
// it.
#include <dlfcn.h>
#include <pjrt_c_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

const PJRT_Api* real = nullptr;
PJRT_Api joined;

struct World {
  int64_t rank = 0, size = 1, devices_each = 1;
  int64_t num_exchanges = 0;
  PJRT_Client* client = nullptr;
  PJRT_Client_Create_Args store = {};  ///< its callbacks
  std::vector<PJRT_Device*> devices;   ///< of all processes, by id
  std::map<PJRT_LoadedExecutable*, std::vector<PJRT_Device*>> own_devices;
};
World world;

template <class Args>
Args arguments() {
  Args args = {};
  args.struct_size = sizeof(Args);
  return args;
}

// Errors: the CPU's plugin makes its own and knows no others.
struct OwnError {
  PJRT_Error_Code code;
  std::string text;
};
std::set<const void*> own_errors;

PJRT_Error* error_of(PJRT_Error_Code code, const char* text, size_t size) {
  auto* error = new OwnError{code, std::string(text, size)};
  own_errors.insert(error);
  return reinterpret_cast<PJRT_Error*>(error);
}
void destroy_error(PJRT_Error_Destroy_Args* args) {
  if (own_errors.erase(args->error) == 0) return real->PJRT_Error_Destroy(args);
  delete reinterpret_cast<OwnError*>(args->error);
}
void message(PJRT_Error_Message_Args* args) {
  if (!own_errors.contains(args->error)) return real->PJRT_Error_Message(args);
  const std::string& text = reinterpret_cast<const OwnError*>(args->error)->text;
  args->message = text.data();
  args->message_size = text.size();
}
PJRT_Error* code(PJRT_Error_GetCode_Args* args) {
  if (!own_errors.contains(args->error)) return real->PJRT_Error_GetCode(args);
  args->code = reinterpret_cast<const OwnError*>(args->error)->code;
  return nullptr;
}

// Devices.
int64_t id_of(PJRT_DeviceDescription* description) {
  auto args = arguments<PJRT_DeviceDescription_Id_Args>();
  args.device_description = description;
  real->PJRT_DeviceDescription_Id(&args);
  return args.id;
}
int64_t id_of(PJRT_Device* device) {
  auto args = arguments<PJRT_Device_GetDescription_Args>();
  args.device = device;
  real->PJRT_Device_GetDescription(&args);
  return id_of(args.device_description);
}
int64_t rank_of(PJRT_Device* device) { return id_of(device) / world.devices_each; }

PJRT_Error* create(PJRT_Client_Create_Args* args) {
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    const std::string_view name(option.name, option.name_size);
    if (name == "node_id") world.rank = option.int64_value;
    if (name == "num_nodes") world.size = option.int64_value;
  }
  const char* each = std::getenv("LEVIN_JOINED_DEVICES");
  world.devices_each = each == nullptr ? 1 : std::strtoll(each, nullptr, 10);
  PJRT_NamedValue count = {};
  count.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  count.name = "cpu_device_count";
  count.name_size = std::strlen(count.name);
  count.type = PJRT_NamedValue_kInt64;
  count.int64_value = world.size * world.devices_each;
  count.value_size = 1;
  PJRT_Client_Create_Args inner = *args;
  inner.create_options = &count;
  inner.num_options = 1;
  if (PJRT_Error* error = real->PJRT_Client_Create(&inner)) return error;
  args->client = world.client = inner.client;
  world.store = *args;
  auto all = arguments<PJRT_Client_Devices_Args>();
  all.client = inner.client;
  if (PJRT_Error* error = real->PJRT_Client_Devices(&all)) return error;
  world.devices.assign(all.devices, all.devices + all.num_devices);
  std::ranges::sort(world.devices, {}, [](PJRT_Device* device) { return id_of(device); });
  return nullptr;
}
PJRT_Error* own_devices(PJRT_Client_AddressableDevices_Args* args) {
  args->addressable_devices = world.devices.data() + world.rank * world.devices_each;
  args->num_addressable_devices = static_cast<size_t>(world.devices_each);
  return nullptr;
}
PJRT_Error* process_index(PJRT_DeviceDescription_ProcessIndex_Args* args) {
  args->process_index = static_cast<int>(id_of(args->device_description) / world.devices_each);
  return nullptr;
}
PJRT_Error* is_addressable(PJRT_Device_IsAddressable_Args* args) {
  args->is_addressable = rank_of(args->device) == world.rank;
  return nullptr;
}

std::vector<PJRT_Device*> all_devices_of(PJRT_LoadedExecutable* executable) {
  auto args = arguments<PJRT_LoadedExecutable_AddressableDevices_Args>();
  args.executable = executable;
  real->PJRT_LoadedExecutable_AddressableDevices(&args);
  return {args.addressable_devices, args.addressable_devices + args.num_addressable_devices};
}
PJRT_Error* own_devices_of(PJRT_LoadedExecutable_AddressableDevices_Args* args) {
  std::vector<PJRT_Device*>& own = world.own_devices[args->executable];
  own = all_devices_of(args->executable);
  std::erase_if(own, [](PJRT_Device* device) { return rank_of(device) != world.rank; });
  args->addressable_devices = own.data();
  args->num_addressable_devices = own.size();
  return nullptr;
}
PJRT_Error* destroy_executable(PJRT_LoadedExecutable_Destroy_Args* args) {
  world.own_devices.erase(args->executable);
  return real->PJRT_LoadedExecutable_Destroy(args);
}

// Arguments on their way: the type, the number of dimensions, these, then the elements row by row.
PJRT_Error* await(PJRT_Event* event) {
  auto args = arguments<PJRT_Event_Await_Args>();
  args.event = event;
  PJRT_Error* error = real->PJRT_Event_Await(&args);
  auto destroy = arguments<PJRT_Event_Destroy_Args>();
  destroy.event = event;
  real->PJRT_Event_Destroy(&destroy);
  return error;
}

void append(std::string& bytes, int64_t number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}
int64_t next(const char*& bytes) {
  int64_t number = 0;
  std::memcpy(&number, std::exchange(bytes, bytes + sizeof number), sizeof number);
  return number;
}

PJRT_Error* append(std::string& bytes, PJRT_Buffer* buffer) {
  auto type = arguments<PJRT_Buffer_ElementType_Args>();
  type.buffer = buffer;
  if (PJRT_Error* error = real->PJRT_Buffer_ElementType(&type)) return error;
  auto dims = arguments<PJRT_Buffer_Dimensions_Args>();
  dims.buffer = buffer;
  if (PJRT_Error* error = real->PJRT_Buffer_Dimensions(&dims)) return error;
  append(bytes, static_cast<int64_t>(type.type));
  append(bytes, static_cast<int64_t>(dims.num_dims));
  for (size_t i = 0; i < dims.num_dims; ++i) append(bytes, dims.dims[i]);
  std::vector<int64_t> minor_to_major;
  for (size_t i = dims.num_dims; i > 0; --i) minor_to_major.push_back(static_cast<int64_t>(i) - 1);
  auto layout = arguments<PJRT_Buffer_MemoryLayout>();
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto copy = arguments<PJRT_Buffer_ToHostBuffer_Args>();
  copy.src = buffer;
  copy.host_layout = &layout;
  if (PJRT_Error* error = real->PJRT_Buffer_ToHostBuffer(&copy)) return error;  // tells the size
  append(bytes, static_cast<int64_t>(copy.dst_size));
  bytes.resize(bytes.size() + copy.dst_size);
  copy.dst = bytes.data() + bytes.size() - copy.dst_size;
  if (PJRT_Error* error = real->PJRT_Buffer_ToHostBuffer(&copy)) return error;
  return await(copy.event);
}

PJRT_Error* take(const char*& bytes, PJRT_Device* device, PJRT_Buffer*& buffer) {
  auto args = arguments<PJRT_Client_BufferFromHostBuffer_Args>();
  args.client = world.client;
  args.type = static_cast<PJRT_Buffer_Type>(next(bytes));
  std::vector<int64_t> dims(static_cast<size_t>(next(bytes)));
  for (int64_t& size : dims) size = next(bytes);
  const int64_t size = next(bytes);
  args.data = std::exchange(bytes, bytes + size);
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  args.device = device;
  if (PJRT_Error* error = real->PJRT_Client_BufferFromHostBuffer(&args)) return error;
  buffer = args.buffer;
  return await(args.done_with_host_buffer);
}

void destroy(PJRT_Buffer* buffer) {
  auto args = arguments<PJRT_Buffer_Destroy_Args>();
  args.buffer = buffer;
  real->PJRT_Buffer_Destroy(&args);
}

// The store.
PJRT_Error* put(const std::string& key, const std::string& value) {
  PJRT_CallbackError make = &error_of;
  auto args = arguments<PJRT_KeyValuePutCallback_Args>();
  args.key = key.data();
  args.key_size = key.size();
  args.value = value.data();
  args.value_size = value.size();
  args.callback_error = &make;
  args.user_arg = world.store.kv_put_user_arg;
  return world.store.kv_put_callback(&args);
}
PJRT_Error* get(const std::string& key, std::string& value) {
  PJRT_CallbackError make = &error_of;
  auto args = arguments<PJRT_KeyValueGetCallback_Args>();
  args.key = key.data();
  args.key_size = key.size();
  args.timeout_in_ms = 60'000;
  args.callback_error = &make;
  args.user_arg = world.store.kv_get_user_arg;
  if (PJRT_Error* error = world.store.kv_get_callback(&args)) return error;
  value.assign(args.value, args.value_size);
  args.value_deleter_callback(args.value);
  return nullptr;
}
std::string key_of(int64_t rank) {
  return "arguments/" + std::to_string(world.num_exchanges) + "/" + std::to_string(rank);
}

/// One run of a program on the devices of all processes, from a call for those of this one.
struct Run {
  PJRT_LoadedExecutable_Execute_Args& call;
  std::vector<PJRT_Device*> devices;
  std::vector<std::vector<PJRT_Buffer*>> in, out;
  std::vector<PJRT_Buffer*> made;

  bool is_own(size_t device) const { return rank_of(devices[device]) == world.rank; }

  PJRT_Error* tell_own() {
    std::string bytes;
    for (size_t i = 0; i < call.num_devices * call.num_args; ++i) {
      PJRT_Buffer* argument = call.argument_lists[i / call.num_args][i % call.num_args];
      if (PJRT_Error* error = append(bytes, argument)) return error;
    }
    return put(key_of(world.rank), bytes);
  }
  PJRT_Error* take_others() {
    std::map<int64_t, std::string> told;
    std::map<int64_t, const char*> places;
    size_t own = 0;
    for (size_t device = 0; device < devices.size(); ++device) {
      in.emplace_back(call.num_args);
      const int64_t rank = rank_of(devices[device]);
      if (rank == world.rank) {
        std::copy_n(call.argument_lists[own++], call.num_args, in.back().begin());
        continue;
      }
      if (!told.contains(rank)) {
        if (PJRT_Error* error = get(key_of(rank), told[rank])) return error;
        places[rank] = told[rank].data();
      }
      for (PJRT_Buffer*& argument : in.back()) {
        if (PJRT_Error* error = take(places[rank], devices[device], argument)) return error;
        made.push_back(argument);
      }
    }
    return nullptr;
  }
  PJRT_Error* execute(size_t num_outputs) {
    std::vector<PJRT_Buffer* const*> in_lists;
    std::vector<PJRT_Buffer**> out_lists;
    out.assign(devices.size(), std::vector<PJRT_Buffer*>(num_outputs));
    for (size_t device = 0; device < devices.size(); ++device) {
      in_lists.push_back(in[device].data());
      out_lists.push_back(out[device].data());
    }
    PJRT_LoadedExecutable_Execute_Args whole = call;
    whole.argument_lists = in_lists.data();
    whole.output_lists = out_lists.data();
    whole.num_devices = devices.size();
    return real->PJRT_LoadedExecutable_Execute(&whole);
  }
  void give_outputs(size_t num_outputs) {
    size_t own = 0;
    for (size_t device = 0; device < devices.size(); ++device) {
      if (is_own(device)) {
        std::copy_n(out[device].begin(), num_outputs, call.output_lists[own++]);
      } else {
        for (PJRT_Buffer* output : out[device]) destroy(output);
      }
    }
  }
};

size_t num_outputs_of(PJRT_LoadedExecutable* loaded) {
  auto get_executable = arguments<PJRT_LoadedExecutable_GetExecutable_Args>();
  get_executable.loaded_executable = loaded;
  real->PJRT_LoadedExecutable_GetExecutable(&get_executable);
  auto args = arguments<PJRT_Executable_NumOutputs_Args>();
  args.executable = get_executable.executable;
  real->PJRT_Executable_NumOutputs(&args);
  auto destroy_it = arguments<PJRT_Executable_Destroy_Args>();
  destroy_it.executable = get_executable.executable;
  real->PJRT_Executable_Destroy(&destroy_it);
  return args.num_outputs;
}

PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  Run run{*args, all_devices_of(args->executable), {}, {}, {}};
  if (run.devices.size() == args->num_devices) return real->PJRT_LoadedExecutable_Execute(args);
  const size_t num_outputs = num_outputs_of(args->executable);
  PJRT_Error* error = run.tell_own();
  if (error == nullptr) error = run.take_others();
  ++world.num_exchanges;
  if (error == nullptr) error = run.execute(num_outputs);
  if (error == nullptr) run.give_outputs(num_outputs);
  for (PJRT_Buffer* buffer : run.made) destroy(buffer);
  return error;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  if (real != nullptr) return &joined;
  void* plugin = ::dlopen(std::getenv("LEVIN_JOINED_PJRT_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  if (plugin == nullptr) return nullptr;
  real = reinterpret_cast<const PJRT_Api* (*)()>(::dlsym(plugin, "GetPjrtApi"))();
  joined = *real;
  joined.PJRT_Error_Destroy = destroy_error;
  joined.PJRT_Error_Message = message;
  joined.PJRT_Error_GetCode = code;
  joined.PJRT_Client_Create = create;
  joined.PJRT_Client_AddressableDevices = own_devices;
  joined.PJRT_DeviceDescription_ProcessIndex = process_index;
  joined.PJRT_Device_IsAddressable = is_addressable;
  joined.PJRT_LoadedExecutable_AddressableDevices = own_devices_of;
  joined.PJRT_LoadedExecutable_Destroy = destroy_executable;
  joined.PJRT_LoadedExecutable_Execute = execute;
  return &joined;
}
