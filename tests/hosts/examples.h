#pragma once
// The examples of several processes at a small size, and what they promise.

#include "tests/hosts/program.h"

namespace levin::test {

struct Example {
  std::string name;
  Words words;
  std::string promise;     // how the last line begins
  bool on_stderr = false;  // as that of the last epoch, which others follow

  ::testing::AssertionResult kept_its_promise(const Program& program) const {
    return says_once(on_stderr ? program.err() : program.out(), promise, !on_stderr);
  }
};

inline Example ddp() {
  return {
      "OwnLoop", {LEVIN_07_DDP, "--devices", "0", "--epochs", "1", "--limit", "640"}, "accuracy="};
}

inline Example classifier() {
  return {"Trainer",
          {LEVIN_01_CLASSIFIER, "--max-epochs", "1", "--limit-train-batches", "10",
           "--limit-val-batches", "2"},
          "val_acc=",
          true};
}

}  // namespace levin::test
