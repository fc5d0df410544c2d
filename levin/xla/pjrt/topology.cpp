#include "levin/xla/pjrt/topology.h"

#include <array>
#include <numeric>

#include "levin/base/check.h"
#include "levin/xla/pjrt/interface_impl.h"

namespace levin::xla::pjrt {

using detail::Doing;

struct Topology::Impl {
  Plugin plugin;
  const PJRT_Api* api;
  std::string name;
  PJRT_TopologyDescription* topology = nullptr;
  std::string platform;
  std::string platform_version;
  std::vector<int64_t> device_ids;
  std::string device_kind;

  Impl(const Plugin& plugin, const std::string& name)
      : plugin(plugin), api(plugin.impl()->api), name(name) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void check(PJRT_Error* error) const {
    if (error == nullptr) return;
    detail::fail(api, error, Doing::kTopology,
                 fmt::format("'{}' of plugin {}", name, plugin.path()));
  }
  void read_platform();
  void read_devices();
};

Topology::Impl::~Impl() {
  if (topology == nullptr) return;
  LEVIN_PJRT_ARGS(PJRT_TopologyDescription_Destroy, args);
  args.topology = topology;
  PJRT_Error* error = api->PJRT_TopologyDescription_Destroy(&args);
  if (error != nullptr) detail::free_error(api, error);
}

void Topology::Impl::read_platform() {
  LEVIN_PJRT_ARGS(PJRT_TopologyDescription_PlatformName, names);
  names.topology = topology;
  check(api->PJRT_TopologyDescription_PlatformName(&names));
  platform.assign(names.platform_name, names.platform_name_size);
  LEVIN_PJRT_ARGS(PJRT_TopologyDescription_PlatformVersion, versions);
  versions.topology = topology;
  check(api->PJRT_TopologyDescription_PlatformVersion(&versions));
  platform_version.assign(versions.platform_version, versions.platform_version_size);
}

void Topology::Impl::read_devices() {
  LEVIN_PJRT_ARGS(PJRT_TopologyDescription_GetDeviceDescriptions, all);
  all.topology = topology;
  check(api->PJRT_TopologyDescription_GetDeviceDescriptions(&all));
  for (size_t i = 0; i < all.num_descriptions; ++i) {
    LEVIN_PJRT_ARGS(PJRT_DeviceDescription_Id, id);
    id.device_description = all.descriptions[i];
    check(api->PJRT_DeviceDescription_Id(&id));
    device_ids.push_back(id.id);
  }
  if (all.num_descriptions == 0) return;
  LEVIN_PJRT_ARGS(PJRT_DeviceDescription_Kind, kind);
  kind.device_description = all.descriptions[0];
  check(api->PJRT_DeviceDescription_Kind(&kind));
  device_kind.assign(kind.device_kind, kind.device_kind_size);
}

std::span<const std::string_view> known_topologies() {
  static constexpr std::array<std::string_view, 8> kKnown = {"v4:2x2x1", "v4:2x2x2",   "v5p:2x2x2",
                                                             "v5e:2x2",  "v5e:2x4",    "v5e:4x4",
                                                             "v6e:2x4",  "tpu7x:2x2x1"};
  return kKnown;
}

Topology::Topology(const Plugin& plugin, const std::string& name) {
  auto impl = std::make_shared<Impl>(plugin, name);
  LEVIN_PJRT_ARGS(PJRT_TopologyDescription_Create, args);
  args.topology_name = name.data();
  args.topology_name_size = name.size();
  impl->check(impl->api->PJRT_TopologyDescription_Create(&args));
  impl->topology = args.topology;
  impl->read_platform();
  impl->read_devices();
  impl_ = std::move(impl);
}

const std::string& Topology::name() const { return impl_->name; }
const std::string& Topology::platform() const { return impl_->platform; }
const std::string& Topology::platform_version() const { return impl_->platform_version; }
int64_t Topology::num_devices() const { return static_cast<int64_t>(impl_->device_ids.size()); }
const std::string& Topology::device_kind() const { return impl_->device_kind; }

Program Topology::compile(std::string_view text, const CompileOptions& options) const {
  CompileOptions assigned = options;
  const int64_t count = options.num_replicas * options.num_partitions;
  LEVIN_CHECK(count <= num_devices(), "xla.option",
              "got {} replicas of {} partitions for topology {}, which has {} devices",
              options.num_replicas, options.num_partitions, name(), num_devices());
  if (options.device_ids.empty()) {
    assigned.device_ids.assign(impl_->device_ids.begin(), impl_->device_ids.begin() + count);
  }
  const std::string encoded = detail::encoded(assigned);
  const PJRT_Program program = detail::program_of(text);
  LEVIN_PJRT_ARGS(PJRT_Compile, args);
  args.topology = impl_->topology;
  args.program = &program;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  detail::check(impl_->api, impl_->api->PJRT_Compile(&args), Doing::kCompile,
                "the compiler for " + name());
  auto compiled = std::make_shared<Program::Impl>(impl_->api, impl_);
  compiled->executable = args.executable;
  compiled->read();
  return Program(std::move(compiled));
}

}  // namespace levin::xla::pjrt
