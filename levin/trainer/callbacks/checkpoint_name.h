#pragma once
// checkpoint_name: the folder's name of a checkpoint, of ModelCheckpointOptions::filename.
//
//   checkpoint_name("{epoch}-{val_loss:.2f}", {.epoch = 3, .step = 120, .metrics = {{"val_loss", 0.5}}});
//   // "epoch=3-val_loss=0.50"

#include <cstdint>
#include <map>
#include <string>

#include "levin/base/export.h"

namespace levin::detail {

struct CheckpointMoment {
  int64_t epoch = 0;
  int64_t step = 0;
  std::map<std::string, double> metrics = {};  ///< one that is not there is nan
  bool insert_names = true;                    ///< "epoch=3"; false: "3"
};

/// A slash in an inserted name becomes "_". A count with the format of a fraction ("{step:.2f}") is written as one, as in Python. Throws Error
/// "trainer.checkpoint.options" for a '{' without its '}', and a format that no number of that kind takes; both
/// whatever the moment.
LEVIN_API std::string checkpoint_name(const std::string& pattern, const CheckpointMoment& moment);

}  // namespace levin::detail
