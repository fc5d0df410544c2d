// levin::cli: optimizer, schedule, callbacks and loggers by flag, the record of a run, and the hyper-parameters of a
// checkpoint.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "levin/checkpoint/checkpoint.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "levin/trainer/cli.h"
#include "tests/trainer/small_run.h"
#include "tests/trainer/tool.h"

namespace {
namespace cli_flags {

using namespace small_run;  // NOLINT
using levin::test::Said;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// A net that leaves its optimizer to the flags.
struct PlainModule : levin::Module {
  struct Options {
    int64_t hidden = 8;
    double scale = 1.0;
    void fields(levin::FieldVisitor& field) {
      field("hidden", hidden, "units of the hidden layer");
      field("scale", scale, "factor of the inputs");
    }
  };
  Options options;
  torch::nn::Sequential net{nullptr};

  explicit PlainModule(Options chosen) : options(chosen) {
    net = register_module("net", torch::nn::Sequential(torch::nn::Linear(6, options.hidden),
                                                       torch::nn::ReLU(), torch::nn::Dropout(0.2),
                                                       torch::nn::Linear(options.hidden, 3)));
  }
  at::Tensor training_step(const levin::Batch& batch) override {
    auto loss =
        torch::nn::functional::cross_entropy(net->forward(batch["x"] * options.scale), batch["y"]);
    log("loss", loss, {.on_step = true, .on_epoch = true});
    return loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_loss",
        torch::nn::functional::cross_entropy(net->forward(batch["x"] * options.scale), batch["y"]));
    log("hidden", static_cast<double>(options.hidden));
    log("scale", options.scale);
  }
  void test_step(const levin::Batch& batch, int64_t index) override {
    validation_step(batch, index);
  }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    return net->forward(batch["x"] * options.scale);
  }
};

struct PlainData : levin::DataModule {
  struct Options {
    int64_t batch_size = 8;
    void fields(levin::FieldVisitor& field) { field("batch_size", batch_size, "samples"); }
  };
  Options options;
  explicit PlainData(Options chosen) : options(chosen) {}
  std::optional<levin::DataLoader> loader() const {
    return levin::DataLoader(dataset(40), {.batch_size = options.batch_size, .shuffle = true});
  }
  std::optional<levin::DataLoader> train_dataloader() override { return loader(); }
  std::optional<levin::DataLoader> val_dataloader() override { return loader(); }
  std::optional<levin::DataLoader> test_dataloader() override { return loader(); }
  std::optional<levin::DataLoader> predict_dataloader() override { return loader(); }
};

template <class TheModule = PlainModule>
Said tool(const std::string& root, std::vector<std::string> arguments,
          const std::vector<std::shared_ptr<levin::Callback>>& callbacks = {}) {
  auto defaults = quiet(root);
  defaults.max_epochs = 2;
  defaults.callbacks = callbacks;
  defaults.logger = true;
  defaults.seed = 3;
  return levin::test::run_tool<TheModule, PlainData>(std::move(arguments), defaults);
}

fs::path last_of(const fs::path& root, int64_t version = 0) {
  return root / "levin_logs" / ("version_" + std::to_string(version)) / "checkpoints/last";
}

std::string text_of(const fs::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

/// The same module with the optimizer in its code.
struct CodedModule : PlainModule {
  using PlainModule::PlainModule;
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 3e-2, .weight_decay = 0.1})
        .schedule(levin::optim::cosine({.warmup_steps = 3}));
  }
};

std::vector<std::string> adamw() {
  return {"--optimizer",
          "adamw",
          "--optimizer.lr",
          "3e-2",
          "--optimizer.weight_decay",
          "0.1",
          "--lr-scheduler",
          "cosine",
          "--lr-scheduler.warmup-steps",
          "3"};
}

std::vector<std::string> with(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(CliFlags, TheOptimizerOfFlagsTrainsAsThatOfCode) {
  const Scratch flags, code, other;
  const Said said = tool(flags.str(), with({"fit"}, adamw()));
  ASSERT_EQ(said.code, 0) << said.err;
  ASSERT_EQ(tool<CodedModule>(code.str(), {"fit"}).code, 0);
  EXPECT_EQ(off_by(last_of(flags.path()), last_of(code.path()), 0.0), "");
  ASSERT_EQ(tool(other.str(), {"fit", "--optimizer", "sgd", "--optimizer.lr", "3e-2"}).code, 0);
  EXPECT_NE(off_by(last_of(flags.path()), last_of(other.path()), 1e-4), "");
}

TEST(CliFlags, ATomlFileAndTheEnvironmentChooseItToo) {
  const Scratch flags, file, environment;
  ASSERT_EQ(tool(flags.str(), with({"fit"}, adamw())).code, 0);
  const std::string config = (file / "run.toml").string();
  std::ofstream(config) << "[optimizer]\nclass = \"torch.optim.AdamW\"\nlr = 3e-2\n"
                           "weight_decay = 0.1\n[lr_scheduler]\nclass = \"cosine\"\n"
                           "warmup-steps = 3\n";
  const Said by_file = tool(file.str(), {"fit", "--config", config});
  ASSERT_EQ(by_file.code, 0) << by_file.err;
  EXPECT_EQ(off_by(last_of(file.path()), last_of(flags.path()), 0.0), "");
  const std::vector<std::pair<std::string, std::string>> variables = {
      {"LEVIN_OPTIMIZER", "adamw"},
      {"LEVIN_OPTIMIZER__LR", "3e-2"},
      {"LEVIN_OPTIMIZER__WEIGHT_DECAY", "0.1"},
      {"LEVIN_LR_SCHEDULER", "cosine"},
      {"LEVIN_LR_SCHEDULER__WARMUP_STEPS", "3"}};
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  const Said by_environment = tool(environment.str(), {"fit"});
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  ASSERT_EQ(by_environment.code, 0) << by_environment.err;
  EXPECT_EQ(off_by(last_of(environment.path()), last_of(flags.path()), 0.0), "");
}

TEST(CliFlags, AnOptimizerThatCannotBeUsedIsAnError) {
  const Scratch root;
  const Said coded = tool<CodedModule>(root.str(), {"fit", "--optimizer", "sgd"});
  EXPECT_EQ(coded.code, 2);
  EXPECT_THAT(coded.err,
              HasSubstr("trainer.cli.optimizer: got an optimizer or a schedule by flag"));
  EXPECT_THAT(tool<CodedModule>(root.str(), {"fit", "--lr-scheduler.gamma", "1"}).err,
              HasSubstr("trainer.cli.optimizer: "));
  EXPECT_THAT(tool<CodedModule>(root.str(), {"fit", "--help"}).out,
              AllOf(Not(HasSubstr("--optimizer")), HasSubstr("--early-stopping")));
  const Said none = tool(root.str(), {"fit"});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, AllOf(HasSubstr("module.configure_optimizers: "),
                              HasSubstr("choose an optimizer with --optimizer")));
  const Said wrong = tool(root.str(), {"fit", "--optimizer", "sgd", "--optimizer.eps", "1"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("optim.choice: sgd has no option 'eps'"));
  EXPECT_EQ(tool(root.str(), {"fit", "--optimizer.lr", "1"}).code, 2);
}

/// With the choice among its own options, and groups around it.
struct OwnChoice : PlainModule {
  struct Options {
    PlainModule::Options plain;
    levin::optim::OptimizerOptions optimizer = {.name = "sgd"};
    void fields(levin::FieldVisitor& field) {
      plain.fields(field);
      optimizer.fields(field);
    }
  };
  Options own;
  explicit OwnChoice(const Options& chosen) : PlainModule(chosen.plain), own(chosen) {
    save_hyperparameters(levin::options_as_text(own));
  }
  levin::OptimizerConfig configure_optimizers() override {
    return own.optimizer.config().group("*.bias", {.weight_decay = 0.0});
  }
};

TEST(CliFlags, AModuleMayHaveTheChoiceAmongItsOptions) {
  const Scratch root;
  const Said said = tool<OwnChoice>(root.str(), with({"fit", "--hidden", "4"}, adamw()));
  ASSERT_EQ(said.code, 0) << said.err;
  const auto loaded = levin::load_from_checkpoint<OwnChoice>(last_of(root.path()));
  EXPECT_EQ(loaded->own.optimizer.name, "adamw");
  EXPECT_EQ(loaded->own.optimizer.config().lr(), 3e-2);
  EXPECT_EQ(loaded->own.optimizer.lr_scheduler.name, "cosine");
  EXPECT_EQ(loaded->options.hidden, 4);
  EXPECT_THAT(text_of(root / "levin_logs/version_0/hparams.toml"),
              AllOf(HasSubstr("\"optimizer.lr\" = 0.03\n"), HasSubstr("optimizer = \"adamw\"\n")));
}

TEST(CliFlags, CallbacksByTheirOptions) {
  const Scratch root;
  const Said said =
      tool(root.str(),
           with({"fit", "--max-epochs", "9", "--early-stopping.monitor", "val_loss",
                 "--early-stopping.stopping-threshold", "1e9", "--model-checkpoint.monitor",
                 "val_loss", "--model-checkpoint.filename", "mine-{epoch}",
                 "--learning-rate-monitor", "--learning-rate-monitor.logging-interval", "epoch"},
                adamw()));
  ASSERT_EQ(said.code, 0) << said.err;
  const fs::path run = root / "levin_logs/version_0";
  EXPECT_TRUE(fs::exists(run / "checkpoints/mine-epoch=0")) << said.err;
  EXPECT_FALSE(fs::exists(run / "checkpoints/mine-epoch=1"));  // stopped after the first
  EXPECT_THAT(text_of(run / "metrics.csv"), HasSubstr("lr-AdamW"));
  const levin::State states =
      levin::CheckpointReader(last_of(root.path())).training_scalars().child("callbacks");
  EXPECT_TRUE(states.contains("early_stopping-val_loss"));
}

TEST(CliFlags, CallbacksByNameAndOff) {
  const Scratch root, averaged, plain;
  ASSERT_EQ(
      tool(averaged.str(), with({"fit", "--callbacks", "weight_averaging,learning_rate_monitor",
                                 "--weight-averaging.decay", "0.5"},
                                adamw()))
          .code,
      0);
  EXPECT_THAT(text_of(averaged / "levin_logs/version_0/hparams.toml"),
              HasSubstr("\"weight_averaging.decay\" = 0.5\n"));
  ASSERT_EQ(
      tool(plain.str(),
           with({"fit", "--weight-averaging.decay", "0.5", "--weight-averaging", "false"}, adamw()))
          .code,
      0);
  ASSERT_EQ(tool(root.str(), with({"fit"}, adamw())).code, 0);
  EXPECT_EQ(off_by(last_of(plain.path()), last_of(root.path()), 0.0), "");
  EXPECT_NE(off_by(last_of(averaged.path()), last_of(root.path()), 1e-6), "");
  const Said unknown = tool(root.str(), with({"fit", "--callbacks", "early_stoping"}, adamw()));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("trainer.cli.callback: got 'early_stoping'"),
                                 HasSubstr("did you mean early_stopping?")));
  const Said twice = tool(root.str(), with({"fit", "--early-stopping.monitor", "loss"}, adamw()),
                          {levin::early_stopping({.monitor = "val_loss"})});
  EXPECT_EQ(twice.code, 2);
  EXPECT_THAT(twice.err, HasSubstr("trainer.cli.callback: got options of early_stopping, but the "
                                   "program adds this callback itself"));
  EXPECT_THAT(tool(root.str(), with({"fit", "--early-stopping.mode", "up"}, adamw())).err,
              HasSubstr("trainer.early_stopping: "));
}

TEST(CliFlags, EachOptionOfACallbackArrives) {
  const Scratch root;
  const Said said = tool(root.str(), {"fit",
                                      "--print-config",
                                      "--early-stopping.monitor=a",
                                      "--early-stopping.min-delta=0.5",
                                      "--early-stopping.patience=7",
                                      "--early-stopping.verbose",
                                      "--early-stopping.mode=max",
                                      "--early-stopping.check-finite=false",
                                      "--early-stopping.stopping-threshold=2",
                                      "--early-stopping.divergence-threshold=3",
                                      "--early-stopping.check-on-train-epoch-end=true",
                                      "--early-stopping.strict=false",
                                      "--early-stopping.log-rank-zero-only",
                                      "--model-checkpoint.save-weights-only",
                                      "--model-checkpoint.verbose",
                                      "--model-checkpoint.auto-insert-metric-name=false",
                                      "--model-checkpoint.load-best-at-end",
                                      "--model-checkpoint.enable-version-counter=false",
                                      "--stochastic-weight-averaging.swa-lrs=0.25,0.125",
                                      "--stochastic-weight-averaging.swa-epoch-start=0.75",
                                      "--stochastic-weight-averaging.annealing-epochs=3",
                                      "--stochastic-weight-averaging.annealing-strategy=linear",
                                      "--finetuning.pattern=net.*",
                                      "--finetuning.unfreeze-at-epoch=21",
                                      "--finetuning.backbone-initial-ratio-lr=0.375",
                                      "--finetuning.backbone-initial-lr=0.625",
                                      "--finetuning.should-align=false",
                                      "--finetuning.train-bn=false",
                                      "--timer.duration=00:01:00:00",
                                      "--timer.interval=epoch",
                                      "--throughput-monitor.window-size=11",
                                      "--throughput-monitor.separator=|",
                                      "--throughput-monitor.available-flops=12",
                                      "--throughput-monitor.flops-per-batch=13",
                                      "--throughput-monitor.synchronize=false",
                                      "--device-stats-monitor.cpu-stats=true",
                                      "--gradient-norm-monitor.norm-type=3",
                                      "--gradient-norm-monitor.by=layer",
                                      "--gradient-norm-monitor.every-n-steps=14",
                                      "--model-checkpoint.dirpath=d",
                                      "--model-checkpoint.filename=f",
                                      "--model-checkpoint.monitor=m",
                                      "--model-checkpoint.save-last=false",
                                      "--model-checkpoint.save-top-k=4",
                                      "--model-checkpoint.save-on-exception=false",
                                      "--model-checkpoint.mode=max",
                                      "--model-checkpoint.every-n-train-steps=5",
                                      "--model-checkpoint.train-time-interval=01:00:02:03",
                                      "--model-checkpoint.every-n-epochs=6",
                                      "--model-checkpoint.save-on-train-epoch-end=false",
                                      "--model-checkpoint.async-save",
                                      "--model-checkpoint.save-on-each-node",
                                      "--weight-averaging.decay=none",
                                      "--weight-averaging.update-every-n-steps=2",
                                      "--weight-averaging.update-starting-at-step=3",
                                      "--weight-averaging.update-starting-at-epoch=4",
                                      "--weight-averaging.use-buffers=false",
                                      "--learning-rate-monitor.logging-interval=step",
                                      "--learning-rate-monitor.log-momentum",
                                      "--learning-rate-monitor.log-weight-decay",
                                      "--learning-rate-monitor.log-key-prefix=p"});
  ASSERT_EQ(said.code, 0) << said.err;
  for (const char* line : {"monitor = \"a\"",
                           "min_delta = 0.5",
                           "patience = 7",
                           "verbose = true",
                           "mode = \"max\"",
                           "check_finite = false",
                           "stopping_threshold = \"2\"",
                           "divergence_threshold = \"3\"",
                           "check_on_train_epoch_end = \"true\"",
                           "strict = false",
                           "log_rank_zero_only = true",
                           "save_weights_only = true",
                           "auto_insert_metric_name = false",
                           "load_best_at_end = true",
                           "enable_version_counter = false",
                           "swa_lrs = \"0.25,0.125\"",
                           "swa_epoch_start = \"0.75\"",
                           "annealing_epochs = 3",
                           "annealing_strategy = \"linear\"",
                           "pattern = \"net.*\"",
                           "unfreeze_at_epoch = 21",
                           "backbone_initial_ratio_lr = 0.375",
                           "backbone_initial_lr = \"0.625\"",
                           "should_align = false",
                           "train_bn = false",
                           "duration = \"00:01:00:00\"",
                           "interval = \"epoch\"",
                           "window_size = 11",
                           "separator = \"|\"",
                           "available_flops = \"12\"",
                           "flops_per_batch = \"13\"",
                           "synchronize = false",
                           "cpu_stats = \"true\"",
                           "norm_type = 3",
                           "by = \"layer\"",
                           "every_n_steps = 14",
                           "dirpath = \"d\"",
                           "filename = \"f\"",
                           "monitor = \"m\"",
                           "save_last = false",
                           "save_top_k = 4",
                           "save_on_exception = false",
                           "every_n_train_steps = 5",
                           "train_time_interval = \"01:00:02:03\"",
                           "every_n_epochs = \"6\"",
                           "save_on_train_epoch_end = \"false\"",
                           "async_save = true",
                           "save_on_each_node = true",
                           "decay = \"none\"",
                           "update_every_n_steps = 2",
                           "update_starting_at_step = 3",
                           "update_starting_at_epoch = \"4\"",
                           "use_buffers = false",
                           "logging_interval = \"step\"",
                           "log_momentum = true",
                           "log_weight_decay = true",
                           "log_key_prefix = \"p\""}) {
    EXPECT_THAT(said.out, HasSubstr(std::string("\n") + line + "\n"));
  }
  EXPECT_THAT(tool(root.str(), {"fit", "--model-checkpoint.train-time-interval=soon"}).err,
              HasSubstr("got model_checkpoint.train_time_interval = 'soon', wanted DD:HH:MM:SS"));
}

TEST(CliFlags, LoggersByName) {
  const Scratch root;
  ASSERT_EQ(tool(root.str(),
                 with({"fit", "--logger", "csv", "--logger.name", "mine", "--logger.version", "4"},
                      adamw()))
                .code,
            0);
  const fs::path run = root / "levin_logs/mine/version_4";
  EXPECT_TRUE(fs::exists(run / "metrics.csv"));
  const auto has_events = [](const fs::path& folder) {
    return std::ranges::any_of(fs::directory_iterator(folder), [](const auto& entry) {
      return entry.path().filename().string().starts_with("events.");
    });
  };
  EXPECT_FALSE(has_events(run));
  const Scratch both;
  const std::string place = (both / "elsewhere").string();
  ASSERT_EQ(tool(both.str(),
                 with({"fit", "--logger", "tensorboard,csv", "--logger.save-dir", place}, adamw()))
                .code,
            0);
  EXPECT_TRUE(fs::exists(both / "elsewhere/version_0/metrics.csv"));
  EXPECT_TRUE(has_events(both / "elsewhere/version_0"));
  EXPECT_TRUE(fs::exists(both / "elsewhere/version_0/checkpoints/last"));
  EXPECT_FALSE(fs::exists(both / "levin_logs"));
  // The run is found there, and goes on there.
  for (const char* command : {"validate", "test", "predict"}) {
    std::vector<std::string> words = {command, "--logger.save-dir", place};
    if (words[0] == "predict") words.push_back("--output=" + (both / "out.safetensors").string());
    const Said said = tool(both.str(), words);
    EXPECT_EQ(said.code, 0) << said.err;
  }
  const Said resumed =
      tool(both.str(), with({"fit", "--logger", "tensorboard,csv", "--logger.save-dir", place,
                             "--ckpt-path", "last", "--max-epochs", "3"},
                            adamw()));
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("elsewhere/version_0"));
  const Scratch none;
  ASSERT_EQ(tool(none.str(), with({"fit", "--logger", "false"}, adamw())).code, 0);
  EXPECT_FALSE(fs::exists(none / "levin_logs"));
  const Said wrong = tool(none.str(), {"fit", "--logger", "cvs"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("base.options.value: logger of the command line: got "
                                   "'cvs', wanted true, false or names of csv,jsonl,tensorboard"));
  EXPECT_THAT(tool(none.str(), {"fit", "--logger", "csv,csv"}).err, HasSubstr("'csv' twice"));
}

TEST(CliFlags, TheRecordOfARunRunsItAgain) {
  const Scratch first, again;
  ASSERT_EQ(
      tool(first.str(), with({"fit", "--hidden", "5", "--scale", "0.5", "--batch-size", "10",
                              "--seed", "11", "--max-epochs", "3", "--early-stopping.monitor",
                              "val_loss", "--weight-averaging.decay", "0.5", "--logger", "csv"},
                             adamw()))
          .code,
      0);
  const fs::path record = first / "levin_logs/version_0/hparams.toml";
  EXPECT_THAT(text_of(record), AllOf(HasSubstr("hidden = 5\n"), HasSubstr("batch_size = 10\n"),
                                     HasSubstr("\"early_stopping.monitor\" = \"val_loss\"\n"),
                                     HasSubstr("\"lr_scheduler.warmup_steps\" = 3\n"),
                                     HasSubstr("logger = \"csv\"\n")));
  // One id in all files of the run.
  const std::string id = levin::CheckpointReader(last_of(first.path()))
                             .training_scalars()
                             .child("loggers")
                             .child("0")
                             .text("run_id");
  EXPECT_EQ(id.size(), 32U);
  EXPECT_EQ(text_of(first / "levin_logs/version_0/run_id"), id + "\n");
  EXPECT_THAT(text_of(record), HasSubstr("\n# run_id = " + id + "\n"));
  const Said said =
      tool(again.str(), {"fit", "--config", record.string(), "--default-root-dir", again.str()});
  ASSERT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(off_by(last_of(again.path()), last_of(first.path()), 0.0), "");
  EXPECT_EQ(text_of(again / "levin_logs/version_0/metrics.csv"),
            text_of(first / "levin_logs/version_0/metrics.csv"));
  EXPECT_THAT(said.err, Not(HasSubstr("is no option")));
}

TEST(CliFlags, ACheckpointBringsTheModulesOptions) {
  const Scratch root;
  ASSERT_EQ(tool(root.str(), with({"fit", "--hidden", "5", "--scale", "0.5"}, adamw())).code, 0);
  for (const char* command : {"validate", "test"}) {
    const Said said = tool(root.str(), {command});
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_THAT(said.out, AllOf(HasSubstr("hidden=5\n"), HasSubstr("scale=0.5\n"))) << command;
    EXPECT_THAT(said.err, HasSubstr("trainer: hidden = 5 comes from the checkpoint"));
  }
  for (const char* path : {"best", "last"}) {
    EXPECT_THAT(tool(root.str(), {"validate", "--ckpt-path", path}).out, HasSubstr("hidden=5\n"));
  }
  // Flags win.
  EXPECT_THAT(tool(root.str(), {"test", "--scale", "2"}).out,
              AllOf(HasSubstr("hidden=5\n"), HasSubstr("scale=2\n")));
  EXPECT_THAT(tool(root.str(), {"test", "--hidden", "8"}).err, HasSubstr("module.state"));
  const std::string output = (root / "out.safetensors").string();
  const Said predicted = tool(root.str(), {"predict", "--output", output});
  ASSERT_EQ(predicted.code, 0) << predicted.err;
  EXPECT_EQ(levin::load_weights(output).tensor("predictions").size(0), 40);
  // A resumed fit.
  const Said resumed =
      tool(root.str(), with({"fit", "--ckpt-path", "last", "--max-epochs", "3"}, adamw()));
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(levin::load_weights(last_of(root.path())).tensor("net.0.weight").size(0), 5);
}

TEST(CliFlags, OptionsOfTheModuleReplaceTheFlagsOfTheirName) {
  struct Named : PlainModule {
    struct Options {
      PlainModule::Options plain;
      std::string callbacks = "own";
      void fields(levin::FieldVisitor& field) {
        plain.fields(field);
        field("callbacks", callbacks, "the module's own");
      }
    };
    explicit Named(const Options& options) : PlainModule(options.plain) {}
  };
  const Scratch root;
  const Said said = tool<Named>(root.str(), {"fit", "--help"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr("--callbacks [own]"));
}

TEST(CliFlags, HelpIsShortAndUnfolds) {
  const Scratch root;
  const Said help = tool(root.str(), {"fit", "--help"});
  EXPECT_THAT(help.out, AllOf(HasSubstr("--optimizer.OPTION"), HasSubstr("--lr-scheduler.OPTION"),
                              HasSubstr("--model-checkpoint.OPTION"), HasSubstr("--logger.OPTION"),
                              Not(HasSubstr("--model-checkpoint.save-top-k"))));
  EXPECT_THAT(
      tool(root.str(), {"fit", "--help", "model_checkpoint"}).out,
      AllOf(HasSubstr("--model-checkpoint.save-top-k [1]"), Not(HasSubstr("--early-stopping"))));
  EXPECT_THAT(tool(root.str(), {"fit", "--help-all"}).out,
              AllOf(HasSubstr("--model-checkpoint.save-top-k [1]"),
                    HasSubstr("--optimizer.weight-decay []"), HasSubstr("--max-epochs")));
}

}  // namespace cli_flags
}  // namespace
