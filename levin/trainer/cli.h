#pragma once
// cli: a complete program for a module and its data, with the subcommands fit, validate, test,
// predict and lr-find, like LightningCLI.
//
//   int main(int argc, char** argv) { return levin::cli<Classifier, Digits>(argc, argv); }
//
//   ./program fit --max-epochs 3 --hidden 256 --optimizer adamw --optimizer.lr 3e-4
//   ./program test --ckpt-path best

#include <functional>
#include <memory>

#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/data/module.h"
#include "levin/module/module.h"
#include "levin/trainer/options.h"

namespace levin {
namespace detail {

/// The part that does not depend on the types.
struct CliParts {
  WalkFields module_fields;          ///< options of the module
  WalkFields data_fields;            ///< options of the data
  bool overrides_optimizer = false;  ///< the module overrides configure_optimizers
  std::function<std::shared_ptr<Module>()> module;
  std::function<std::shared_ptr<DataModule>()> data;
};
LEVIN_API int run_cli(int argc, const char* const* argv, TrainerOptions defaults,
                      const CliParts& parts);

struct NoOptions {
  void fields(FieldVisitor&) {}
};
template <class T>
struct CliOptions {
  using type = NoOptions;
  static std::shared_ptr<T> make(const NoOptions&) { return std::make_shared<T>(); }
};
template <class T>
  requires requires { typename T::Options; }
struct CliOptions<T> {
  using type = typename T::Options;
  static std::shared_ptr<T> make(const type& options) { return std::make_shared<T>(options); }
};

/// True for a class of modules that overrides configure_optimizers: a pointer to a member has the
/// class that declares it.
template <class T>
inline constexpr bool kOverridesOptimizer =
    !requires(OptimizerConfig (Module::*member)()) { member = &T::configure_optimizers; };

}  // namespace detail

/// Runs the subcommand argv[1] (fit, validate, test, predict or lr-find) with a Trainer and returns
/// the exit code: 0, 1 after an error, 2 after a mistake on the command line.
///
/// Flags, TOML keys and environment variables are those of TrainerOptions and, if MyModule or MyData
/// has a nested `struct Options` with fields(), of its Options. Such a class is constructed from its
/// Options, any other without arguments. Both are constructed after the Trainer, so --seed applies
/// to them. An option of these replaces one of the following with the same name.
///
/// --early-stopping.monitor val_loss and other options of a callback add that callback, as does
/// --callbacks early_stopping or --early-stopping; early_stopping, model_checkpoint,
/// weight_averaging and learning_rate_monitor can be added. Error "trainer.cli.callback" tells of a
/// callback that the program adds itself. If MyModule does not override configure_optimizers, the
/// flags of optim::OptimizerOptions choose its optimizer (--optimizer adamw --optimizer.lr 3e-4);
/// if it does, they are Error "trainer.cli.optimizer".
///
/// All options are recorded in hparams.toml, which --config reads. If the module has no hparams(),
/// its Options are its hyperparameters. If a checkpoint is loaded, options of the module that were
/// given neither by flag nor by file nor by the environment have the values of its hyperparameters.
///
/// validate and test print the logged values, one `name=value` per line. predict writes the
/// outputs, joined along dim 0, as the tensor "predictions" of the file --output
/// (predictions.safetensors), as prediction_writer: the outputs of all processes in the order of
/// the samples; of streams, the processes' samples in turns. With several processes, an output needs
/// one row per sample. validate, test and predict load the weights of --ckpt-path, by default `last`.
/// lr-find calls Tuner::lr_find, prints the suggestion as `lr=VALUE` and writes the curve to
/// lr_find.svg and lr_find.csv in --default-root-dir, or to --lr-find-output.
template <class MyModule, class MyData>
int cli(int argc, const char* const* argv, TrainerOptions defaults = {}) {
  using ModuleOptions = detail::CliOptions<MyModule>;
  using DataOptions = detail::CliOptions<MyData>;
  typename ModuleOptions::type module_options;
  typename DataOptions::type data_options;
  return detail::run_cli(
      argc, argv, std::move(defaults),
      {.module_fields = [&](FieldVisitor& field) { module_options.fields(field); },
       .data_fields = [&](FieldVisitor& field) { data_options.fields(field); },
       .overrides_optimizer = detail::kOverridesOptimizer<MyModule>,
       .module = [&] { return ModuleOptions::make(module_options); },
       .data = [&] { return DataOptions::make(data_options); }});
}

}  // namespace levin
