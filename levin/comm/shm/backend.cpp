#include "levin/comm/shm/backend.h"

#include <ATen/ops/from_blob.h>

#include <string>
#include <utility>

#include "levin/comm/lane_backend.h"
#include "levin/comm/shm/group.h"

namespace levin::comm {
namespace {

class ShmBackend final : public LaneBackend {
 public:
  ShmBackend(int64_t rank, int64_t size, std::unique_ptr<shm::Group> group)
      : ShmBackend(rank, size, group.get(), group) {}

  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }

  /// Collective: every rank asks for the same size.
  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    const auto type = c10::typeMetaToScalarType(options.dtype());
    std::shared_ptr<std::byte> memory;
    run([&] { memory = group_.allocate(size * static_cast<int64_t>(c10::elementSize(type))); });
    return at::from_blob(
        memory.get(), {size}, [memory](void*) mutable { memory = nullptr; },
        at::TensorOptions(type));
  }

 private:
  ShmBackend(int64_t rank, int64_t size, shm::Group* group, std::unique_ptr<shm::Group>& owned)
      : LaneBackend("shm", rank, size, std::move(owned)), group_(*group) {}

  shm::Group& group_;  // LaneBackend's
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_shm_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                   int64_t rank, int64_t size,
                                                   std::chrono::milliseconds timeout) {
  const shm::Board board = {
      [&](const std::string& key, const std::string& word) { store->set("shm/" + key, word); },
      [&](const std::string& key) {
        store->wait({"shm/" + key}, timeout);
        return store->get_to_str("shm/" + key);
      }};
  return c10::make_intrusive<ShmBackend>(
      rank, size,
      std::make_unique<shm::Group>(rank, size, board, shm::GroupOptions{.timeout = timeout}));
}

}  // namespace levin::comm
