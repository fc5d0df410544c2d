#pragma once
// DataModule: the loaders of one task together, as LightningDataModule.
// What trainer.fit takes as its second argument; a source such as fashion_mnist returns one.

#include <memory>
#include <optional>
#include <string_view>

#include "levin/base/export.h"
#include "levin/base/state.h"
#include "levin/data/loader.h"

namespace levin {

/// Every function may be left as it is, except the loaders that the run needs: fit needs
/// train_dataloader, validate val_dataloader and so on.
class LEVIN_API DataModule {
 public:
  virtual ~DataModule() = default;

  /// Called once on each machine before setup: downloads, unpacking.
  virtual void prepare_data() {}
  /// Called on every rank; stage is "fit", "validate", "test" or "predict".
  virtual void setup(std::string_view stage) {}
  virtual void teardown(std::string_view stage) {}

  virtual std::optional<DataLoader> train_dataloader() { return std::nullopt; }
  virtual std::optional<DataLoader> val_dataloader() { return std::nullopt; }
  virtual std::optional<DataLoader> test_dataloader() { return std::nullopt; }
  virtual std::optional<DataLoader> predict_dataloader() { return std::nullopt; }

  virtual State state_dict() const { return {}; }
  virtual void load_state_dict(const State& state) {}
};

}  // namespace levin
