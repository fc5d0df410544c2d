// Saves and loads the state of a training loop of one's own.

#include <string>
#include <utility>

#include "levin/accelerator/accelerator.h"
#include "levin/accelerator/engine/engine.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/checkpoint/torch/torch_file.h"
#include "levin/module/parameters.h"

namespace levin {

State Accelerator::state_of(const torch::nn::Module& module) {
  engine_->placement_.end_batch();
  return module_state(module);
}

Checkpoint Accelerator::state_dict() { return engine_->state_dict(); }

void Accelerator::load_state_dict(const Checkpoint& checkpoint) {
  engine_->load_state_dict(checkpoint);
}

Checkpoint Accelerator::read_checkpoint(const std::filesystem::path& folder) const {
  return engine_->read_checkpoint(folder);
}

void Accelerator::poll_saves() { engine_->poll_saves(); }
void Accelerator::finish_saves() { engine_->finish_saves(); }

void Accelerator::register_state(Save save, Load load) {
  engine_->registered_.push_back({std::move(save), std::move(load)});
}

void Accelerator::register_schedule(Save save, Load load) {
  engine_->schedules_.push_back({std::move(save), std::move(load)});
}

std::filesystem::path Accelerator::save_state(const std::filesystem::path& folder,
                                              const SaveCheckpointOptions& options) {
  finish_saves();  // it may be the newest of the project
  State place;
  if (folder.empty()) {
    engine_->on_writers_or_throw(
        [&] { place.set("folder", engine_->project_.next_checkpoint().string()); });
    place = broadcast_object(place);
  }
  const std::filesystem::path target =
      folder.empty() ? std::filesystem::path(place.text("folder")) : folder;
  Checkpoint checkpoint = state_dict();
  all_or_throw([&] {
    for (const auto& hook : engine_->save_hooks_) hook(checkpoint);
  });
  const bool is_numbered = folder.empty();
  const auto then = [engine = engine_.get(), is_numbered](const std::exception_ptr& failure) {
    if (failure) std::rethrow_exception(failure);
    if (is_numbered) {
      engine->on_writers_or_throw([&] { engine->project_.remove_old_checkpoints(); });
    }
  };
  engine_->write_checkpoint(target, checkpoint, options, then);
  if (!options.async_save) then(nullptr);
  return target;
}

void Accelerator::save(const State& tensors, const std::filesystem::path& file) {
  engine_->on_writers_or_throw([&] { save_weights(file, tensors); });
}

void Accelerator::save_module(const torch::nn::Module& module, const std::filesystem::path& file) {
  engine_->placement_.end_batch();
  State weights = full(module);
  if (is_torch_file_name(file)) {
    weights = with_tied_names(std::move(weights), tied_names(module));
  }
  save(weights, file);
}

void Accelerator::save_model_state(const State& weights, const std::filesystem::path& folder,
                                   int64_t max_shard_bytes) {
  save_sharded_weights(folder, weights, world(),
                       {.max_shard_bytes = max_shard_bytes,
                        .save_on_each_node = engine_->options_.project_config.save_on_each_node});
}

void Accelerator::load_state(const std::filesystem::path& folder) {
  finish_saves();
  State place;
  if (folder.empty()) {
    engine_->on_writers_or_throw(
        [&] { place.set("folder", engine_->project_.newest_checkpoint().string()); });
    place = broadcast_object(place);
  }
  Checkpoint checkpoint;
  all_or_throw([&] {
    checkpoint =
        read_checkpoint(folder.empty() ? std::filesystem::path(place.text("folder")) : folder);
    for (const auto& hook : engine_->load_hooks_) hook(checkpoint);
  });
  load_state_dict(checkpoint);
}

void Accelerator::register_save_state_pre_hook(std::function<void(Checkpoint&)> hook) {
  engine_->save_hooks_.push_back(std::move(hook));
}

void Accelerator::register_load_state_pre_hook(std::function<void(const Checkpoint&)> hook) {
  engine_->load_hooks_.push_back(std::move(hook));
}

}  // namespace levin
