#pragma once
// HostPart: what a function that is being recorded does beside its tensors, so that a replay of it
// leaves nothing out.
//
//   if (HostPart* recording = compiled.recording()) {
//     recording->with(loss, [this](const at::Tensor& now) { log("loss", now); });
//   }

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/graph/compile/exact_number.h"

namespace levin::graph {

class LEVIN_API HostPart {
 public:
  using Action = std::function<void()>;
  using TensorAction = std::function<void(const at::Tensor&)>;

  /// Actions of the function on the host, to be done before or after each replay, in this order. An action before
  /// must bear to be done again: a replay may be given up, since the host would read something else in it.
  void before(Action action) { before_.push_back(std::move(action)); }
  void after(Action action) { after_.push_back(std::move(action)); }
  /// Called with what the tensor is in that replay, which is the caller's own, before `after`; and
  /// once the function that is recorded has returned, so that the recording has nothing of it.
  /// label: which action it is, where there are others.
  void with(const at::Tensor& value, TensorAction action, std::string label = {});
  /// The recording is of this number alone: under another one the function is called, and what it
  /// does then is compared.
  void depends_on(std::string what, std::function<ExactNumber()> number);
  /// Says why a replay cannot do what the function does: "what; what to do". The first reason
  /// counts; it is reported with the line of the user's code that is running.
  void refuse(std::string reason);

  /// Returns whether this is the first time that an object asks it in this recording: what it reads of itself
  /// is then as it was before the recorded function ran.
  bool is_first(const void* object) { return asked_.insert(object).second; }

  /// Returns in words how the actions of the other differ; "" if they do not.
  std::string difference_to(const HostPart& other) const;

  /// Returns the part of the function that this thread records now; nullptr if it records none.
  static HostPart* current();
  /// While it lives, numbers that are asked for are no conditions: what comes of them is computed
  /// anew before each replay.
  class Pause {
   public:
    explicit Pause(HostPart& recording)
        : recording_(recording), was_paused_(std::exchange(recording.is_paused_, true)) {}
    ~Pause() { recording_.is_paused_ = was_paused_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    HostPart& recording_;
    bool was_paused_;
  };

 private:
  friend class Compiled;
  friend class Recordings;
  /// Returns the one before.
  static HostPart* set_current(HostPart* recording);
  struct Dependence {
    std::string what;
    std::function<ExactNumber()> number;
    ExactNumber value;
    std::vector<void*> frames = {};  ///< the code that asked
  };

  std::vector<Action> before_;
  std::vector<Action> after_;
  std::vector<at::Tensor> values_;
  std::vector<std::pair<size_t, TensorAction>> with_;  ///< by the number of the value
  std::vector<std::string> labels_;                    ///< labels of with_
  std::vector<Dependence> dependences_;
  std::string refused_;
  std::unordered_set<const void*> asked_;
  bool is_paused_ = false;
};

}  // namespace levin::graph
