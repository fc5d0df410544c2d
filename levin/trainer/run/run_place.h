#pragma once
// RunPlace: where a run stands, for the text of an error: in the loop that runs, not the one around it.
// Moved on by the loops; read when an exception ends the run.
//
//   place.enter(RunPlace::Loop::kTraining, epoch, batch);  // text(): "epoch 2, batch 40"

#include <cstdint>
#include <string>

namespace levin::detail {

class RunPlace {
 public:
  enum class Loop {
    kNone,        ///< before the first loop: nothing is said
    kTraining,    ///< "epoch 2, batch 40"
    kValidation,  ///< validation of a fit: "epoch 2, validation batch 3"
    kSanityCheck,
    kValidate,  ///< Trainer::validate: "validation batch 3"
    kTest,
    kPredict,
  };
  /// Stand for a batch: hooks before the first batch, and after the last.
  static constexpr int64_t kStart = -1, kEnd = -2;

  void enter(Loop loop, int64_t epoch, int64_t batch) {
    loop_ = loop;
    epoch_ = epoch;
    batch_ = batch;
  }
  /// Enters another batch of the same loop and epoch.
  void enter(int64_t batch) { batch_ = batch; }
  /// "epoch 2, batch 40", "sanity check, start of validation", "end of the test"; empty for kNone.
  std::string text() const;

 private:
  Loop loop_ = Loop::kNone;
  int64_t epoch_ = 0;
  int64_t batch_ = kStart;
};

}  // namespace levin::detail
