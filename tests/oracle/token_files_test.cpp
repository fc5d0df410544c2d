// Token files that NumPy has written (token_files.py).
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <numeric>

#include "levin/checkpoint/checkpoint.h"
#include "levin/data/sources/sources.h"
#include "tests/oracle/python.h"

namespace token_files_of_python {
namespace {

struct TokenFilesOfPython : levin::test::PythonTest {};

TEST_F(TokenFilesOfPython, HaveTheWindowsOfNanoGpt) {
  std::string output;
  ASSERT_EQ(run("token_files.py", "'" + file("").string() + "'", &output), 0) << output;
  const levin::State wanted = levin::load_weights(file("wanted.safetensors"));
  for (const std::string dtype : {"uint8", "uint16", "uint32", "int32", "int64"}) {
    const auto windows = levin::data::token_windows(
        levin::data::open_token_file(file(dtype + ".bin"), {.dtype = dtype}), {.length = 16});
    ASSERT_EQ(windows->size(), 62) << dtype;
    std::vector<int64_t> all(62);
    std::iota(all.begin(), all.end(), 0);
    const levin::Batch batch = windows->get(all);
    EXPECT_TRUE(at::equal(batch["tokens"], wanted.tensor(dtype + ".x"))) << dtype;
    EXPECT_TRUE(at::equal(batch["targets"], wanted.tensor(dtype + ".y"))) << dtype;
  }
  const auto megatron = levin::data::open_token_file(file("megatron.bin"));
  ASSERT_EQ(megatron->num_sequences(), 5);
  EXPECT_EQ(megatron->size(), 939);
  for (int64_t i = 0; i < 5; ++i) {
    const auto& sequence = wanted.tensor("megatron." + std::to_string(i));
    EXPECT_TRUE(at::equal(megatron->sequence(i), sequence)) << i;
  }
}

}  // namespace
}  // namespace token_files_of_python
