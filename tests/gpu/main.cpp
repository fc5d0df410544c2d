// gpu_tests ends with 77 where it has skipped all that it was asked for, and its last line says why:
// scripts/gpu_check.sh and ctest tell that from a success.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/support/child_process.h"

namespace {

/// Keeps the reason of the first test that was skipped.
class Reasons : public ::testing::EmptyTestEventListener {
 public:
  std::string first;

 private:
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.type() == ::testing::TestPartResult::kSkip && first.empty())
      first = result.message();
  }
};

}  // namespace

int main(int argc, char** argv) {
  // cuBLAS reads it when the card is first used: one workspace a stream, so that products are the same bits.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  ::testing::InitGoogleMock(&argc, argv);
  auto* reasons = new Reasons;  // GoogleTest deletes it
  ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  all.listeners().Append(reasons);
  const int code = RUN_ALL_TESTS();
  const bool is_skipped = all.successful_test_count() == 0 && all.skipped_test_count() > 0;
  if (code != 0 || !is_skipped) return code;
  std::printf("skipped: %s\n", reasons->first.c_str());
  return levin::test::kSkipped;
}
