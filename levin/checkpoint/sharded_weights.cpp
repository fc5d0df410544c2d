#include <memory>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/posix.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/manifest_impl.h"
#include "levin/checkpoint/saving/shared_save_impl.h"
#include "levin/files/atomic.h"
#include "levin/files/folder.h"
#include "levin/files/shared_file.h"

namespace levin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = "model";
constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// "model-00001-of-00003.safetensors" and no other name.
bool is_shard(const std::string& name) {
  static const std::regex form("model-[0-9]{5}-of-[0-9]{5}\\.safetensors");
  return std::regex_match(name, form);
}

void remove_file(const fs::path& file) {
  std::error_code error;
  fs::remove(file, error);
  LEVIN_CHECK(!error, "files.write", "cannot remove {}: {}", file.string(), error.message());
}

/// Weights of an earlier save that are no part of this one. A file that cannot be removed costs
/// room and nothing else.
void remove_others(const fs::path& folder, const std::set<std::string>& kept) {
  std::error_code ignored;
  for (const fs::path& entry : files::entries_of(folder)) {
    const std::string name = entry.filename().string();
    if ((is_shard(name) || name == kWhole) && !kept.contains(name)) fs::remove(entry, ignored);
  }
}

/// All of it is on the disk. If the process dies from here on, it leaves the files of one save with
/// their index, or files of two without any.
void commit(const fs::path& folder, const detail::SavePlan& plan,
            const std::vector<std::unique_ptr<files::StagedFile>>& staged) {
  if (staged.size() == 1) {
    staged.front()->commit();
    remove_file(folder / kIndex);  // before what it names
    return remove_others(folder, {kWhole});
  }
  std::set<std::string> kept;
  bool are_new = true;
  std::error_code error;
  for (const detail::PlannedFile& file : plan.files) {
    kept.insert(file.name);
    are_new = are_new && !fs::exists(fs::symlink_status(folder / file.name, error));
  }
  if (!are_new) {
    remove_file(folder / kIndex);
    posix::sync_path(folder);
  }
  for (const auto& file : staged) file->commit();
  files::write_file_atomically(folder / kIndex, detail::index_of(plan));
  remove_others(folder, kept);
}

}  // namespace

void save_sharded_weights(const fs::path& folder, const State& weights, int64_t max_shard_bytes) {
  save_sharded_weights(folder, weights, comm::ProcessGroup(), {.max_shard_bytes = max_shard_bytes});
}

void save_sharded_weights(const fs::path& folder, const State& weights, comm::ProcessGroup group,
                          const SaveCheckpointOptions& options) {
  std::vector<std::unique_ptr<files::StagedFile>> staged;
  detail::SharedSave save(
      std::move(group), [&] { return detail::Sources{{kModel, weights}}; },
      [&] {
        return detail::plan_weights(kModel,
                                    detail::weight_files(kModel, weights, options.max_shard_bytes));
      },
      detail::sharers_of(folder, options));
  save.stage([&](const detail::SavePlan& plan) {
    std::error_code error;
    fs::create_directories(folder, error);
    LEVIN_CHECK(!error, "files.write", "cannot make {}: {}", folder.string(), error.message());
    std::vector<fs::path> places;
    for (const detail::PlannedFile& file : plan.files) {
      staged.push_back(std::make_unique<files::StagedFile>(folder / file.name));
      places.push_back(staged.back()->path());
      files::give_size(places.back(), file.size);
    }
    return places;
  });
  save.write();
  save.finish([&](const detail::Manifest&) { commit(folder, save.plan(), staged); });
}

}  // namespace levin
