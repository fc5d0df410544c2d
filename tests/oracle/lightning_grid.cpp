#include "tests/oracle/lightning_grid.h"

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "levin/data/sources/sources.h"
#include "levin/trainer/callbacks/callbacks.h"
#include "tests/oracle/lightning_model.h"

namespace lightning_grid {
namespace {

namespace fs = std::filesystem;

/// A setting on its way through its commands.
class Case : Scene {
 public:
  Case(const json& setting, fs::path folder);
  json run();

 private:
  json fit(const json& options);
  json evaluate(const std::string& name);
  levin::TrainerOptions trainer_options(const json& options);
  std::vector<std::shared_ptr<levin::Callback>> callbacks();
  json end() const { return {trainer->current_epoch(), trainer->global_step()}; }
  json files() const;

  fs::path folder_;
  int64_t ranks_;
  std::shared_ptr<levin::Module> module_;
  levin::DataLoader train_, test_;
  std::optional<levin::DataLoader> val_;
  std::shared_ptr<levin::EarlyStopping> early_;
  std::shared_ptr<levin::ModelCheckpoint> checkpoint_;
};

/// So many batches on each rank.
levin::DataLoader loader(int64_t first, int64_t batches, int64_t tail, int64_t ranks) {
  const int64_t size = ranks * (kBatchSize * (batches - 1) + tail);
  const at::Tensor x = at::empty({size, 3}, at::kDouble), y = at::empty({size, 1}, at::kDouble);
  const at::Tensor index = at::arange(first, first + size, at::kDouble);
  for (int64_t row = 0; row < size; ++row) {
    const auto i = static_cast<double>(first + row);
    for (int64_t j = 0; j < 3; ++j) x[row][j] = std::sin(0.7 * i + 1.3 * static_cast<double>(j));
    y[row][0] = std::cos(0.3 * i);
  }
  return {levin::data::tensors({{"x", x}, {"y", y}, {"i", index}}), {.batch_size = kBatchSize}};
}

Case::Case(const json& setting, fs::path folder)
    : Scene{setting, nullptr, nullptr},
      folder_(std::move(folder)),
      ranks_(setting.value("ranks", 1)),
      module_(make_model(*this)),
      train_(loader(0, setting.value("train", 5), setting.value("tail", 4), ranks_)),
      test_(loader(200, 2, 3, ranks_)) {
  const int64_t batches = setting.value("val", 2);
  if (batches > 0) val_ = loader(100, batches, setting.value("val_tail", 4), ranks_);
}

json Case::run() {
  const json whole_fit = json::array({json::array({"fit", json::object()})});
  json records = json::array();
  for (const json& command : setting.value("do", whole_fit)) {
    record = std::make_unique<Record>(ranks_);
    const std::string name = command[0];
    records.push_back(name == "fit" ? fit(command[1]) : evaluate(name));
  }
  return records;
}

json Case::evaluate(const std::string& name) {
  const levin::Metrics result =
      name == "validate" ? trainer->validate(module_, *val_) : trainer->test(module_, test_);
  json facts = record->facts();
  facts["result"] = metrics_of(result);
  facts["end"] = end();
  return facts;
}

json Case::fit(const json& own) {
  json options = setting.value("trainer", json::object());
  options.update(own);
  levin::FitOptions fit_options;
  if (options.contains("from")) {
    module_ = make_model(*this);
    fit_options.ckpt_path = (folder_ / "kept" / options["from"].get<std::string>()).string();
    options.erase("from");
  }
  trainer = std::make_unique<levin::Trainer>(trainer_options(options));
  trainer->fit(module_, train_, val_, fit_options);
  record->look("end", metrics_of(trainer->callback_metrics()));
  json facts = record->facts();
  facts["end"] = end();
  json weights = json::array();
  for (const at::Tensor& parameter : module_->parameters()) {
    const at::Tensor flat = parameter.detach().to(at::kDouble).view(-1);
    for (int64_t i = 0; i < flat.numel(); ++i) weights.push_back(number(flat[i].item<double>()));
  }
  facts["weights"] = weights;
  if (early_) facts["early"] = {early_->stopped_epoch(), number(early_->best_score())};
  if (checkpoint_) facts["files"] = files();
  return facts;
}

levin::Portion portion(const json& value) {
  if (value.is_number_float()) return value.get<double>();
  return value.get<int64_t>();
}

levin::TrainerOptions Case::trainer_options(const json& given) {
  levin::TrainerOptions o;
  o.accelerator = "cpu";
  o.precision = "64-true";
  o.devices = ranks_;
  o.logger = make_rows(*this);
  o.enable_progress_bar = false;
  o.enable_model_summary = false;
  o.default_root_dir = folder_.string();
  o.exit_on_signal = false;
  o.callbacks = callbacks();
  o.enable_checkpointing = checkpoint_ != nullptr;
  o.max_epochs = 2;
  o.num_sanity_val_steps = 0;
  const std::map<std::string, std::function<void(const json&)>> take = {
      {"max_epochs", [&](const json& v) { o.max_epochs = v.get<int64_t>(); }},
      {"min_epochs", [&](const json& v) { o.min_epochs = v; }},
      {"max_steps", [&](const json& v) { o.max_steps = v; }},
      {"min_steps", [&](const json& v) { o.min_steps = v; }},
      {"max_time", [&](const json& v) { o.max_time = v; }},
      {"fast_dev_run", [&](const json& v) { o.fast_dev_run = v; }},
      {"limit_train_batches", [&](const json& v) { o.limit_train_batches = portion(v); }},
      {"limit_val_batches", [&](const json& v) { o.limit_val_batches = portion(v); }},
      {"val_check_interval", [&](const json& v) { o.val_check_interval = portion(v); }},
      {"check_val_every_n_epoch", [&](const json& v) { o.check_val_every_n_epoch = v; }},
      {"num_sanity_val_steps", [&](const json& v) { o.num_sanity_val_steps = v; }},
      {"log_every_n_steps", [&](const json& v) { o.log_every_n_steps = v; }},
      {"accumulate_grad_batches",
       [&](const json& v) { o.accumulate_grad_batches = v.get<int64_t>(); }},
      {"gradient_clip_val", [&](const json& v) { o.gradient_clip_val = v.get<double>(); }},
      {"gradient_clip_algorithm", [&](const json& v) { o.gradient_clip_algorithm = v; }},
  };
  for (const auto& [name, value] : given.items()) take.at(name)(value);
  return o;
}

std::vector<std::shared_ptr<levin::Callback>> Case::callbacks() {
  std::vector<std::shared_ptr<levin::Callback>> made;
  early_.reset();
  checkpoint_.reset();
  for (const json& described : setting.value("callbacks", json::array())) {
    const json& given = described[1];
    if (described[0] == "early_stopping") {
      levin::EarlyStoppingOptions o;
      o.monitor = given["monitor"];
      o.min_delta = given.value("min_delta", 0.0);
      o.patience = given.value("patience", 3);
      o.mode = given.value("mode", "min");
      if (given.contains("stopping_threshold")) o.stopping_threshold = given["stopping_threshold"];
      if (given.contains("divergence_threshold")) {
        o.divergence_threshold = given["divergence_threshold"];
      }
      if (given.contains("check_on_train_epoch_end")) {
        o.check_on_train_epoch_end = given["check_on_train_epoch_end"].get<bool>();
      }
      made.push_back(early_ = levin::early_stopping(o));
    } else if (described[0] == "checkpoint") {
      levin::ModelCheckpointOptions o;
      o.dirpath = (folder_ / "kept").string();
      o.monitor = given.value("monitor", "");
      o.mode = given.value("mode", "min");
      o.save_top_k = given.value("save_top_k", 1);
      if (given.contains("save_last")) o.save_last = given["save_last"].get<bool>();
      if (given.contains("every_n_train_steps")) {
        o.every_n_train_steps = given["every_n_train_steps"].get<int64_t>();
      }
      if (given.contains("every_n_epochs")) {
        o.every_n_epochs = given["every_n_epochs"].get<int64_t>();
      }
      if (given.contains("save_on_train_epoch_end")) {
        o.save_on_train_epoch_end = given["save_on_train_epoch_end"].get<bool>();
      }
      made.push_back(checkpoint_ = levin::model_checkpoint(o));
    } else {
      made.push_back(
          levin::learning_rate_monitor({.logging_interval = given.value("logging_interval", "")}));
    }
  }
  made.push_back(make_listener(*this));
  return made;
}

/// What is kept: the best by name, the newest that `last` stands for, the best's name and score.
json Case::files() const {
  json kept = json::array(), last;
  if (fs::exists(folder_ / "kept")) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / "kept")) {
      if (entry.path().filename() == "last") {
        last = fs::read_symlink(entry.path()).filename().string();
      } else {
        names.push_back(entry.path().filename().string());
      }
    }
    std::sort(names.begin(), names.end());
    kept = names;
  }
  const auto score = checkpoint_->best_model_score();
  return {{"kept", kept},
          {"last", last},
          {"best", fs::path(checkpoint_->best_model_path()).filename().string()},
          {"score", score ? number(*score) : json()}};
}

}  // namespace

nlohmann::json run(const nlohmann::json& setting, const fs::path& folder) {
  return Case(setting, folder).run();
}

}  // namespace lightning_grid
