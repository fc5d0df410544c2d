#include "levin/checkpoint/checkpoint_save.h"

#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "levin/checkpoint/saving/shared_save_impl.h"
#include "levin/files/atomic.h"
#include "levin/files/shared_file.h"

namespace levin {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> make_files(const fs::path& folder, const detail::SavePlan& plan,
                                 files::Room room) {
  std::vector<fs::path> places;
  for (const detail::PlannedFile& file : plan.files) {
    places.push_back(folder / file.name);
    files::create_file(places.back(), file.size, room);
  }
  return places;
}

}  // namespace

struct CheckpointSave::Impl {
  std::optional<files::StagedDirectory> staged;  // set on the rank that makes the folder
  detail::SharedSave save;
  std::atomic<bool> is_written{true};
  std::thread writer;

  Impl(comm::ProcessGroup group, const Checkpoint& checkpoint, const fs::path& folder,
       const SaveCheckpointOptions& options)
      : save(
            std::move(group), [&] { return detail::sources_of(checkpoint); },
            [&] { return detail::plan_checkpoint(checkpoint, options.max_shard_bytes); },
            detail::sharers_of(folder, options)) {
    save.stage([&](const detail::SavePlan& plan) {
      staged.emplace(folder, options.replace ? is_checkpoint : files::MayReplace());
      // On each host a part of the bytes alone is written.
      const auto room = options.save_on_each_node ? files::Room::kAsWritten : files::Room::kNow;
      return make_files(staged->path(), plan, room);
    });
  }
};

CheckpointSave::CheckpointSave(const fs::path& folder, const Checkpoint& checkpoint,
                               comm::ProcessGroup group, const SaveCheckpointOptions& options,
                               detail::SaveBuffer* buffer)
    : impl_(std::make_unique<Impl>(std::move(group), checkpoint, folder, options)) {
  if (buffer == nullptr) {
    impl_->save.write();
    return;
  }
  impl_->save.copy_into(*buffer);
  impl_->is_written = false;
  impl_->writer = std::thread([impl = impl_.get()] {
    impl->save.write();
    impl->is_written = true;
  });
}

CheckpointSave::~CheckpointSave() {
  if (impl_->writer.joinable()) impl_->writer.join();
}

bool CheckpointSave::is_written() const { return impl_->is_written; }

void CheckpointSave::finish() {
  if (impl_->writer.joinable()) impl_->writer.join();
  impl_->save.finish([&](const detail::Manifest& manifest) {
    detail::write_manifest(impl_->staged->path(), manifest);
    impl_->staged->commit();
  });
}

void save_checkpoint(const fs::path& folder, const Checkpoint& checkpoint,
                     const SaveCheckpointOptions& options) {
  CheckpointSave(folder, checkpoint, comm::ProcessGroup(), options).finish();
}

}  // namespace levin
