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

DataLoader training_loader(DataModule& data) {
  std::optional<DataLoader> loader = data.train_dataloader();
  LEVIN_CHECK(loader, "trainer.dataloader",
              "got no train_dataloader; override it in the data module");
  return *std::move(loader);
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
  DataLoader loader = training_loader(*data);
  return detail::find_learning_rate(
      trainer_,
      {.module = std::move(module), .loader = std::move(loader), .data = std::move(data)}, options);
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
  DataLoader loader = training_loader(*data);
  return detail::find_batch_size(
      trainer_,
      {.module = std::move(module), .loader = std::move(loader), .data = std::move(data)}, options);
}

}  // namespace levin
