#pragma once
// Python beside a test: the interpreter of `make oracle`, or one named by LEVIN_ORACLE_PYTHON that
// has the packages of tests/oracle/requirements.txt. A test is skipped where there is neither.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tests/support/places.h"

namespace levin::test {

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

class PythonTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* given = std::getenv("LEVIN_ORACLE_PYTHON");
    python_ = given != nullptr ? given : levin::test::source_dir() + "/.deps/oracle/bin/python";
    if (!std::filesystem::exists(python_)) {
      GTEST_SKIP() << "no " << python_ << "; make oracle makes it";
    }
    std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::ranges::replace(name, '/', '_');
    folder_ = std::filesystem::path(::testing::TempDir()) / ("levin_" + name);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::filesystem::path file(const std::string& name) const { return folder_ / name; }

  /// Runs a script of this folder; its exit code, and what it printed through `output`.
  int run(const std::string& script, const std::string& arguments, std::string* output) const {
    const std::string command = "'" + python_ + "' '" + levin::test::source_dir() +
                                "/tests/oracle/" + script + "' " + arguments + " > '" +
                                file("output").string() + "' 2>&1";
    const int code = std::system(command.c_str());  // NOLINT: no threads here
    *output = bytes_of(file("output"));
    return code;
  }

 private:
  std::string python_;
  std::filesystem::path folder_;
};

}  // namespace levin::test
