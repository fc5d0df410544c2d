// A plugin of one device for tests of what real ones seldom do. LEVIN_FAKE_PJRT_DOES says what:
// "major", "minor" and "short" (an interface that levin cannot call), "nothing" (no interface),
// "no start" (it does not initialize), "compiles for ever" (and writes the file LEVIN_FAKE_PJRT_SIGN), else a client whose programs fail while they run, and that
// trades a word with its peer through the key-value store.
#include <pjrt_c_api.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <thread>

struct PJRT_Error {
  PJRT_Error_Code code;
  std::string text;
};
struct PJRT_Event {
  PJRT_Error_Code code;
};
struct PJRT_DeviceDescription {
  int process;
};
struct PJRT_Device {
  PJRT_DeviceDescription description;
};
struct PJRT_Client {
  PJRT_Device devices[2] = {{{0}}, {{1}}};
  PJRT_Device* all[2] = {&devices[0], &devices[1]};
  int rank = 0;
  int size = 1;
  std::string word = "alone";
};
struct PJRT_Executable {};
struct PJRT_LoadedExecutable {
  PJRT_Client* client;
};
struct PJRT_Buffer {
  PJRT_Error_Code code;
};

namespace {

std::string does() {
  const char* mode = std::getenv("LEVIN_FAKE_PJRT_DOES");
  return mode == nullptr ? "" : mode;
}

PJRT_Error* error_of(PJRT_Error_Code code, std::string_view text) {
  return new PJRT_Error{code, std::string(text)};
}
PJRT_Error* error_of_callback(PJRT_Error_Code code, const char* text, size_t size) {
  return error_of(code, {text, size});
}

void destroy_error(PJRT_Error_Destroy_Args* args) { delete args->error; }
void message(PJRT_Error_Message_Args* args) {
  args->message = args->error->text.data();
  args->message_size = args->error->text.size();
}
PJRT_Error* code(PJRT_Error_GetCode_Args* args) {
  args->code = args->error->code;
  return nullptr;
}

PJRT_Error* initialize(PJRT_Plugin_Initialize_Args*) {
  return does() == "no start" ? error_of(PJRT_Error_Code_INTERNAL, "the fake has no battery")
                              : nullptr;
}
PJRT_Error* unimplemented(PJRT_Plugin_Attributes_Args*) {
  return error_of(PJRT_Error_Code_UNIMPLEMENTED, "no attributes");
}

// Events are ready when they are made; their error is what happened.
PJRT_Error* destroy_event(PJRT_Event_Destroy_Args* args) {
  delete args->event;
  return nullptr;
}
PJRT_Error* is_ready(PJRT_Event_IsReady_Args* args) {
  args->is_ready = true;
  return nullptr;
}
PJRT_Error* await(PJRT_Event_Await_Args* args) {
  const PJRT_Error_Code what = args->event->code;
  return what == PJRT_Error_Code_OK ? nullptr : error_of(what, "the fake broke at step 7");
}

PJRT_Error* put(PJRT_Client_Create_Args* args, const std::string& key, const std::string& value) {
  PJRT_CallbackError make = &error_of_callback;
  PJRT_KeyValuePutCallback_Args call = {};
  call.struct_size = PJRT_KeyValuePutCallback_Args_STRUCT_SIZE;
  call.key = key.data();
  call.key_size = key.size();
  call.value = value.data();
  call.value_size = value.size();
  call.callback_error = &make;
  call.user_arg = args->kv_put_user_arg;
  return args->kv_put_callback(&call);
}
PJRT_Error* get(PJRT_Client_Create_Args* args, const std::string& key, std::string& value) {
  PJRT_CallbackError make = &error_of_callback;
  PJRT_KeyValueGetCallback_Args call = {};
  call.struct_size = PJRT_KeyValueGetCallback_Args_STRUCT_SIZE;
  call.key = key.data();
  call.key_size = key.size();
  call.timeout_in_ms = does() == "impatient" ? 50 : 30000;
  call.callback_error = &make;
  call.user_arg = args->kv_get_user_arg;
  PJRT_Error* error = args->kv_get_callback(&call);
  if (error != nullptr) return error;
  value.assign(call.value, call.value_size);
  call.value_deleter_callback(call.value);
  return nullptr;
}
PJRT_Error* try_get(PJRT_Client_Create_Args* args, const std::string& key) {
  PJRT_CallbackError make = &error_of_callback;
  PJRT_KeyValueTryGetCallback_Args call = {};
  call.struct_size = PJRT_KeyValueTryGetCallback_Args_STRUCT_SIZE;
  call.key = key.data();
  call.key_size = key.size();
  call.callback_error = &make;
  call.user_arg = args->kv_try_get_user_arg;
  return args->kv_try_get_callback(&call);
}

PJRT_Error* trade_words(PJRT_Client_Create_Args* args, PJRT_Client& client) {
  PJRT_Error* missing = try_get(args, "never put");
  if (missing == nullptr || missing->code != PJRT_Error_Code_NOT_FOUND) {
    return error_of(PJRT_Error_Code_INTERNAL, "try_get of what is not there did not say so");
  }
  delete missing;
  const std::string own(std::string("word\0of ", 8) + std::to_string(client.rank));
  PJRT_Error* error = put(args, "word/" + std::to_string(client.rank), own);
  if (error != nullptr) return error;
  return get(args, "word/" + std::to_string(1 - client.rank), client.word);
}

PJRT_Error* create(PJRT_Client_Create_Args* args) {
  auto* client = new PJRT_Client;
  for (size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    const std::string_view name(option.name, option.name_size);
    if (name == "node_id") client->rank = static_cast<int>(option.int64_value);
    if (name == "num_nodes") client->size = static_cast<int>(option.int64_value);
    if (name == "word") client->word.assign(option.string_value, option.value_size);
    if (name == "refuse" && option.bool_value)
      return error_of(PJRT_Error_Code_FAILED_PRECONDITION, "refused");
  }
  if (does() == "knows no others") client->size = 1;
  args->client = client;
  return client->size > 1 ? trade_words(args, *client) : nullptr;
}
PJRT_Error* destroy_client(PJRT_Client_Destroy_Args* args) {
  delete args->client;
  return nullptr;
}
PJRT_Error* platform_name(PJRT_Client_PlatformName_Args* args) {
  args->platform_name = "fake";
  args->platform_name_size = 4;
  return nullptr;
}
PJRT_Error* platform_version(PJRT_Client_PlatformVersion_Args* args) {
  args->platform_version = args->client->word.data();
  args->platform_version_size = args->client->word.size();
  return nullptr;
}
PJRT_Error* devices(PJRT_Client_Devices_Args* args) {
  args->devices = args->client->all;
  args->num_devices = static_cast<size_t>(args->client->size);
  return nullptr;
}
PJRT_Error* addressable(PJRT_Client_AddressableDevices_Args* args) {
  args->addressable_devices = args->client->all + args->client->rank;
  args->num_addressable_devices = 1;
  return nullptr;
}

PJRT_Error* description(PJRT_Device_GetDescription_Args* args) {
  args->device_description = &args->device->description;
  return nullptr;
}
PJRT_Error* id(PJRT_DeviceDescription_Id_Args* args) {
  args->id = 10 + args->device_description->process;
  return nullptr;
}
PJRT_Error* process(PJRT_DeviceDescription_ProcessIndex_Args* args) {
  args->process_index = args->device_description->process;
  return nullptr;
}
PJRT_Error* kind(PJRT_DeviceDescription_Kind_Args* args) {
  args->device_kind = "toy";
  args->device_kind_size = 3;
  return nullptr;
}
PJRT_Error* is_addressable(PJRT_Device_IsAddressable_Args* args) {
  args->is_addressable = true;
  return nullptr;
}
PJRT_Error* memory_stats(PJRT_Device_MemoryStats_Args* args) {
  args->bytes_in_use = 5;
  args->bytes_limit = 80;
  args->bytes_limit_is_set = true;
  return nullptr;
}

PJRT_Error* upload(PJRT_Client_BufferFromHostBuffer_Args* args) {
  if (does() == "no room") return error_of(PJRT_Error_Code_RESOURCE_EXHAUSTED, "the fake is full");
  args->done_with_host_buffer = new PJRT_Event{PJRT_Error_Code_OK};
  args->buffer =
      new PJRT_Buffer{does() == "lost upload" ? PJRT_Error_Code_DATA_LOSS : PJRT_Error_Code_OK};
  return nullptr;
}
PJRT_Error* destroy_buffer(PJRT_Buffer_Destroy_Args* args) {
  delete args->buffer;
  return nullptr;
}
PJRT_Error* is_deleted(PJRT_Buffer_IsDeleted_Args* args) {
  args->is_deleted = false;
  return nullptr;
}
PJRT_Error* ready_event(PJRT_Buffer_ReadyEvent_Args* args) {
  args->event = new PJRT_Event{args->buffer->code};
  return nullptr;
}
PJRT_Error* dimensions(PJRT_Buffer_Dimensions_Args* args) {
  static const int64_t sizes[1] = {4};
  args->dims = sizes;
  args->num_dims = 1;
  return nullptr;
}
PJRT_Error* element_type(PJRT_Buffer_ElementType_Args* args) {
  args->type = does() == "odd type" ? PJRT_Buffer_Type_S4 : PJRT_Buffer_Type_F32;
  return nullptr;
}
PJRT_Error* download(PJRT_Buffer_ToHostBuffer_Args* args) {
  args->event = new PJRT_Event{args->src->code};
  return nullptr;
}

PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
  if (does() == "compiles for ever") {
    std::ofstream(std::getenv("LEVIN_FAKE_PJRT_SIGN")) << "compiling";
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  }
  args->executable = new PJRT_LoadedExecutable{args->client};
  return nullptr;
}
PJRT_Error* get_executable(PJRT_LoadedExecutable_GetExecutable_Args* args) {
  args->executable = new PJRT_Executable;
  return nullptr;
}
PJRT_Error* destroy_executable(PJRT_Executable_Destroy_Args* args) {
  delete args->executable;
  return nullptr;
}
PJRT_Error* destroy_loaded(PJRT_LoadedExecutable_Destroy_Args* args) {
  delete args->executable;
  return nullptr;
}
PJRT_Error* loaded_devices(PJRT_LoadedExecutable_AddressableDevices_Args* args) {
  args->addressable_devices = args->executable->client->all + args->executable->client->rank;
  args->num_addressable_devices = 1;
  return nullptr;
}
PJRT_Error* name(PJRT_Executable_Name_Args* args) {
  args->executable_name = "step";
  args->executable_name_size = 4;
  return nullptr;
}
template <class Args, size_t Args::* member>
PJRT_Error* one(Args* args) {
  args->*member = 1;
  return nullptr;
}
PJRT_Error* serialize(PJRT_Executable_Serialize_Args*) {
  return error_of(PJRT_Error_Code_UNIMPLEMENTED, "the fake cannot write");
}
PJRT_Error* optimized(PJRT_Executable_OptimizedProgram_Args* args) {
  static char bytes[3] = {'\xff', '\xff', '\xff'};
  args->program->format = does() == "own format" ? "fake" : "hlo\0";
  args->program->format_size = does() == "own format" ? 4 : 3;
  args->program->code_size = 3;
  if (args->program->code != nullptr) std::copy(bytes, bytes + 3, args->program->code);
  return nullptr;
}
template <class Args>
PJRT_Error* has_none(Args*) {
  return error_of(PJRT_Error_Code_UNIMPLEMENTED, "the fake has none");
}
PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
  if (does() == "does not begin") return error_of(PJRT_Error_Code_INTERNAL, "the fake is asleep");
  args->output_lists[0][0] = new PJRT_Buffer{
      does() == "runs out" ? PJRT_Error_Code_RESOURCE_EXHAUSTED : PJRT_Error_Code_INTERNAL};
  return nullptr;
}

PJRT_Api table() {
  PJRT_Api api = {};
  api.struct_size = PJRT_Api_STRUCT_SIZE;
  api.pjrt_api_version = {PJRT_Api_Version_STRUCT_SIZE, nullptr, PJRT_API_MAJOR, PJRT_API_MINOR};
  api.PJRT_Error_Destroy = &destroy_error;
  api.PJRT_Error_Message = &message;
  api.PJRT_Error_GetCode = &code;
  api.PJRT_Plugin_Initialize = &initialize;
  api.PJRT_Plugin_Attributes = &unimplemented;
  api.PJRT_Event_Destroy = &destroy_event;
  api.PJRT_Event_IsReady = &is_ready;
  api.PJRT_Event_Await = &await;
  api.PJRT_Client_Create = &create;
  api.PJRT_Client_Destroy = &destroy_client;
  api.PJRT_Client_PlatformName = &platform_name;
  api.PJRT_Client_PlatformVersion = &platform_version;
  api.PJRT_Client_Devices = &devices;
  api.PJRT_Client_AddressableDevices = &addressable;
  api.PJRT_Client_Compile = &compile;
  api.PJRT_Client_BufferFromHostBuffer = &upload;
  api.PJRT_DeviceDescription_Id = &id;
  api.PJRT_DeviceDescription_ProcessIndex = &process;
  api.PJRT_DeviceDescription_Kind = &kind;
  api.PJRT_Device_GetDescription = &description;
  api.PJRT_Device_IsAddressable = &is_addressable;
  api.PJRT_Device_MemoryStats = &memory_stats;
  api.PJRT_Executable_Destroy = &destroy_executable;
  api.PJRT_Executable_Name = &name;
  api.PJRT_Executable_NumReplicas =
      &one<PJRT_Executable_NumReplicas_Args, &PJRT_Executable_NumReplicas_Args::num_replicas>;
  api.PJRT_Executable_NumPartitions =
      &one<PJRT_Executable_NumPartitions_Args, &PJRT_Executable_NumPartitions_Args::num_partitions>;
  api.PJRT_Executable_NumOutputs =
      &one<PJRT_Executable_NumOutputs_Args, &PJRT_Executable_NumOutputs_Args::num_outputs>;
  api.PJRT_Executable_OptimizedProgram = &optimized;
  api.PJRT_Executable_Serialize = &serialize;
  api.PJRT_Executable_Fingerprint = &has_none<PJRT_Executable_Fingerprint_Args>;
  api.PJRT_Executable_GetCostAnalysis = &has_none<PJRT_Executable_GetCostAnalysis_Args>;
  api.PJRT_Executable_GetCompiledMemoryStats =
      &has_none<PJRT_Executable_GetCompiledMemoryStats_Args>;
  api.PJRT_LoadedExecutable_Destroy = &destroy_loaded;
  api.PJRT_LoadedExecutable_GetExecutable = &get_executable;
  api.PJRT_LoadedExecutable_AddressableDevices = &loaded_devices;
  api.PJRT_LoadedExecutable_Execute = &execute;
  api.PJRT_Buffer_Destroy = &destroy_buffer;
  api.PJRT_Buffer_ElementType = &element_type;
  api.PJRT_Buffer_Dimensions = &dimensions;
  api.PJRT_Buffer_IsDeleted = &is_deleted;
  api.PJRT_Buffer_ToHostBuffer = &download;
  api.PJRT_Buffer_ReadyEvent = &ready_event;
  return api;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  // A table for each mode: levin initializes each once.
  static std::map<std::string, PJRT_Api> tables;
  const std::string mode = does();
  if (mode == "nothing") return nullptr;
  PJRT_Api& api = tables.try_emplace(mode, table()).first->second;
  if (mode == "major") api.pjrt_api_version.major_version = PJRT_API_MAJOR + 1;
  if (mode == "minor") api.pjrt_api_version.minor_version = 5;
  if (mode == "short") api.struct_size = 200;
  return &api;
}
