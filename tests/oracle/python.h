#pragma once
// Python beside a test: the interpreter of `make oracle`, or one named by LEVIN_ORACLE_PYTHON that
// has the packages of tests/oracle/requirements.txt. A test is skipped where there is neither.

#include <gtest/gtest.h>
#include <sys/types.h>

#include <algorithm>
#include <cstdio>
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

/// One interpreter for the scripts of all tests (run_scripts.py): what they import takes longer than most of them.
class PythonScripts {
 public:
  explicit PythonScripts(const std::string& python);
  ~PythonScripts();
  PythonScripts(const PythonScripts&) = delete;
  PythonScripts& operator=(const PythonScripts&) = delete;
  /// The exit code, or minus the signal that ended it.
  int run(const std::string& script, const std::string& arguments,
          const std::filesystem::path& output);

 private:
  FILE* requests_ = nullptr;
  FILE* answers_ = nullptr;
  pid_t process_ = -1;
};

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
    static PythonScripts scripts(python_);
    const int code = scripts.run(script, arguments, file("output"));
    *output = bytes_of(file("output"));
    return code;
  }

 private:
  std::string python_;
  std::filesystem::path folder_;
};

}  // namespace levin::test
