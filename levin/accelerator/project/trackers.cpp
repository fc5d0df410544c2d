#include "levin/accelerator/project/trackers.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"

namespace levin {
namespace {

using Texts = std::map<std::string, std::string>;

/// A kind of tracker: options of its logger from text, which every rank reads, and the logger itself.
struct Kind {
  void (*check)(const Texts& more);
  std::shared_ptr<Logger> (*make)(const LoggerOptions& place, const Texts& more);
};

template <class Options>
Options with(Options options, const Texts& more) {
  set_options(options, more);
  return options;
}

void check_logger(const Texts& more) { with(LoggerOptions(), more); }

const std::map<std::string, Kind>& kinds() {
  static const std::map<std::string, Kind> kKinds = {
      {"csv",
       {check_logger, [](const LoggerOptions& place,
                         const Texts& more) { return csv_logger(with(place, more)); }}},
      {"jsonl",
       {check_logger, [](const LoggerOptions& place,
                         const Texts& more) { return jsonl_logger(with(place, more)); }}},
      {"mlflow",
       {[](const Texts& more) {
          LEVIN_CHECK(more.empty(), "accelerator.log_with",
                      "got init_kwargs of mlflow, which takes none; set MLFLOW_TRACKING_URI, or "
                      "give add_tracker levin::mlflow_logger with its options");
        },
        [](const LoggerOptions& place, const Texts&) {
          return mlflow_logger({.experiment_name = place.name, .save_dir = place.save_dir});
        }}},
      {"tensorboard",
       {[](const Texts& more) { with(TensorBoardOptions(), more); },
        [](const LoggerOptions& place, const Texts& more) {
          return tensorboard_logger(with(
              TensorBoardOptions{
                  .save_dir = place.save_dir, .name = place.name, .version = place.version},
              more));
        }}}};
  return kKinds;
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
    for (const auto& [name, kind] : kinds()) {
      if (is_available(name)) names_.push_back(name);
    }
  }
  for (const std::string& name : names_) {
    LEVIN_CHECK(kinds().contains(name), "accelerator.log_with",
                "got '{}', wanted csv, jsonl, mlflow, tensorboard or all; add other trackers with "
                "add_tracker",
                name);
  }
}

void Trackers::init(const std::string& project_name, const Texts& config,
                    const std::map<std::string, Texts>& init_kwargs) {
  for (const auto& [name, more] : init_kwargs) {
    LEVIN_CHECK(std::ranges::find(names_, name) != names_.end(), "accelerator.log_with",
                "got init_kwargs of '{}', wanted those of a tracker in log_with: [{}]", name,
                to_text(names_));
    kinds().at(name).check(more);
  }
  if (!is_main_) return;
  const std::string dir = project_dir_.empty() ? "levin_logs" : project_dir_;
  std::optional<int64_t> version;
  for (const std::string& name : names_) {
    if (!version) version = claim_version(dir + "/" + project_name);
    const auto more = init_kwargs.find(name);
    add(name, kinds().at(name).make({.save_dir = dir, .name = project_name, .version = version},
                                    more == init_kwargs.end() ? Texts() : more->second));
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
