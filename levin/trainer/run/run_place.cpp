#include "levin/trainer/run/run_place.h"

#include <fmt/format.h>

namespace levin::detail {

std::string RunPlace::text() const {
  std::string around, name;
  switch (loop_) {
    case Loop::kNone:
      return "";
    case Loop::kTraining:
      if (batch_ == kStart) return fmt::format("start of epoch {}", epoch_);
      if (batch_ == kEnd) return fmt::format("end of epoch {}", epoch_);
      return fmt::format("epoch {}, batch {}", epoch_, batch_);
    case Loop::kValidation:
      around = fmt::format("epoch {}, ", epoch_);
      name = "validation";
      break;
    case Loop::kSanityCheck:
      around = "sanity check, ";
      name = "validation";
      break;
    case Loop::kValidate:
      name = "validation";
      break;
    case Loop::kTest:
      name = "test";
      break;
    case Loop::kPredict:
      name = "predict";
      break;
  }
  if (batch_ == kStart) return fmt::format("{}start of {}", around, name);
  if (batch_ == kEnd) return fmt::format("{}end of {}", around, name);
  return fmt::format("{}{} batch {}", around, name, batch_);
}

}  // namespace levin::detail
