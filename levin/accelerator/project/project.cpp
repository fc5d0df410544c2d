#include "levin/accelerator/project/project.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/files/folder.h"

namespace levin {
namespace {

constexpr std::string_view kPrefix = "checkpoint_";

}  // namespace

Project::Project(std::filesystem::path project_dir, const ProjectConfiguration& configuration)
    : project_dir_(std::move(project_dir)), configuration_(configuration) {
  LEVIN_CHECK(configuration.iteration >= 0 && configuration.total_limit >= 0, "accelerator.project",
              "got total_limit = {} and iteration = {}, wanted 0 or more",
              configuration.total_limit, configuration.iteration);
  LEVIN_CHECK(configuration.total_limit == 0 || configuration.automatic_checkpoint_naming,
              "accelerator.project",
              "got total_limit = {}, which applies only to automatic_checkpoint_naming; set both",
              configuration.total_limit);
}

void Project::check() const {
  LEVIN_CHECK(!project_dir_.empty() && configuration_.automatic_checkpoint_naming,
              "accelerator.project",
              "got no folder for the state; give one, or set project_dir and "
              "project_config.automatic_checkpoint_naming");
}

std::filesystem::path Project::folder(int64_t number) const {
  return project_dir_ / "checkpoints" / fmt::format("{}{}", kPrefix, number);
}

std::vector<int64_t> Project::numbers() const {
  std::vector<int64_t> found;
  for (const std::filesystem::path& entry : files::entries_of(project_dir_ / "checkpoints")) {
    const std::string name = entry.filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t number = 0;
    const char* end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, number);
    const bool is_number = error == std::errc() && stop == end && number >= 0;
    if (is_number && name == folder(number).filename()) found.push_back(number);
  }
  std::ranges::sort(found);
  return found;
}

int64_t Project::next_number() const {
  check();
  const std::vector<int64_t> known = numbers();
  return std::max(known.empty() ? 0 : known.back() + 1, configuration_.iteration);
}

std::filesystem::path Project::next_checkpoint() const { return folder(next_number()); }

std::filesystem::path Project::newest_checkpoint() const {
  check();
  const std::vector<int64_t> known = numbers();
  LEVIN_CHECK(!known.empty(), "accelerator.project",
              "found no checkpoint under '{}'; call save_state first, or give a folder",
              (project_dir_ / "checkpoints").string());
  return folder(known.back());
}

void Project::remove_old_checkpoints() const {
  if (configuration_.total_limit <= 0) return;
  std::vector<int64_t> known = numbers();
  std::erase_if(known, [&](int64_t number) { return !is_checkpoint(folder(number)); });
  const int64_t too_many = std::ssize(known) - configuration_.total_limit;
  for (int64_t i = 0; i < too_many; ++i) {
    try {
      remove_checkpoint(folder(known[static_cast<size_t>(i)]));
    } catch (const Error& error) {
      log::warn("accelerator: could not remove an old checkpoint: {}", error.text());
    }
  }
}

}  // namespace levin
