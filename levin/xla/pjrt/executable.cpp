#include "levin/xla/pjrt/executable.h"

#include <c10/util/SmallVector.h>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt {
namespace {

using detail::Doing;

PJRT_Executable* executable_of(const PJRT_Api* api, PJRT_LoadedExecutable* loaded) {
  LEVIN_PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable, args);
  args.loaded_executable = loaded;
  detail::check(api, api->PJRT_LoadedExecutable_GetExecutable(&args), Doing::kProgram,
                "a compiled program");
  return args.executable;
}

std::vector<int64_t> places_of_devices(const Client::Impl& client, PJRT_LoadedExecutable* loaded) {
  LEVIN_PJRT_ARGS(PJRT_LoadedExecutable_AddressableDevices, args);
  args.executable = loaded;
  detail::check(client.api, client.api->PJRT_LoadedExecutable_AddressableDevices(&args),
                Doing::kProgram, "a compiled program");
  std::vector<int64_t> places;
  for (size_t i = 0; i < args.num_addressable_devices; ++i) {
    const auto at = std::ranges::find(client.handles, args.addressable_devices[i]);
    places.push_back(at - client.handles.begin());
  }
  return places;
}

/// Takes the loaded executable over.
Executable executable_from(const std::shared_ptr<const Client::Impl>& client,
                           PJRT_LoadedExecutable* loaded) {
  auto impl = std::make_shared<Program::Impl>(client->api, client);
  impl->loaded = loaded;
  impl->executable = executable_of(client->api, loaded);
  impl->read();
  impl->devices = places_of_devices(*client, loaded);
  impl->origin = std::make_shared<const detail::Origin>(client->api, client, impl->subject());
  return Executable(std::move(impl));
}

std::string donated(const Program::Impl& impl, size_t argument, int64_t device) {
  return fmt::format(
      "program '{}': argument {} of device {} was already donated to a program; name it in `kept` "
      "there, or pass the buffer that the program returned",
      impl.name, argument, device);
}

// If the plugin refuses to start a program, the usual cause is wrong buffers.
[[noreturn]] void fail_to_start(const Program::Impl& impl, std::span<const Buffer* const> arguments,
                                PJRT_Error* error) {
  const size_t per_device = arguments.size() / impl.devices.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i]->is_deleted()) continue;
    detail::free_error(impl.api, error);
    LEVIN_FAIL("xla.buffer", "{}", donated(impl, i % per_device, impl.devices[i / per_device]));
  }
  if (detail::code_of(impl.api, error) != PJRT_Error_Code_INVALID_ARGUMENT) {
    impl.origin->fail(error);
  }
  try {
    impl.origin->fail(error);
  } catch (const Error& said) {
    LEVIN_FAIL("xla.arguments", "{}", said.text());
  }
}

PJRT_Device* device_of(const PJRT_Api* api, PJRT_Buffer* buffer) {
  LEVIN_PJRT_ARGS(PJRT_Buffer_Device, args);
  args.buffer = buffer;
  detail::check(api, api->PJRT_Buffer_Device(&args), Doing::kTransfer, "a buffer's device");
  return args.device;
}

// A plugin checks arguments device by device. If it refuses one device's, the other devices start,
// wait in the first collective, and end the process after a minute. So levin itself refuses
// arguments that differ between devices; the check takes 0.1 us for each argument of each device.
void check_alike(const Program::Impl& impl, std::span<const Buffer* const> arguments) {
  const size_t per_device = arguments.size() / impl.devices.size();
  for (size_t i = 0; i < per_device; ++i) {
    const at::IntArrayRef sizes = arguments[i]->sizes();
    const int type = arguments[i]->type();
    for (size_t d = 0; d < impl.devices.size(); ++d) {
      const Buffer& buffer = *arguments[d * per_device + i];
      const int64_t device = impl.devices[d];
      PJRT_Device* wanted = impl.origin->client->handles[static_cast<size_t>(device)];
      LEVIN_CHECK(device_of(impl.api, buffer.get()) == wanted, "xla.arguments",
                  "program '{}': argument {} of device {} lies on the device of id {}; upload it "
                  "to device {}",
                  impl.name, i, device, buffer.device_id(), device);
      LEVIN_CHECK(!buffer.is_deleted(), "xla.buffer", "{}", donated(impl, i, device));
      if (d == 0) continue;
      LEVIN_CHECK(buffer.sizes() == sizes && buffer.type() == type, "xla.arguments",
                  "program '{}': argument {} has sizes {} of {} on device {} and {} of {} on "
                  "device {}; wanted the same on each",
                  impl.name, i, c10::str(buffer.sizes()), c10::toString(buffer.dtype()), device,
                  c10::str(sizes), c10::toString(arguments[i]->dtype()), impl.devices[0]);
    }
  }
}

using Handles = c10::SmallVector<PJRT_Buffer*, 128>;

Handles handles_of(const Program::Impl& impl, std::span<const Buffer* const> arguments) {
  const size_t devices = impl.devices.size();
  LEVIN_CHECK(devices > 0, "xla.arguments",
              "program '{}' was compiled for devices of other processes; run it there", impl.name);
  LEVIN_CHECK(arguments.size() % devices == 0, "xla.arguments",
              "program '{}': got {} arguments for {} devices, wanted the same number for each",
              impl.name, arguments.size(), devices);
  Handles handles(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Buffer* argument = arguments[i];
    LEVIN_CHECK(argument != nullptr && *argument, "xla.buffer",
                "program '{}': argument {} is empty; wanted a buffer that was uploaded or that a "
                "program returned",
                impl.name, i);
    handles[i] = argument->get();
  }
  return handles;
}

}  // namespace

Executable Client::compile(std::string_view text, const CompileOptions& options) const {
  const std::string encoded = detail::encoded(options);
  const PJRT_Program program = detail::program_of(text);
  LEVIN_PJRT_ARGS(PJRT_Client_Compile, args);
  args.client = impl_->client;
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  detail::check(impl_->api, impl_->api->PJRT_Client_Compile(&args), Doing::kCompile,
                impl_->platform + "'s compiler");
  return executable_from(impl_, args.executable);
}

Executable Client::load(std::string_view serialized) const {
  LEVIN_PJRT_ARGS(PJRT_Executable_DeserializeAndLoad, args);
  args.client = impl_->client;
  args.serialized_executable = serialized.data();
  args.serialized_executable_size = serialized.size();
  detail::check(impl_->api, impl_->api->PJRT_Executable_DeserializeAndLoad(&args), Doing::kLoad,
                "a serialized program of " + std::to_string(serialized.size()) + " bytes");
  return executable_from(impl_, args.loaded_executable);
}

const std::vector<int64_t>& Executable::devices() const { return impl()->devices; }

void Executable::execute(std::span<const Buffer* const> arguments, std::vector<Buffer>& outputs,
                         std::span<const int64_t> kept) const {
  const Impl& program = *impl();
  const size_t devices = program.devices.size();
  const auto num_outputs = static_cast<size_t>(program.num_outputs);
  const Handles in = handles_of(program, arguments);
  const size_t num_arguments = in.size() / devices;
  if (devices > 1) check_alike(program, arguments);
  Handles out(devices * num_outputs);
  c10::SmallVector<PJRT_Buffer* const*, 8> in_lists(devices);
  c10::SmallVector<PJRT_Buffer**, 8> out_lists(devices);
  for (size_t device = 0; device < devices; ++device) {
    in_lists[device] = in.data() + device * num_arguments;
    out_lists[device] = out.data() + device * num_outputs;
  }
  PJRT_ExecuteOptions options = {};
  options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  LEVIN_PJRT_ARGS(PJRT_LoadedExecutable_Execute, args);
  args.executable = program.loaded;
  args.options = &options;
  args.argument_lists = in_lists.data();
  args.num_devices = devices;
  args.num_args = num_arguments;
  args.output_lists = out_lists.data();
  PJRT_Error* error = program.api->PJRT_LoadedExecutable_Execute(&args);
  if (error != nullptr) fail_to_start(program, arguments, error);
  // Only now: the last run's outputs may be this one's arguments.
  outputs.resize(out.size());
  for (size_t i = 0; i < out.size(); ++i) outputs[i] = Buffer(out[i], program.origin);
}

}  // namespace levin::xla::pjrt
