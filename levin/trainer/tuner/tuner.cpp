// The doors of the Tuner.

#include <utility>

#include "levin/base/check.h"
#include "levin/trainer/tuner/trial.h"

namespace levin {
namespace {

template <class Finder>
void check_no_callback(const Trainer& trainer, const char* id, std::string_view name) {
  for (const auto& callback : trainer.options().callbacks) {
    LEVIN_CHECK(dynamic_cast<const Finder*>(callback.get()) == nullptr, id,
                "the Trainer has the callback {}; remove it to use the Tuner", name);
  }
}

DataLoader needed_loader(std::optional<DataLoader> loader) {
  LEVIN_CHECK(loader, "trainer.dataloader",
              "got no train_dataloader; give a loader, or override train_dataloader of the module "
              "or data module");
  return *std::move(loader);
}

DataLoader loader_of(const std::shared_ptr<Module>& module) {
  LEVIN_CHECK(module != nullptr, "trainer.module", "got an empty module pointer, wanted a module");
  return needed_loader(module->train_dataloader());
}

}  // namespace

LrFinder Tuner::lr_find(std::shared_ptr<Module> module, DataLoader train,
                        const LrFindOptions& options) {
  check_no_callback<LearningRateFinder>(trainer_, "trainer.lr_find", "learning_rate_finder");
  return detail::find_learning_rate(
      trainer_, {.module = std::move(module), .loader = std::move(train), .data = nullptr},
      options);
}

LrFinder Tuner::lr_find(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
                        const LrFindOptions& options) {
  check_no_callback<LearningRateFinder>(trainer_, "trainer.lr_find", "learning_rate_finder");
  trainer_.set_up(data, "fit");
  DataLoader loader = needed_loader(data->train_dataloader());
  return detail::find_learning_rate(
      trainer_, {.module = std::move(module), .loader = std::move(loader), .data = std::move(data)},
      options);
}

int64_t Tuner::scale_batch_size(std::shared_ptr<Module> module, DataLoader train,
                                const ScaleBatchSizeOptions& options) {
  check_no_callback<BatchSizeFinder>(trainer_, "trainer.scale_batch_size", "batch_size_finder");
  return detail::find_batch_size(
      trainer_, {.module = std::move(module), .loader = std::move(train), .data = nullptr},
      options);
}

int64_t Tuner::scale_batch_size(std::shared_ptr<Module> module, std::shared_ptr<DataModule> data,
                                const ScaleBatchSizeOptions& options) {
  check_no_callback<BatchSizeFinder>(trainer_, "trainer.scale_batch_size", "batch_size_finder");
  trainer_.set_up(data, "fit");
  DataLoader loader = needed_loader(data->train_dataloader());
  return detail::find_batch_size(
      trainer_, {.module = std::move(module), .loader = std::move(loader), .data = std::move(data)},
      options);
}

LrFinder Tuner::lr_find(const std::shared_ptr<Module>& module, const LrFindOptions& options) {
  return lr_find(module, loader_of(module), options);
}

int64_t Tuner::scale_batch_size(const std::shared_ptr<Module>& module,
                                const ScaleBatchSizeOptions& options) {
  return scale_batch_size(module, loader_of(module), options);
}

}  // namespace levin
