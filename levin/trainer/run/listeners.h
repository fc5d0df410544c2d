#pragma once
// Listeners: the callbacks of a run, in the order of their hooks. Callbacks that write checkpoints
// come last, so that a checkpoint has what the others have done.

#include <memory>
#include <string>
#include <vector>

#include "levin/base/state.h"
#include "levin/module/module.h"
#include "levin/trainer/options.h"
#include "levin/trainer/profile/hook_name.h"
#include "levin/trainer/profile/run_profile.h"

namespace levin {
class Module;
class Trainer;
}  // namespace levin

namespace levin::detail {

class Listeners {
 public:
  /// Throws Error "trainer.callbacks" for one that is given twice, and for two of one state key.
  Listeners(Trainer& trainer, Module& module, std::vector<std::shared_ptr<Callback>> callbacks);

  template <class... Params, class... Args>
  void tell(void (Callback::*hook)(Trainer&, Module&, Params...), Args&&... args) const {
    tell_watchers(hook, args...);
    tell_writers(hook, args...);
  }
  /// Calls the hook of callbacks that write no checkpoints.
  template <class... Params, class... Args>
  void tell_watchers(void (Callback::*hook)(Trainer&, Module&, Params...), Args&&... args) const {
    for (Callback* callback : watchers_) tell_one(callback, hook, args...);
  }
  template <class... Params, class... Args>
  void tell_writers(void (Callback::*hook)(Trainer&, Module&, Params...), Args&&... args) const {
    for (Callback* callback : writers_) tell_one(callback, hook, args...);
  }
  /// Times the hooks; nullptr: does not.
  void set_profile(RunProfile* profile) { profile_ = profile; }
  /// One that throws too is logged.
  void tell_of_exception(const std::exception& error) const;

  const std::vector<std::shared_ptr<Callback>>& all() const { return all_; }
  bool have_writers() const { return !writers_.empty(); }
  /// Returns the folder of the first callback that writes checkpoints; empty: there is none.
  std::string checkpoint_folder() const;

  /// By state key.
  State state_dict() const;
  void load_state_dict(const State& state) const;
  /// Loads the states of callbacks that write no checkpoints.
  void load_watchers(const State& state) const;

 private:
  template <class Hook, class... Args>
  void tell_one(Callback* callback, Hook hook, Args&&... args) const {
    const ActionScope scope(
        profile_, [&] { return "[Callback]" + callback->state_key() + "." + hook_name(hook); });
    (callback->*hook)(trainer_, module_, args...);
  }

  RunProfile* profile_ = nullptr;
  Trainer& trainer_;
  Module& module_;
  std::vector<std::shared_ptr<Callback>> all_;
  std::vector<std::string> keys_;  ///< key of each callback in a checkpoint
  std::vector<Callback*> watchers_;
  std::vector<Callback*> writers_;
};

/// Returns the given callbacks, and those that a run of that kind always has.
std::vector<std::shared_ptr<Callback>> callbacks_of(const TrainerOptions& options,
                                                    std::vector<std::shared_ptr<Callback>> given,
                                                    bool is_fit);

/// Returns the options' callbacks and the module's own (configure_callbacks), which replace those of
/// their class.
std::vector<std::shared_ptr<Callback>> given_callbacks(const TrainerOptions& options,
                                                       Module& module);

}  // namespace levin::detail
