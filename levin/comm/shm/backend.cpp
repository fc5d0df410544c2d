#include "levin/comm/shm/backend.h"

#include <ATen/ops/from_blob.h>

#include <utility>

#include "levin/base/check.h"

namespace levin::comm {

std::unique_ptr<shm::Group> make_shm_group(const c10::intrusive_ptr<c10d::Store>& store,
                                           int64_t rank, int64_t size,
                                           std::chrono::milliseconds timeout) {
  const shm::Board board = {
      [&](const std::string& key, const std::string& word) { store->set("shm/" + key, word); },
      [&](const std::string& key) {
        store->wait({"shm/" + key}, timeout);
        return store->get_to_str("shm/" + key);
      }};
  return std::make_unique<shm::Group>(rank, size, board, shm::GroupOptions{.timeout = timeout});
}

SharedMemoryBackend::SharedMemoryBackend(std::string name, int64_t rank, int64_t size,
                                         std::unique_ptr<Collectives> collectives,
                                         shm::Group& memory)
    : QueuedBackend(std::move(name), rank, size, std::move(collectives)), memory_(memory) {}

at::Tensor SharedMemoryBackend::allocateTensor(long size, at::TensorOptions options) {
  const auto type = c10::typeMetaToScalarType(options.dtype());
  std::shared_ptr<std::byte> memory;
  run([&] { memory = memory_.allocate(size * static_cast<int64_t>(c10::elementSize(type))); });
  return at::from_blob(
      memory.get(), {size}, [memory](void*) mutable { memory = nullptr; }, at::TensorOptions(type));
}

std::shared_ptr<shm::SharedMemory> SharedMemoryBackend::share(at::ScalarType type, Counts counts) {
  LEVIN_CHECK(memory_.size() == getSize(), "comm.unsupported",
              "the {} backend shares no memory between its {} ranks, because only {} are on this "
              "host; use a group whose ranks are on one host",
              getBackendName(), getSize(), memory_.size());
  std::shared_ptr<shm::SharedMemory> shared;
  run([&] { shared = std::make_shared<shm::SharedMemory>(memory_.share(type, counts)); });
  return shared;
}

std::shared_ptr<shm::SharedMemory> share_memory(c10d::Backend& backend, at::ScalarType type,
                                                Counts counts) {
  auto* memory = dynamic_cast<SharedMemoryBackend*>(&backend);
  LEVIN_CHECK(memory != nullptr, "comm.unsupported",
              "the {} backend shares no memory between its ranks; use shm for ranks on one host",
              backend.getBackendName());
  return memory->share(type, counts);
}

c10::intrusive_ptr<c10d::Backend> make_shm_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                   int64_t rank, int64_t size,
                                                   std::chrono::milliseconds timeout) {
  std::unique_ptr<shm::Group> group = make_shm_group(store, rank, size, timeout);
  shm::Group& memory = *group;
  return c10::make_intrusive<SharedMemoryBackend>("shm", rank, size, std::move(group), memory);
}

}  // namespace levin::comm
