#include "levin/accelerator/stepping/random_place.h"

#include <ATen/Context.h>

#include <mutex>

namespace levin {

RandomPlace::RandomPlace(at::Device device)
    : RandomPlace(device, *at::detail::getDefaultCPUGenerator().get<at::CPUGeneratorImpl>(),
                  std::unique_lock(at::Generator(at::detail::getDefaultCPUGenerator()).mutex())) {}

RandomPlace::RandomPlace(at::Device device, at::CPUGeneratorImpl& cpu,
                         const std::unique_lock<std::mutex>&)
    : device_(device),
      engine_(cpu.engine()),
      next_float_(cpu.next_float_normal_sample()),
      next_double_(cpu.next_double_normal_sample()) {
  if (!device_.is_cuda()) return;
  at::Generator gpu = at::globalContext().defaultGenerator(device_);
  const std::lock_guard gpu_lock(gpu.mutex());
  seed_ = gpu.current_seed();
  offset_ = gpu.get_offset();
}

void RandomPlace::go_back() const {
  at::Generator cpu = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(cpu.mutex());
  auto* generator = cpu.get<at::CPUGeneratorImpl>();
  generator->set_engine(engine_);
  generator->set_next_float_normal_sample(next_float_);
  generator->set_next_double_normal_sample(next_double_);
  if (!device_.is_cuda()) return;
  at::Generator gpu = at::globalContext().defaultGenerator(device_);
  const std::lock_guard gpu_lock(gpu.mutex());
  gpu.set_current_seed(seed_);
  gpu.set_offset(offset_);
}

bool RandomPlace::operator==(const RandomPlace& other) const {
  const at::mt19937_data_pod mine = engine_.data(), others = other.engine_.data();
  return device_ == other.device_ && mine.seed_ == others.seed_ && mine.left_ == others.left_ &&
         mine.next_ == others.next_ && mine.state_ == others.state_ &&
         next_float_ == other.next_float_ && next_double_ == other.next_double_ &&
         seed_ == other.seed_ && offset_ == other.offset_;
}

}  // namespace levin
