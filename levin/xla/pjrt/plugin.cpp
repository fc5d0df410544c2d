#include "levin/xla/pjrt/plugin.h"

#include <dlfcn.h>
#include <fmt/ranges.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <span>

#include "levin/base/check.h"
#include "levin/base/reading/regular_file.h"
#include "levin/xla/pjrt/interface_impl.h"
#include "levin/xla/pjrt/plugin_file_impl.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace levin::xla::pjrt {
namespace {

// The oldest interface that levin was run against. Newer ones add to it and take nothing away.
constexpr int kOldestMinor = 81;
// The last of the functions that levin calls, in the order of PJRT_Api.
constexpr size_t kNeededBytes =
    offsetof(PJRT_Api, PJRT_Executable_GetCompiledMemoryStats) + sizeof(void*);

void set_unless_set(const char* name, const char* value) { ::setenv(name, value, 0); }

void prepare_environment(const PluginOptions& options) {
  set_unless_set("TF_CPP_MIN_LOG_LEVEL", "1");
  if (!options.compile_only) return;
  set_unless_set("TPU_SKIP_MDS_QUERY", "1");  // else it asks a metadata server for minutes
  set_unless_set("ALLOW_MULTIPLE_LIBTPU_LOAD", "1");
  // Sets what libtpu would ask for, so that it does not complain; topologies do not depend on it.
  set_unless_set("TPU_WORKER_HOSTNAMES", "localhost");
  set_unless_set("TPU_ACCELERATOR_TYPE", "v5litepod-4");
  set_unless_set("TPU_LOG_DIR", "disabled");
  set_unless_set("TPU_STDERR_LOG_LEVEL", "3");
  set_unless_set("TPU_MIN_LOG_LEVEL", "3");
}

// Local: two plugins bring the same symbols of LLVM and absl.
const PJRT_Api* open(const std::string& path) {
  // A name alone is one for the loader to look up; it would wait for the writer of a pipe.
  std::string why;
  const bool is_path = path.find('/') != std::string::npos;
  LEVIN_CHECK(!is_path || posix::open_regular(path, why), "xla.plugin.load",
              "{} cannot be loaded: {}; wanted a PJRT plugin", path, why);
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  LEVIN_CHECK(handle != nullptr, "xla.plugin.load", "{} cannot be loaded: {}; wanted a PJRT plugin",
              path, ::dlerror());
  auto* get = reinterpret_cast<const PJRT_Api* (*)()>(::dlsym(handle, "GetPjrtApi"));
  LEVIN_CHECK(get != nullptr, "xla.plugin.load",
              "{} is not a PJRT plugin: it has no function GetPjrtApi", path);
  const PJRT_Api* api = get();
  LEVIN_CHECK(api != nullptr, "xla.plugin.load", "{}: GetPjrtApi returned a null pointer", path);
  return api;
}

std::string check_version(const PJRT_Api& api, const std::string& path) {
  const auto& version = api.pjrt_api_version;
  LEVIN_CHECK(version.major_version == PJRT_API_MAJOR && version.minor_version >= kOldestMinor,
              "xla.plugin.version",
              "{} has PJRT's interface {}.{}, wanted {}.{} or newer of the same major version; "
              "install a{} plugin",
              path, version.major_version, version.minor_version, PJRT_API_MAJOR, kOldestMinor,
              version.major_version > PJRT_API_MAJOR ? "n older" : " newer");
  LEVIN_CHECK(api.struct_size >= kNeededBytes, "xla.plugin.version",
              "{} has PJRT's interface {}.{} but its table of functions is {} bytes long, wanted "
              "{} or more; install another build of the plugin",
              path, version.major_version, version.minor_version, api.struct_size, kNeededBytes);
  return fmt::format("{}.{}", version.major_version, version.minor_version);
}

// A plugin is initialized once in a process, and every load of its file gives the same table.
void initialize(const PJRT_Api* api, const std::string& path) {
  static std::mutex mutex;
  static std::set<const PJRT_Api*> initialized;
  const std::lock_guard lock(mutex);
  if (initialized.contains(api)) return;
  LEVIN_PJRT_ARGS(PJRT_Plugin_Initialize, args);
  try {
    detail::check(api, api->PJRT_Plugin_Initialize(&args), detail::Doing::kClient, path);
  } catch (const Error& error) {
    LEVIN_FAIL("xla.plugin.load", "{} does not start: {}", path, error.text());
  }
  initialized.insert(api);
}

std::string text_of(const PJRT_NamedValue& value) {
  switch (value.type) {
    case PJRT_NamedValue_kString:
      return std::string(value.string_value, value.value_size);
    case PJRT_NamedValue_kInt64:
      return fmt::format("{}", value.int64_value);
    case PJRT_NamedValue_kInt64List:
      return fmt::format("{}", fmt::join(value.int64_array_value,
                                         value.int64_array_value + value.value_size, "."));
    case PJRT_NamedValue_kFloat:
      return fmt::format("{}", value.float_value);
    case PJRT_NamedValue_kBool:
      return value.bool_value ? "true" : "false";
  }
  return "";
}

std::vector<std::string> attributes_of(const PJRT_Api* api, const std::string& path) {
  LEVIN_PJRT_ARGS(PJRT_Plugin_Attributes, args);
  if (!detail::is_implemented(api, api->PJRT_Plugin_Attributes(&args), detail::Doing::kClient,
                              path)) {
    return {};
  }
  std::vector<std::string> attributes;
  for (size_t i = 0; i < args.num_attributes; ++i) {
    const PJRT_NamedValue& value = args.attributes[i];
    attributes.push_back(std::string(value.name, value.name_size) + "=" + text_of(value));
  }
  std::ranges::sort(attributes);
  return attributes;
}

// The versions that plugins tell stay the same over many builds, and their files have hundreds of
// megabytes. The headers at a file's front and the tables at its end change with any change of
// code.
std::string digest_of_ends(const std::string& path) {
  constexpr int64_t kEnd = int64_t{1} << 16;
  std::string ends(2 * kEnd, '\0'), ignored;
  int64_t size = 0;
  if (const auto opened = posix::open_regular(path, ignored)) {
    const auto bytes = std::as_writable_bytes(std::span(ends));
    size = opened->size;
    posix::read_some(opened->file, bytes.first(kEnd));
    ::lseek(opened->file.number(), std::max<int64_t>(0, size - kEnd), SEEK_SET);
    posix::read_some(opened->file, bytes.subspan(kEnd));
  }
  return fmt::format("{:016x}-{}", XXH3_64bits(ends.data(), ends.size()), size);
}

}  // namespace

bool is_available() { return true; }

std::string api_version() { return fmt::format("{}.{}", PJRT_API_MAJOR, PJRT_API_MINOR); }

Plugin::Plugin(const std::string& path, const PluginOptions& options) {
  prepare_environment(options);
  auto impl = std::make_shared<Impl>();
  impl->path = path;
  impl->kind = detail::plugin_kind(path);
  impl->api = open(path);
  impl->version = check_version(*impl->api, path);
  initialize(impl->api, path);
  impl->attributes = attributes_of(impl->api, path);
  impl->identity = fmt::format("{} {} {}", impl->version, digest_of_ends(path),
                               fmt::join(impl->attributes, " "));
  impl_ = std::move(impl);
}

const std::string& Plugin::path() const { return impl_->path; }
const std::string& Plugin::kind() const { return impl_->kind; }
const std::string& Plugin::api_version() const { return impl_->version; }
const std::vector<std::string>& Plugin::attributes() const { return impl_->attributes; }
const std::string& Plugin::identity() const { return impl_->identity; }

}  // namespace levin::xla::pjrt
