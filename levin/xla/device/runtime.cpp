#include "levin/xla/device/runtime.h"

#include <utility>

#include "levin/base/check.h"
#include "levin/xla/device/compile/compile_watch.h"
#include "levin/xla/device/runtime_impl.h"
#include "levin/xla/device/step.h"
#include "levin/xla/library.h"

namespace levin::xla {
namespace {

/// The dispatcher's kernels are functions without an object, so that theirs is found here.
std::weak_ptr<Runtime>& current_place() {
  static std::weak_ptr<Runtime> place;
  return place;
}

/// The same for each operator, which takes no share in it: its tensors do.
std::atomic<RuntimeImpl*> current_impl = nullptr;

class LazyRuntime final : public Runtime {
 public:
  explicit LazyRuntime(const RuntimeOptions& options)
      : impl_(std::make_shared<RuntimeImpl>(options)) {}
  ~LazyRuntime() override {
    current_impl.store(nullptr, std::memory_order_release);
    const std::scoped_lock lock(impl_->mutex);
    impl_->recording.abandon();
  }

  int64_t num_devices() const override { return impl_->devices.count(); }
  const std::string& platform() const override { return impl_->devices.client().platform(); }
  const std::string& device_kind() const override {
    return impl_->devices.client().addressable_devices().front().kind;
  }
  void sync() override { impl_->recording.sync(); }
  void wait() override;
  using Runtime::upload;
  at::Tensor upload(const at::Tensor& tensor, bool split) override;
  bool is_whole(const at::Tensor& tensor) const override {
    return Contents::of(tensor).is_base(tensor);
  }
  void set_stop_signal(int (*stop_signal)()) override {
    const std::scoped_lock lock(impl_->mutex);
    impl_->memo.stop_signal = stop_signal;
  }
  bool set_split(bool split) override {
    const std::scoped_lock lock(impl_->mutex);
    return std::exchange(impl_->devices.splits_uploads, split);
  }
  RuntimeReport report() const override {
    const std::scoped_lock lock(impl_->mutex);
    return impl_->report;
  }
  RuntimeImpl& impl() { return *impl_; }

 private:
  void begin_optimizer(bool is_fused) override {
    const std::scoped_lock lock(impl_->mutex);
    impl_->memo.log.in_optimizer = true;
    impl_->memo.log.optimizer_is_fused = is_fused;
  }
  void end_optimizer() override {
    const std::scoped_lock lock(impl_->mutex);
    impl_->memo.log.in_optimizer = false;
  }

  std::shared_ptr<RuntimeImpl> impl_;
};

void LazyRuntime::wait() {
  impl_->recording.sync();
  const std::scoped_lock lock(impl_->mutex);
  for (const Contents* contents : impl_->live) {
    for (const pjrt::Buffer& buffer : contents->buffers) buffer.await();
  }
}

at::Tensor LazyRuntime::upload(const at::Tensor& tensor, bool split) {
  const std::scoped_lock lock(impl_->mutex);
  const at::Tensor source = tensor.contiguous();
  at::Tensor made =
      Contents::make_tensor(impl_, source.sizes(), source.strides(), source.scalar_type());
  impl_->devices.upload(Contents::of(made), source, split);
  return made;
}

std::shared_ptr<Runtime> current_runtime() { return current_place().lock(); }

}  // namespace

void register_kernels();

RuntimeImpl* RuntimeImpl::current() { return current_impl.load(std::memory_order_acquire); }
RuntimeImpl& RuntimeImpl::of(Runtime& runtime) { return static_cast<LazyRuntime&>(runtime).impl(); }

namespace {

std::shared_ptr<Runtime> open_runtime(const RuntimeOptions& options) {
  LEVIN_CHECK(current_runtime() == nullptr, "xla.open",
              "the device xla is already open, and a process has only one; release it first");
  register_kernels();
  auto runtime = std::make_shared<LazyRuntime>(options);
  current_place() = runtime;
  current_impl.store(&runtime->impl(), std::memory_order_release);
  return runtime;
}

constexpr Library kLibrary = {.open = &open_runtime,
                              .current = &current_runtime,
                              .make_engine = &make_engine,
                              .is_compiling = &is_compiling};
// The library cannot be used without it. NOLINTNEXTLINE(bugprone-throwing-static-initialization)
const bool is_provided = (provide(kLibrary), true);

}  // namespace
}  // namespace levin::xla

/// A static library that a program links by levin::xla is linked whole by this name.
extern "C" LEVIN_API const bool* levin_xla_library() { return &levin::xla::is_provided; }
