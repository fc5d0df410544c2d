#pragma once
// DataModule: the data loaders of one task, as lightning.pytorch.LightningDataModule.
// It is the second argument of Trainer::fit; sources such as data::fashion_mnist return one.
//
//   struct Digits : DataModule {
//     std::optional<DataLoader> train_dataloader() override {
//       return DataLoader(dataset, {.batch_size = 64, .shuffle = true});
//     }
//     DatasetPtr dataset;
//   };
//   trainer.fit(module, std::make_shared<Digits>());

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/data/loader.h"

namespace levin {

namespace detail {
/// Returns a list of the loader, or an empty list.
inline std::vector<DataLoader> list_of(std::optional<DataLoader> loader) {
  return loader ? std::vector<DataLoader>{*std::move(loader)} : std::vector<DataLoader>();
}
}  // namespace detail

/// Loaders and the preparation of their data. Override the functions that the run needs: fit needs
/// train_dataloader, validate needs val_dataloader, and so on; all others have defaults.
class LEVIN_API DataModule {
 public:
  virtual ~DataModule() = default;

  /// Called once on each machine before setup(), to download or unpack data.
  virtual void prepare_data() {}
  /// Called on every rank before the loaders; `stage` is "fit", "validate", "test" or "predict".
  virtual void setup(std::string_view stage) {}
  /// Called on every rank at the end of the run, with the stage that setup() got.
  virtual void teardown(std::string_view stage) {}

  /// Returns the loader for training; nullopt if there is none.
  virtual std::optional<DataLoader> train_dataloader() { return std::nullopt; }
  /// Returns the loader for validation; nullopt if there is none.
  virtual std::optional<DataLoader> val_dataloader() { return std::nullopt; }
  /// Returns several loaders for validation; by default the one of val_dataloader().
  virtual std::vector<DataLoader> val_dataloaders() { return detail::list_of(val_dataloader()); }
  /// Returns the loader for testing; nullopt if there is none.
  virtual std::optional<DataLoader> test_dataloader() { return std::nullopt; }
  /// Returns several loaders for testing; by default the one of test_dataloader().
  virtual std::vector<DataLoader> test_dataloaders() { return detail::list_of(test_dataloader()); }
  /// Returns the loader for prediction; nullopt if there is none.
  virtual std::optional<DataLoader> predict_dataloader() { return std::nullopt; }

  /// State of your own that a checkpoint keeps under "data"; empty by default. Loaders save their
  /// positions themselves.
  virtual State state_dict() const { return {}; }
  /// Restores the state of state_dict() when a run is resumed.
  virtual void load_state_dict(const State& state) {}
};

}  // namespace levin
