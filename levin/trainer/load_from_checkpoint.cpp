#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/module/base.h"
#include "levin/trainer/trainer.h"

namespace levin::detail {

std::map<std::string, std::string> hparams_of(const std::filesystem::path& checkpoint,
                                              const LoadFromCheckpointOptions& options,
                                              bool of_data) {
  const std::string key = of_data ? "data_hparams" : "hparams";
  std::map<std::string, std::string> values = options.hparams;
  State saved;
  if (is_checkpoint(checkpoint)) {
    const State training = CheckpointReader(checkpoint).training_scalars();
    if (training.contains(key)) saved = training.child(key);
  }
  LEVIN_CHECK(!saved.empty(), "trainer.hparams",
              "{} has no hyper-parameters{}; override hparams() and save again, or make the module "
              "yourself and load the weights with load_module_state",
              checkpoint.string(), of_data ? " of a data module" : "");
  for (const auto& [name, value] : saved.values()) values.emplace(name, saved.text(name));
  return values;
}

void load_from(const std::filesystem::path& checkpoint, Module& module,
               const LoadOptions& options) {
  if (is_checkpoint(checkpoint)) {
    const State training = load_checkpoint(checkpoint).training;
    if (training.contains("bases")) check_bases(module, training.child("bases").child("0"));
    if (training.contains("user")) module.on_load_checkpoint(training.child("user"));
  }
  load_module_state(module, load_weights(checkpoint), options);
}

void load_from(const std::filesystem::path& checkpoint, DataModule& data, const LoadOptions&) {
  if (!is_checkpoint(checkpoint)) return;
  const State training = load_checkpoint(checkpoint).training;
  if (training.contains("data")) data.load_state_dict(training.child("data"));
}

}  // namespace levin::detail
