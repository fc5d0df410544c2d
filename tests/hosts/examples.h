#pragma once
// The examples of several processes at a small size, and what they promise.

#include <filesystem>

#include "tests/hosts/program.h"
#include "tests/support/places.h"

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

/// Programs lie beside each other.
inline std::string example_program(const std::string& name) {
  return std::filesystem::path(levin_command()).replace_filename(name);
}

inline Example ddp() {
  return {"OwnLoop",
          {example_program("07_ddp"), "--devices", "0", "--epochs", "1", "--limit", "640"},
          "accuracy="};
}

inline Example classifier() {
  return {"Trainer",
          {example_program("01_classifier"), "--max-epochs", "1", "--limit-train-batches", "10",
           "--limit-val-batches", "2"},
          "val_acc=",
          true};
}

}  // namespace levin::test
