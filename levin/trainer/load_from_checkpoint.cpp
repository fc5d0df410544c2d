#include <torch/nn/module.h>

#include "levin/base/check.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/module/base.h"
#include "levin/trainer/trainer.h"

namespace levin::detail {

std::map<std::string, std::string> hparams_of(const std::filesystem::path& checkpoint,
                                              const LoadFromCheckpointOptions& options) {
  std::map<std::string, std::string> values = options.hparams;
  State saved;
  if (is_checkpoint(checkpoint)) {
    const State training = CheckpointReader(checkpoint).training_scalars();
    if (training.contains("hparams")) saved = training.child("hparams");
  }
  LEVIN_CHECK(
      !saved.empty(), "trainer.hparams",
      "{} has no hyper-parameters; override hparams() of the module and save again, or make "
      "the module yourself and load the weights with load_module_state",
      checkpoint.string());
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

}  // namespace levin::detail
