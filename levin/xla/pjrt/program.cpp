#include "levin/base/check.h"
#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt {
namespace {

using detail::Doing;

double number_of(const PJRT_NamedValue& value) {
  switch (value.type) {
    case PJRT_NamedValue_kFloat:
      return value.float_value;
    case PJRT_NamedValue_kInt64:
      return static_cast<double>(value.int64_value);
    case PJRT_NamedValue_kBool:
      return value.bool_value ? 1 : 0;
    default:
      return 0;
  }
}

}  // namespace

void Program::Impl::read() {
  const auto checked = [&](PJRT_Error* error) {
    detail::check(api, error, Doing::kProgram, "a compiled program");
  };
  LEVIN_PJRT_ARGS(PJRT_Executable_Name, named);
  named.executable = executable;
  checked(api->PJRT_Executable_Name(&named));
  name.assign(named.executable_name, named.executable_name_size);
  LEVIN_PJRT_ARGS(PJRT_Executable_NumOutputs, outputs);
  outputs.executable = executable;
  checked(api->PJRT_Executable_NumOutputs(&outputs));
  num_outputs = static_cast<int64_t>(outputs.num_outputs);
  LEVIN_PJRT_ARGS(PJRT_Executable_NumReplicas, replicas);
  replicas.executable = executable;
  checked(api->PJRT_Executable_NumReplicas(&replicas));
  num_replicas = static_cast<int64_t>(replicas.num_replicas);
  LEVIN_PJRT_ARGS(PJRT_Executable_NumPartitions, partitions);
  partitions.executable = executable;
  checked(api->PJRT_Executable_NumPartitions(&partitions));
  num_partitions = static_cast<int64_t>(partitions.num_partitions);
}

Program::Impl::~Impl() {
  const auto drop = [&](PJRT_Error* error) {
    if (error != nullptr) detail::free_error(api, error);
  };
  if (executable != nullptr) {
    LEVIN_PJRT_ARGS(PJRT_Executable_Destroy, args);
    args.executable = executable;
    drop(api->PJRT_Executable_Destroy(&args));
  }
  if (loaded != nullptr) {
    LEVIN_PJRT_ARGS(PJRT_LoadedExecutable_Destroy, args);
    args.executable = loaded;
    drop(api->PJRT_LoadedExecutable_Destroy(&args));
  }
}

const std::string& Program::name() const { return impl_->name; }
int64_t Program::num_outputs() const { return impl_->num_outputs; }
int64_t Program::num_replicas() const { return impl_->num_replicas; }
int64_t Program::num_partitions() const { return impl_->num_partitions; }

std::optional<ProgramMemory> Program::memory() const {
  LEVIN_PJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats, args);
  args.executable = impl_->executable;
  PJRT_Error* error = impl_->api->PJRT_Executable_GetCompiledMemoryStats(&args);
  if (!detail::is_implemented(impl_->api, error, Doing::kProgram, impl_->subject()))
    return std::nullopt;
  return ProgramMemory{.arguments = args.argument_size_in_bytes,
                       .outputs = args.output_size_in_bytes,
                       .aliased = args.alias_size_in_bytes,
                       .temporary = args.temp_size_in_bytes,
                       .code = args.generated_code_size_in_bytes,
                       .peak = args.peak_memory_in_bytes};
}

std::map<std::string, double> Program::costs() const {
  LEVIN_PJRT_ARGS(PJRT_Executable_GetCostAnalysis, args);
  args.executable = impl_->executable;
  PJRT_Error* error = impl_->api->PJRT_Executable_GetCostAnalysis(&args);
  std::map<std::string, double> costs;
  if (!detail::is_implemented(impl_->api, error, Doing::kProgram, impl_->subject())) return costs;
  for (size_t i = 0; i < args.num_properties; ++i) {
    const PJRT_NamedValue& value = args.properties[i];
    costs[std::string(value.name, value.name_size)] = number_of(value);
  }
  return costs;
}

std::string Program::optimized_text() const {
  PJRT_Program program = {};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  LEVIN_PJRT_ARGS(PJRT_Executable_OptimizedProgram, args);
  args.executable = impl_->executable;
  args.program = &program;
  // Once for its size, once for itself.
  const auto call = [&] {
    PJRT_Error* error = impl_->api->PJRT_Executable_OptimizedProgram(&args);
    detail::check(impl_->api, error, Doing::kProgram, impl_->subject());
  };
  call();
  std::string bytes(program.code_size, '\0');
  program.code = bytes.data();
  call();
  const std::string_view format(program.format, program.format_size);
  LEVIN_CHECK(format == "hlo" || format == "hlo_with_config", "xla.program",
              "program '{}': the plugin gives the format '{}', wanted hlo or hlo_with_config",
              name(), format);
  return detail::hlo_text(bytes, format == "hlo_with_config");
}

std::string Program::fingerprint() const {
  LEVIN_PJRT_ARGS(PJRT_Executable_Fingerprint, args);
  args.executable = impl_->executable;
  PJRT_Error* error = impl_->api->PJRT_Executable_Fingerprint(&args);
  if (!detail::is_implemented(impl_->api, error, Doing::kProgram, impl_->subject())) return "";
  return std::string(args.executable_fingerprint, args.executable_fingerprint_size);
}

std::string Program::serialize() const {
  LEVIN_PJRT_ARGS(PJRT_Executable_Serialize, args);
  args.executable = impl_->executable;
  detail::check(impl_->api, impl_->api->PJRT_Executable_Serialize(&args), Doing::kSerialize,
                impl_->subject());
  std::string bytes(args.serialized_bytes, args.serialized_bytes_size);
  args.serialized_executable_deleter(args.serialized_executable);
  return bytes;
}

}  // namespace levin::xla::pjrt
