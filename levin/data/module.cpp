#include "levin/data/module.h"

#include <utility>

namespace levin {
namespace {

class DatasetsModule final : public DataModule {
 public:
  explicit DatasetsModule(const Datasets& datasets) {
    const auto loader = [&](const DatasetPtr& dataset, bool shuffle) {
      return DataLoader(dataset, {.batch_size = datasets.batch_size,
                                  .shuffle = shuffle,
                                  .num_workers = datasets.num_workers});
    };
    if (datasets.train != nullptr) train_ = loader(datasets.train, /*shuffle=*/true);
    for (const DatasetPtr& dataset : datasets.val) val_.push_back(loader(dataset, false));
    for (const DatasetPtr& dataset : datasets.test) test_.push_back(loader(dataset, false));
    for (const DatasetPtr& dataset : datasets.predict) predict_.push_back(loader(dataset, false));
  }

  std::optional<DataLoader> train_dataloader() override { return train_; }
  std::optional<DataLoader> val_dataloader() override { return first(val_); }
  std::vector<DataLoader> val_dataloaders() override { return val_; }
  std::optional<DataLoader> test_dataloader() override { return first(test_); }
  std::vector<DataLoader> test_dataloaders() override { return test_; }
  std::optional<DataLoader> predict_dataloader() override { return first(predict_); }
  std::vector<DataLoader> predict_dataloaders() override { return predict_; }

 private:
  static std::optional<DataLoader> first(const std::vector<DataLoader>& loaders) {
    return loaders.empty() ? std::nullopt : std::optional(loaders.front());
  }

  std::optional<DataLoader> train_;
  std::vector<DataLoader> val_;
  std::vector<DataLoader> test_;
  std::vector<DataLoader> predict_;
};

}  // namespace

std::shared_ptr<DataModule> DataModule::from_datasets(const Datasets& datasets) {
  return std::make_shared<DatasetsModule>(datasets);
}

}  // namespace levin
