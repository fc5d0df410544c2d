#pragma once
// Trackers: the loggers of a loop of one's own, under Accelerate's names.
// Written by the main process alone; the others' calls do nothing.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/observe/logger.h"

namespace levin {

class LEVIN_API Trackers {
 public:
  /// names: of AcceleratorOptions::log_with. Throws Error "accelerator.log_with".
  Trackers(std::vector<std::string> names, std::string project_dir, bool is_main);

  using Texts = std::map<std::string, std::string>;
  /// Opens them under project_dir/project_name/version_N, with the run's settings. init_kwargs: by
  /// tracker. Throws Error "accelerator.log_with" and "base.options.unknown", on all ranks.
  void init(const std::string& project_name, const Texts& config,
            const std::map<std::string, Texts>& init_kwargs = {});
  void add(std::string name, std::shared_ptr<Logger> logger);
  void log(const Scalars& values, int64_t step);
  /// Null in processes that are not the main one. Throws Error "accelerator.tracker".
  std::shared_ptr<Logger> get(const std::string& name) const;
  void end();

 private:
  std::vector<std::string> names_;
  std::string project_dir_;
  bool is_main_;
  bool has_warned_ = false;
  std::vector<std::pair<std::string, std::shared_ptr<Logger>>> loggers_;
};

}  // namespace levin
