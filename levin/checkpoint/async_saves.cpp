#include "levin/checkpoint/async_saves.h"

#include <utility>

#include "levin/checkpoint/checkpoint_save.h"
#include "levin/checkpoint/saving/piece_writing_impl.h"

namespace levin {

AsyncSaves::AsyncSaves(comm::ProcessGroup group)
    : group_(std::move(group)), buffer_(std::make_unique<detail::SaveBuffer>()) {}

AsyncSaves::~AsyncSaves() = default;

void AsyncSaves::start(const std::filesystem::path& folder, const Checkpoint& checkpoint,
                       const SaveCheckpointOptions& options, SaveThen then) {
  finish();
  save_ = std::make_unique<CheckpointSave>(folder, checkpoint, group_, options, buffer_.get());
  then_ = std::move(then);
  polls_unasked_ = 0;
}

void AsyncSaves::poll() {
  constexpr int64_t kPollsUnasked = 10;
  if (save_ == nullptr) return;
  const bool is_quick = group_.size() == 1 || group_.backend() == "shm";
  if (!is_quick && ++polls_unasked_ < kPollsUnasked) return;
  polls_unasked_ = 0;
  if (!group_.any(!save_->is_written())) finish();
}

void AsyncSaves::finish() {
  if (save_ == nullptr) return;
  const auto save = std::exchange(save_, nullptr);
  const SaveThen then = std::exchange(then_, {});
  std::exception_ptr failure;
  try {
    save->finish();
  } catch (...) {
    failure = std::current_exception();
  }
  if (then) {
    then(failure);
  } else if (failure) {
    std::rethrow_exception(failure);
  }
}

void AsyncSaves::drop() {
  save_.reset();
  then_ = {};
}

}  // namespace levin
