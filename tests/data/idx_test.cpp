#include <gmock/gmock.h>
#include <torch/torch.h>

#include <filesystem>

#include "levin/data/sources/sources.h"
#include "tests/data/write_idx.h"
#include "tests/support/error_of.h"

namespace {

namespace fs = std::filesystem;

using levin::test::error_of;
using levin::test::TemporaryFolder;
using levin::test::write_idx;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ReadIdx, GivesTensorsOfEveryType) {
  const TemporaryFolder folder;
  for (const auto dtype : {at::kByte, at::kChar, at::kShort, at::kInt, at::kFloat, at::kDouble}) {
    const auto wanted = torch::randint(0, 100, {3, 2, 5}).to(dtype);
    write_idx(folder.path() / "array", wanted);
    const auto got = levin::data::read_idx(folder.path() / "array");
    EXPECT_EQ(got.scalar_type(), dtype);
    EXPECT_TRUE(torch::equal(got, wanted)) << dtype;
  }
}

TEST(ReadIdx, TheTensorOutlivesTheReading) {
  const TemporaryFolder folder;
  write_idx(folder.path() / "array", torch::arange(1000).to(at::kInt));
  const auto view = levin::data::read_idx(folder.path() / "array").narrow(0, 500, 2);
  EXPECT_EQ(view[1].item<int>(), 501);
}

TEST(ReadIdx, ATruncatedFileIsAnErrorWithFileAndOffset) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "array";
  write_idx(file, torch::zeros({4, 10}, at::kByte));
  fs::resize_file(file, 12 + 25);
  EXPECT_THAT(error_of([&] { levin::data::read_idx(file); }),
              AllOf(StartsWith("files.idx: "), HasSubstr(file.string()), HasSubstr("37")));
}

}  // namespace
