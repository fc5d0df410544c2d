#include "levin/xla/device/runtime.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/xla/device/runtime_impl.h"

namespace levin::xla {
namespace {

/// The dispatcher's kernels are functions without an object, so that theirs is found here.
std::weak_ptr<Runtime>& current_place() {
  static std::weak_ptr<Runtime> place;
  return place;
}

/// The same for each operator, which takes no share in it: its tensors do.
std::atomic<Runtime::Impl*> current_impl = nullptr;

/// The devices of a TPU slice or of GPUs are what is there; a CPU is divided as asked, and no
/// further: into how many its plugin would divide it is no number of anything.
pjrt::Client open_client(const RuntimeOptions& options) {
  const pjrt::Plugin plugin(pjrt::find_plugin(options.plugin));
  const bool is_divided = plugin.kind() == "cpu" || plugin.kind().empty();
  pjrt::ClientOptions wanted = {.num_devices = is_divided ? options.num_devices : 0};
  if (plugin.kind() == "cpu") wanted.num_devices = std::max<int64_t>(1, options.num_devices);
  if (options.world_size > 1) {
    wanted.rank = options.rank;
    wanted.world_size = options.world_size;
    wanted.store = c10::make_intrusive<c10d::PrefixStore>("pjrt", options.store);
  }
  return pjrt::Client(plugin, wanted);
}

}  // namespace

void register_kernels();

Runtime::Impl::Impl(const RuntimeOptions& options)
    : world(options), client(open_client(options)), cache({.folder = options.cache_dir}) {
  const auto available = static_cast<int64_t>(client.addressable_devices().size());
  const int64_t unasked = client.platform() == "cpu" ? 1 : available;
  num_devices = options.num_devices == 0 ? unasked : options.num_devices;
  LEVIN_CHECK(num_devices <= available, "xla.device",
              "{} devices were asked for, and {} has {}; set devices to at most that", num_devices,
              client.platform(), available);
  device_ids = world.devices(client, num_devices);
}

Runtime::Impl* Runtime::Impl::current() { return current_impl.load(std::memory_order_acquire); }

Runtime::Runtime() = default;

/// A recording keeps its tensors, which keep what it is in.
Runtime::~Runtime() {
  if (impl_ == nullptr) return;
  current_impl.store(nullptr, std::memory_order_release);
  const std::scoped_lock lock(impl_->mutex);
  impl_->lose_pending();
  impl_->end_recording();
  impl_->forget_step();
}

std::shared_ptr<Runtime> Runtime::open(const RuntimeOptions& options) {
  LEVIN_CHECK(current() == nullptr, "xla.open",
              "the device xla is open already, and a process has one; let go of it first");
  register_kernels();
  std::shared_ptr<Runtime> runtime(new Runtime);
  runtime->impl_ = std::make_shared<Impl>(options);
  current_place() = runtime;
  current_impl.store(runtime->impl_.get(), std::memory_order_release);
  return runtime;
}

std::shared_ptr<Runtime> Runtime::current() { return current_place().lock(); }

int64_t Runtime::num_devices() const { return impl_->num_devices; }
const std::string& Runtime::platform() const { return impl_->client.platform(); }
void Runtime::sync() { impl_->sync(); }

void Runtime::wait() {
  impl_->sync();
  const std::scoped_lock lock(impl_->mutex);
  for (const Contents* contents : impl_->live) {
    for (const pjrt::Buffer& buffer : contents->buffers) buffer.await();
  }
}

at::Tensor Runtime::upload(const at::Tensor& tensor, bool split) {
  const std::scoped_lock lock(impl_->mutex);
  const at::Tensor source = tensor.contiguous();
  at::Tensor made =
      Contents::make_tensor(impl_, source.sizes(), source.strides(), source.scalar_type());
  impl_->upload(Contents::of(made), source, split);
  return made;
}

bool Runtime::is_whole(const at::Tensor& tensor) { return Contents::of(tensor).is_base(tensor); }

void Runtime::set_names(std::function<std::vector<NamedTensor>()> names) {
  const std::scoped_lock lock(impl_->mutex);
  impl_->names = std::move(names);
}

void Runtime::set_stop_signal(int (*stop_signal)()) {
  const std::scoped_lock lock(impl_->mutex);
  impl_->stop_signal = stop_signal;
}

Runtime::OptimizerScope::OptimizerScope(Runtime& runtime, bool is_fused) : runtime_(runtime) {
  const std::scoped_lock lock(runtime_.impl_->mutex);
  runtime_.impl_->in_optimizer = true;
  runtime_.impl_->optimizer_is_fused = is_fused;
}

Runtime::OptimizerScope::~OptimizerScope() {
  const std::scoped_lock lock(runtime_.impl_->mutex);
  runtime_.impl_->in_optimizer = false;
}

bool Runtime::set_split(bool split) {
  const std::scoped_lock lock(impl_->mutex);
  return std::exchange(impl_->splits_uploads, split);
}

RuntimeReport Runtime::report() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->report;
}

}  // namespace levin::xla
