#include "levin/accelerator/project/trackers.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"

namespace levin {
namespace {

using Maker = std::shared_ptr<Logger> (*)(LoggerOptions options);

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> kMakers = {
      {"csv", csv_logger},
      {"jsonl", jsonl_logger},
      {"mlflow",
       [](LoggerOptions options) {
         return mlflow_logger({.experiment_name = options.name, .save_dir = options.save_dir});
       }},
      {"tensorboard", [](LoggerOptions options) {
         return tensorboard_logger(
             {.save_dir = options.save_dir, .name = options.name, .version = options.version});
       }}};
  return kMakers;
}

/// A server is one of "all" where the environment names it, as in Accelerate.
bool is_available(const std::string& name) {
  return name != "mlflow" || std::getenv("MLFLOW_TRACKING_URI") != nullptr;
}

}  // namespace

Trackers::Trackers(std::vector<std::string> names, std::string project_dir, bool is_main)
    : names_(std::move(names)), project_dir_(std::move(project_dir)), is_main_(is_main) {
  if (names_ == std::vector<std::string>{"all"}) {
    names_.clear();
    for (const auto& [name, make] : makers()) {
      if (is_available(name)) names_.push_back(name);
    }
  }
  for (const std::string& name : names_) {
    LEVIN_CHECK(makers().contains(name), "accelerator.log_with",
                "got '{}', wanted csv, jsonl, mlflow, tensorboard or all; add other trackers with "
                "add_tracker",
                name);
  }
}

void Trackers::init(const std::string& project_name,
                    const std::map<std::string, std::string>& config) {
  if (!is_main_) return;
  const std::string dir = project_dir_.empty() ? "levin_logs" : project_dir_;
  std::optional<int64_t> version;
  for (const std::string& name : names_) {
    if (!version) version = claim_version(dir + "/" + project_name);
    add(name, makers().at(name)({.save_dir = dir, .name = project_name, .version = version}));
  }
  for (const auto& [name, logger] : loggers_) logger->log_hyperparams(config);
}

void Trackers::add(std::string name, std::shared_ptr<Logger> logger) {
  if (is_main_) loggers_.emplace_back(std::move(name), std::move(logger));
}

void Trackers::log(const Scalars& values, int64_t step) {
  if (is_main_ && loggers_.empty() && !names_.empty() && !std::exchange(has_warned_, true)) {
    log::warn(
        "accelerator.log_with: log() was called, but no tracker is open; call init_trackers first "
        "and end_training last");
  }
  for (const auto& [name, logger] : loggers_) logger->log_metrics(values, /*epoch=*/0, step);
}

std::shared_ptr<Logger> Trackers::get(const std::string& name) const {
  if (!is_main_) return nullptr;
  const auto found = std::ranges::find_if(loggers_, [&](const auto& l) { return l.first == name; });
  std::vector<std::string> known;
  for (const auto& [other, logger] : loggers_) known.push_back(other);
  LEVIN_CHECK(
      found != loggers_.end(), "accelerator.tracker",
      "got the tracker '{}', wanted one of [{}]; name it in log_with and call init_trackers", name,
      to_text(known));
  return found->second;
}

void Trackers::end() {
  for (const auto& [name, logger] : loggers_) logger->finalize("success");
  loggers_.clear();
}

}  // namespace levin
