#pragma once
// cli: a whole program of a module and its data, with the subcommands fit, validate, test, predict.
// Over the Trainer, as LightningCLI.
//
//   int main(int argc, char** argv) { return levin::cli<Classifier, Digits>(argc, argv); }
//
//   ./program fit --max-epochs 3 --hidden 256
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
  WalkFields fields;  ///< of the options of module and data
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

}  // namespace detail

/// Runs argv[1], one of fit, validate, test and predict, and returns the exit code: 0, 1 after an
/// error, 2 after a mistake on the command line. Flags and TOML keys are TrainerOptions and, where
/// MyModule or MyData has a nested `struct Options` with fields(), those too; such a class is made
/// from its Options, any other without arguments; after the Trainer, whose --seed holds for them.
/// validate and test print what was logged, one `name=value` a line; predict writes the outputs,
/// joined along dim 0, as the tensor "predictions" of the file --output (predictions.safetensors):
/// those of all processes in the order of the samples, of a stream one process' after another's,
/// and then with a row for each sample. validate, test and predict take their weights from
/// --ckpt-path, `last` where none is given.
template <class MyModule, class MyData>
int cli(int argc, const char* const* argv, TrainerOptions defaults = {}) {
  using ModuleOptions = detail::CliOptions<MyModule>;
  using DataOptions = detail::CliOptions<MyData>;
  typename ModuleOptions::type module_options;
  typename DataOptions::type data_options;
  return detail::run_cli(argc, argv, std::move(defaults),
                         {.fields =
                              [&](FieldVisitor& field) {
                                module_options.fields(field);
                                data_options.fields(field);
                              },
                          .module = [&] { return ModuleOptions::make(module_options); },
                          .data = [&] { return DataOptions::make(data_options); }});
}

}  // namespace levin
