#include "levin/xla/device/runtime.h"

#include <utility>

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

}  // namespace

void register_kernels();

Runtime::Impl* Runtime::Impl::current() { return current_impl.load(std::memory_order_acquire); }

Runtime::Runtime() = default;

Runtime::~Runtime() {
  if (impl_ == nullptr) return;
  current_impl.store(nullptr, std::memory_order_release);
  const std::scoped_lock lock(impl_->mutex);
  impl_->recording.abandon();
}

std::shared_ptr<Runtime> Runtime::open(const RuntimeOptions& options) {
  LEVIN_CHECK(current() == nullptr, "xla.open",
              "the device xla is already open, and a process has only one; release it first");
  register_kernels();
  std::shared_ptr<Runtime> runtime(new Runtime);
  runtime->impl_ = std::make_shared<Impl>(options);
  current_place() = runtime;
  current_impl.store(runtime->impl_.get(), std::memory_order_release);
  return runtime;
}

std::shared_ptr<Runtime> Runtime::current() { return current_place().lock(); }

int64_t Runtime::num_devices() const { return impl_->devices.count(); }
const std::string& Runtime::platform() const { return impl_->devices.client().platform(); }
void Runtime::sync() { impl_->recording.sync(); }

void Runtime::wait() {
  impl_->recording.sync();
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
  impl_->devices.upload(Contents::of(made), source, split);
  return made;
}

bool Runtime::is_whole(const at::Tensor& tensor) { return Contents::of(tensor).is_base(tensor); }

void Runtime::set_stop_signal(int (*stop_signal)()) {
  const std::scoped_lock lock(impl_->mutex);
  impl_->memo.stop_signal = stop_signal;
}

Runtime::OptimizerScope::OptimizerScope(Runtime& runtime, bool is_fused) : runtime_(runtime) {
  const std::scoped_lock lock(runtime_.impl_->mutex);
  runtime_.impl_->memo.log.in_optimizer = true;
  runtime_.impl_->memo.log.optimizer_is_fused = is_fused;
}

Runtime::OptimizerScope::~OptimizerScope() {
  const std::scoped_lock lock(runtime_.impl_->mutex);
  runtime_.impl_->memo.log.in_optimizer = false;
}

bool Runtime::set_split(bool split) {
  const std::scoped_lock lock(impl_->mutex);
  return std::exchange(impl_->devices.splits_uploads, split);
}

RuntimeReport Runtime::report() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->report;
}

}  // namespace levin::xla
