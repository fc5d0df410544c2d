// Replaces the other sources if pjrt_c_api.h was not found. No object can be made, so only
// functions that make the first object are ever called.
#include <array>

#include "levin/base/check.h"
#include "levin/xla/pjrt/executable_cache.h"
#include "levin/xla/pjrt/topology.h"

namespace levin::xla::pjrt {

struct Plugin::Impl {};
struct Client::Impl {};
struct Program::Impl {};
struct Topology::Impl {};
struct detail::Origin {};

namespace {

[[noreturn]] void unavailable() {
  find_plugin();
  TORCH_INTERNAL_ASSERT(false);
}

}  // namespace

bool is_available() { return false; }
std::string api_version() { return ""; }
Plugin::Plugin(const std::string&, const PluginOptions&) { unavailable(); }
const std::string& Plugin::path() const { unavailable(); }
const std::string& Plugin::kind() const { unavailable(); }
const std::string& Plugin::api_version() const { unavailable(); }
const std::vector<std::string>& Plugin::attributes() const { unavailable(); }
const std::string& Plugin::identity() const { unavailable(); }

Client::Client(const Plugin&, const ClientOptions&) { unavailable(); }
const Plugin& Client::plugin() const { unavailable(); }
const std::string& Client::platform() const { unavailable(); }
const std::string& Client::platform_version() const { unavailable(); }
const std::vector<Device>& Client::devices() const { unavailable(); }
const std::vector<Device>& Client::addressable_devices() const { unavailable(); }
std::optional<DeviceMemory> Client::memory(int64_t) const { unavailable(); }
Buffer Client::upload(const at::Tensor&, int64_t, HostMemory) const { unavailable(); }
Executable Client::compile(std::string_view, const CompileOptions&) const { unavailable(); }
Executable Client::load(std::string_view) const { unavailable(); }

Download::Download(at::Tensor, PJRT_Event*, std::shared_ptr<const detail::Origin>) {
  unavailable();
}
Download::~Download() = default;
Download::Download(Download&&) noexcept = default;
Download& Download::operator=(Download&&) noexcept = default;
bool Download::is_ready() const { unavailable(); }
const at::Tensor& Download::wait() { unavailable(); }

Buffer& Buffer::operator=(Buffer&&) noexcept = default;
void Buffer::release() noexcept {}
at::IntArrayRef Buffer::sizes() const { unavailable(); }
int Buffer::type() const { unavailable(); }
at::ScalarType Buffer::dtype() const { unavailable(); }
int64_t Buffer::device_id() const { unavailable(); }
int64_t Buffer::num_bytes() const { unavailable(); }
bool Buffer::is_ready() const { unavailable(); }
void Buffer::await() const { unavailable(); }
bool Buffer::is_deleted() const { unavailable(); }
at::Tensor Buffer::download() const { unavailable(); }
void Buffer::download_to(const at::Tensor&) const { unavailable(); }
Download Buffer::start_download() const { unavailable(); }
Download Buffer::start_download_to(const at::Tensor&) const { unavailable(); }

const std::string& Program::name() const { unavailable(); }
int64_t Program::num_outputs() const { unavailable(); }
int64_t Program::num_replicas() const { unavailable(); }
int64_t Program::num_partitions() const { unavailable(); }
std::optional<ProgramMemory> Program::memory() const { unavailable(); }
std::map<std::string, double> Program::costs() const { unavailable(); }
std::string Program::optimized_text() const { unavailable(); }
std::string Program::fingerprint() const { unavailable(); }
std::string Program::serialize() const { unavailable(); }
const std::vector<int64_t>& Executable::devices() const { unavailable(); }
void Executable::execute(std::span<const Buffer* const>, std::vector<Buffer>&,
                         std::span<const int64_t>) const {
  unavailable();
}

std::span<const std::string_view> known_topologies() { return {}; }
Topology::Topology(const Plugin&, const std::string&) { unavailable(); }
const std::string& Topology::name() const { unavailable(); }
const std::string& Topology::platform() const { unavailable(); }
const std::string& Topology::platform_version() const { unavailable(); }
int64_t Topology::num_devices() const { unavailable(); }
const std::string& Topology::device_kind() const { unavailable(); }
Program Topology::compile(std::string_view, const CompileOptions&) const { unavailable(); }

}  // namespace levin::xla::pjrt
