// Runs a program of levin::cli inside a test.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "levin/trainer/cli.h"

namespace levin::test {

/// The exit code and the words of a program.
struct Said {
  int code;
  std::string out, err;
};

/// arguments: without the name of the program.
template <class Module, class Data>
Said run_tool(std::vector<std::string> arguments, const TrainerOptions& defaults) {
  arguments.insert(arguments.begin(), "tool");
  std::vector<const char*> words;
  for (const std::string& word : arguments) words.push_back(word.c_str());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Said said;
  said.code = cli<Module, Data>(static_cast<int>(words.size()), words.data(), defaults);
  said.out = ::testing::internal::GetCapturedStdout();
  said.err = ::testing::internal::GetCapturedStderr();
  return said;
}

}  // namespace levin::test
