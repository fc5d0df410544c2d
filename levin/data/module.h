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

#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
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

/// Datasets of DataModule::from_datasets().
struct Datasets {
  DatasetPtr train;                 ///< for training, shuffled; null: none
  std::vector<DatasetPtr> val;      ///< for validation, one loader each
  std::vector<DatasetPtr> test;     ///< for testing, one loader each
  std::vector<DatasetPtr> predict;  ///< for prediction, one loader each
  int64_t batch_size = 1;           ///< samples per batch on one rank
  int64_t num_workers = 0;          ///< worker threads of each loader
};

/// Loaders and the preparation of their data. Override the functions that the run needs: fit needs
/// train_dataloader, validate needs val_dataloader, and so on; all others have defaults.
class LEVIN_API DataModule {
 public:
  virtual ~DataModule() = default;
  /// Returns a data module with a loader for each of these datasets;
  /// LightningDataModule.from_datasets. Throws Error "data.loader.dataset" for a null pointer in a
  /// list, and the errors of DataLoader's constructor.
  static std::shared_ptr<DataModule> from_datasets(const Datasets& datasets);

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
  /// Returns several loaders for prediction; by default the one of predict_dataloader().
  virtual std::vector<DataLoader> predict_dataloaders() {
    return detail::list_of(predict_dataloader());
  }

  /// Called with each batch on the host, before the module's hook of this name; returns the batch
  /// to use. Lightning calls one of the two hooks only.
  virtual Batch on_before_batch_transfer(Batch batch) { return batch; }
  /// Returns the batch on the device of the run. nullopt, the default: the Trainer moves it.
  virtual std::optional<Batch> transfer_batch_to_device(const Batch& batch, at::Device device) {
    return std::nullopt;
  }
  /// Called with each batch on the device, before the module's hook of this name; returns the batch
  /// to use.
  virtual Batch on_after_batch_transfer(Batch batch) { return batch; }
  /// Called when a run ends by an exception. An exception that it throws is only logged.
  virtual void on_exception(const std::exception& error) {}

  /// Returns hyper-parameters of the data, for loggers and checkpoints; for example
  /// options_as_text(options). load_from_checkpoint() makes a data module from them.
  virtual std::map<std::string, std::string> hparams() const { return {}; }
  /// State of your own that a checkpoint keeps under "data"; empty by default. Loaders save their
  /// positions themselves.
  virtual State state_dict() const { return {}; }
  /// Restores the state of state_dict() when a run is resumed.
  virtual void load_state_dict(const State& state) {}
};

}  // namespace levin
