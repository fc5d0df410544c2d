#include "levin/trainer/run/listeners.h"

#include <algorithm>
#include <set>
#include <typeinfo>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/trainer/callbacks/callbacks.h"

namespace levin::detail {

std::vector<std::shared_ptr<Callback>> given_callbacks(const TrainerOptions& options,
                                                       Module& module) {
  std::vector<std::shared_ptr<Callback>> callbacks = options.callbacks;
  const auto own = module.configure_callbacks();
  for (const auto& callback : own) {
    LEVIN_CHECK(callback != nullptr, "trainer.callbacks",
                "configure_callbacks of {} returned an empty pointer, wanted a callback",
                module.name());
    if (callback->writes_checkpoints()) continue;
    const Callback& one = *callback;
    std::erase_if(callbacks, [&](const std::shared_ptr<Callback>& other) {
      const Callback& present = *other;
      return typeid(present) == typeid(one);
    });
  }
  callbacks.insert(callbacks.end(), own.begin(), own.end());
  return callbacks;
}

std::vector<std::shared_ptr<Callback>> callbacks_of(
    const TrainerOptions& options, std::vector<std::shared_ptr<Callback>> callbacks, bool is_fit) {
  const auto writes = [](const auto& callback) { return callback->writes_checkpoints(); };
  const bool bare = options.barebones || options.fast_dev_run > 0;
  if (bare || !options.enable_checkpointing || !is_fit) {
    std::erase_if(callbacks, writes);
  } else if (std::ranges::none_of(callbacks, writes)) {
    callbacks.push_back(model_checkpoint({}));
  }
  if (!options.barebones && options.enable_progress_bar) callbacks.push_back(progress_bar({}));
  if (!options.barebones && options.enable_model_summary && is_fit) {
    callbacks.push_back(model_summary({}));
  }
  return callbacks;
}

Listeners::Listeners(Trainer& trainer, Module& module,
                     std::vector<std::shared_ptr<Callback>> callbacks)
    : trainer_(trainer), module_(module), all_(std::move(callbacks)) {
  std::set<const Callback*> seen;
  for (const auto& callback : all_) {
    const std::string key = callback->state_key();
    LEVIN_CHECK(seen.insert(callback.get()).second, "trainer.callbacks",
                "got the callback '{}' twice; give it once", key);
    // Several may monitor the same thing: the second is "key-2".
    std::string place = key;
    for (int64_t number = 2; std::ranges::count(keys_, place) > 0; ++number) {
      LEVIN_CHECK(callback->writes_checkpoints(), "trainer.callbacks",
                  "two callbacks have the state key '{}'; override state_key() in one of them",
                  key);
      place = fmt::format("{}-{}", key, number);
    }
    keys_.push_back(std::move(place));
    (callback->writes_checkpoints() ? writers_ : watchers_).push_back(callback.get());
  }
}

void Listeners::tell_of_exception(const std::exception& error) const {
  for (const auto* group : {&watchers_, &writers_}) {
    for (Callback* callback : *group) {
      try {
        callback->on_exception(trainer_, module_, error);
      } catch (const std::exception& second) {
        log::error("trainer: callback {} failed too: {}", callback->state_key(), second.what());
      }
    }
  }
}

std::string Listeners::checkpoint_folder() const {
  return writers_.empty() ? "" : writers_.front()->checkpoint_folder();
}

State Listeners::state_dict() const {
  State state;
  for (size_t i = 0; i < all_.size(); ++i) state.set(keys_[i], all_[i]->state_dict());
  return state;
}

void Listeners::load_state_dict(const State& state) const {
  for (size_t i = 0; i < all_.size(); ++i) {
    if (state.contains(keys_[i])) {
      all_[i]->load_state_dict(state.child(keys_[i]));
    } else {
      log::warn(
          "trainer: the checkpoint has no state of callback {}, so it starts from its initial "
          "state",
          keys_[i]);
    }
  }
}

void Listeners::load_watchers(const State& state) const {
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i]->writes_checkpoints() || !state.contains(keys_[i])) continue;
    all_[i]->load_state_dict(state.child(keys_[i]));
  }
}

}  // namespace levin::detail
