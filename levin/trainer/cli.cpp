#include "levin/trainer/cli.h"

#include <array>
#include <cstdio>

#include "levin/base/check.h"
#include "levin/base/console/last_words.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/base/options/read_options.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/cli_flags.h"
#include "levin/trainer/predictions/prediction_files.h"
#include "levin/trainer/run/checkpoint_search.h"
#include "levin/trainer/trainer.h"

namespace levin::detail {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kCommands = {{
    {"fit", "train the module, and validate it if the options say so"},
    {"validate", "evaluate a checkpoint on the validation data"},
    {"test", "evaluate a checkpoint on the test data"},
    {"predict", "run predict_step on the prediction data and write the outputs to a file"},
    {"lr-find", "search a learning rate, print it and write the curve to files"},
}};

struct PredictOptions {
  std::string output = "predictions.safetensors";
  void fields(FieldVisitor& field) { field("output", output, "file to write the predictions to"); }
};

struct LrFindCommand {
  LrFindOptions options = {};
  std::string output;
  void fields(FieldVisitor& field) {
    options.fields(field);
    field(
        "lr_find_output", output,
        "file of the curve, .svg or .csv; empty: lr_find.svg and lr_find.csv in default_root_dir");
  }
};

std::string usage(std::string_view program) {
  std::string text = fmt::format("usage: {} SUBCOMMAND [--help] [options]\n\n", program);
  for (const auto& [name, what] : kCommands) text += fmt::format("  {:<10}{}\n", name, what);
  return text;
}

void check_command(const std::string& given) {
  std::vector<std::string> names;
  for (const auto& [name, what] : kCommands) names.emplace_back(name);
  if (std::find(names.begin(), names.end(), given) != names.end()) return;
  const auto close = nearest(given, names);
  LEVIN_FAIL("trainer.cli", "got '{}', wanted one of {}; {}", given, to_text(names),
             close ? fmt::format("did you mean '{}'?", *close) : "--help lists them");
}

void print(const Trainer& trainer, const Metrics& metrics) {
  if (!trainer.accelerator().is_main_process()) return;
  for (const auto& [name, value] : metrics) std::printf("%s=%.6g\n", name.c_str(), value);
}

void search_rate(Trainer& trainer, const std::shared_ptr<Module>& module,
                 const std::shared_ptr<DataModule>& data, const LrFindCommand& search) {
  const LrFinder found = Tuner(trainer).lr_find(module, data, search.options);
  if (!trainer.accelerator().is_main_process()) return;
  if (const std::optional<double> lr = found.suggestion()) std::printf("lr=%.6g\n", *lr);
  const std::string beside = trainer.options().default_root_dir + "/lr_find";
  std::vector<std::string> files = {search.output};
  if (search.output.empty()) files = {beside + ".svg", beside + ".csv"};
  for (const std::string& file : files) {
    found.plot(file);
    log::info("trainer: the curve of the learning rate finder was written to {}", file);
  }
}

/// The hyper-parameters of the checkpoint that the command loads, found by the main process for all. A checkpoint that
/// is not there, or cannot be read, is an error of the run, which tells more of it.
State hparams_of_checkpoint(Trainer& trainer, const std::string& command) {
  std::string path = trainer.options().ckpt_path;
  if (path.empty() && command != "fit" && command != "lr-find") path = "last";
  State found;
  if (trainer.accelerator().is_main_process() && !path.empty()) {
    try {
      const auto folder = search_checkpoint(trainer, path, trainer.options().callbacks);
      if (folder && is_checkpoint(*folder)) {
        const State training = CheckpointReader(*folder).training_scalars();
        if (training.contains("hparams")) found = training.child("hparams");
      }
    } catch (const Error&) {
      found = {};
    }
  }
  return trainer.accelerator().broadcast_object(found);
}

/// Options of the module that were not given take the values of the checkpoint's hyper-parameters.
void take_hparams(Trainer& trainer, const std::string& command, const CliParts& parts,
                  const std::set<std::string>& given) {
  const State saved = hparams_of_checkpoint(trainer, command);
  class Names : public FieldVisitor {
   public:
    std::map<std::string, std::string> values;

   protected:
    void visit(Field field) override {
      if (!field.name.empty()) values[field.name] = field.get();
    }
  } before;
  parts.module_fields(before);
  std::map<std::string, std::string> taken;
  for (const auto& [name, value] : before.values) {
    if (!given.contains(name) && saved.contains(name) && saved.text(name) != value) {
      taken[name] = saved.text(name);
    }
  }
  set_options(taken, parts.module_fields);
  for (const auto& [name, value] : taken) {
    log::info("trainer: {} = {} comes from the checkpoint", name, value);
  }
}

/// Returns the module with its optimizer and its hyper-parameters.
std::shared_ptr<Module> make_module(const CliParts& parts, const CliFlags& flags) {
  std::shared_ptr<Module> module = parts.module();
  flags.give_optimizer(*module);
  if (module->hparams().empty()) {
    module->save_hyperparameters(options_as_text(parts.module_fields));
  }
  return module;
}

void run_command(Trainer& trainer, const std::string& command, const CliParts& parts,
                 const CliFlags& flags, const std::string& output, const LrFindCommand& search) {
  const TrainerOptions& options = trainer.options();
  const std::shared_ptr<Module> module = make_module(parts, flags);
  const std::shared_ptr<DataModule> data = parts.data();
  const EvaluateOptions from{.ckpt_path = options.ckpt_path.empty() ? "last" : options.ckpt_path,
                             .return_predictions = false};
  if (command == "fit") {
    trainer.fit(module, data);
  } else if (command == "lr-find") {
    search_rate(trainer, module, data, search);
  } else if (command == "validate") {
    print(trainer, trainer.validate(module, data, from));
  } else if (command == "test") {
    print(trainer, trainer.test(module, data, from));
  } else {
    trainer.predict(module, data, from);  // a callback writes the outputs
    log::info("trainer: predictions were written to {}", output);
  }
}

/// The exit code.
int run_reported(const std::string& command, TrainerOptions options, const CliParts& parts,
                 const CliFlags& flags, const std::set<std::string>& given,
                 const std::string& output, const LrFindCommand& search) {
  if (command == "predict") {
    check_predictions_file(output);
    options.callbacks.push_back(predictions_to(output));
  }
  // First: it seeds what the module draws, and starts the other processes.
  Trainer trainer(options);
  try {
    take_hparams(trainer, command, parts, given);
    run_command(trainer, command, parts, flags, output, search);
    return 0;
  } catch (const std::exception&) {
    std::fprintf(stderr, "%s\n", last_words().c_str());  // the Trainer knows where it came
    return 1;
  }
}

}  // namespace

int run_cli(int argc, const char* const* argv, TrainerOptions defaults, const CliParts& parts) {
  const std::string program = argv[0];
  const std::string command = argc > 1 ? argv[1] : "--help";
  if (command == "--help" || command == "-h") {
    std::fputs(usage(program).c_str(), stdout);
    return argc > 1 ? 0 : 2;
  }
  TrainerOptions options = std::move(defaults);
  PredictOptions predict;
  LrFindCommand search;
  std::set<std::string> given;
  const WalkFields own = [&](FieldVisitor& field) {
    parts.module_fields(field);
    parts.data_fields(field);
  };
  CliFlags flags(own, parts.overrides_optimizer);
  const WalkFields beside_trainer = [&](FieldVisitor& field) {
    own(field);
    flags.fields(field);
  };
  try {
    check_command(command);
    const auto read = read_options({argv + 2, argv + argc},
                                   {.program = program + " " + command, .environment = true},
                                   [&](FieldVisitor& field) {
                                     own(field);
                                     if (command == "predict") predict.fields(field);
                                     if (command == "lr-find") search.fields(field);
                                     options.fields(field);
                                     flags.fields(field);
                                   });
    if (read.text) {
      std::fputs(read.text->c_str(), stdout);
      return 0;
    }
    given = read.given;
    flags.check();
    flags.callbacks().add_to(options.callbacks);
    options.hparams.merge(options_as_text(beside_trainer));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  try {
    return run_reported(command, options, parts, flags, given, predict.output, search);
  } catch (const std::exception&) {
    std::fprintf(stderr, "%s\n", last_words().c_str());
    return 1;
  }
}

}  // namespace levin::detail
