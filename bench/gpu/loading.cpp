// Batches from memory to the device: levin's DataLoader, prepared by the Accelerator, which pins them where the
// device is a GPU.

#include <optional>

#include "bench/gpu/session.h"

namespace gpu {
namespace {

class LoaderSession final : public Session {
 public:
  explicit LoaderSession(const Options& options) : Session(options), loader_(make()) {}

  /// A step is a batch; what comes back is the mean of its pixels.
  at::Tensor step(int64_t) override {
    if (place_) ++*place_;
    if (!place_ || *place_ == loader_.end()) place_.emplace(loader_.begin());
    return (**place_)["image"].mean();
  }

 private:
  levin::PreparedLoader make() {
    const int64_t count = sizes_.integer("samples"), side = sizes_.integer("side");
    // work.py has the same formula.
    const at::Tensor images = at::arange(count * 3 * side * side, at::kInt)
                                  .remainder_(251)
                                  .to(at::kFloat)
                                  .view({count, 3, side, side});
    levin::DataLoader loader(
        levin::data::tensors({{"image", images}, {"label", at::arange(count)}}),
        {.batch_size = sizes_.integer("batch_size"),
         .num_workers = options_.workers,
         .drop_last = true});
    return std::get<0>(accelerator_.prepare(loader));
  }

  levin::PreparedLoader loader_;
  std::optional<levin::PreparedLoader::Iterator> place_;
};

}  // namespace

std::unique_ptr<Session> make_loader_session(const Options& options) {
  return std::make_unique<LoaderSession>(options);
}

}  // namespace gpu
