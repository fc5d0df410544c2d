// Arrays and tar shards that Python has written (arrays.py).
#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "levin/data/sources/sources.h"
#include "levin/files/safetensors.h"
#include "tests/oracle/python.h"

namespace arrays_of_python {
namespace {

struct ArraysOfPython : levin::test::PythonTest {
  void make() {
    std::string output;
    ASSERT_EQ(run("arrays.py", "'" + file("").string() + "'", &output), 0) << output;
  }
};

/// Returns whether the array has the shape and the bytes of the entry.
bool equals(const at::Tensor& array, const levin::files::TensorEntry& entry) {
  const at::Tensor rows = array.contiguous();
  return rows.sizes() == at::IntArrayRef(entry.shape) && rows.nbytes() == entry.data.size() &&
         (entry.data.empty() ||
          std::memcmp(rows.const_data_ptr(), entry.data.data(), entry.data.size()) == 0);
}

TEST_F(ArraysOfPython, HaveTheElementsOfNumPy) {
  make();
  const levin::files::SafetensorsFile wanted(file("arrays.safetensors"));
  const levin::Batch plain = levin::data::read_npz(file("arrays.npz"));
  const levin::Batch packed = levin::data::read_npz(file("packed.npz"));
  EXPECT_EQ(wanted.entries().size(), 29);
  EXPECT_EQ(plain.fields().size(), 29);
  for (const auto& entry : wanted.entries()) {
    EXPECT_TRUE(equals(levin::data::read_npy(file(entry.name + ".npy")), entry)) << entry.name;
    EXPECT_TRUE(equals(plain[entry.name], entry)) << entry.name;
    EXPECT_TRUE(equals(packed[entry.name], entry)) << entry.name;
  }
  EXPECT_EQ(plain["float16_c"].scalar_type(), at::kHalf);
  EXPECT_EQ(plain["uint16_f"].scalar_type(), at::kUInt16);
  EXPECT_EQ(plain["complex64_c"].scalar_type(), at::kComplexFloat);
}

TEST_F(ArraysOfPython, TarShardsHaveTheFilesOfEachFormat) {
  make();
  for (const char* name : {"ustar.tar", "gnu.tar", "pax.tar"}) {
    const auto dataset =
        levin::data::tar_shards({file(name).string()}, [](const levin::data::TarSample& sample) {
          const int64_t number = sample.integer("cls");
          const std::string text = sample.text("txt");
          EXPECT_EQ(text, std::string(static_cast<size_t>(37 * number), static_cast<char>(number)));
          EXPECT_EQ(sample.key.find("d/"), sample.key.rfind('/') - 1);
          return levin::data::Sample{{"number", at::tensor(number)}};
        });
    const auto stream = dataset->open(0, {});
    int64_t count = 0;
    for (levin::data::Sample sample; stream->next(sample); ++count) {
      EXPECT_EQ(sample["number"].item<int64_t>(), count);
    }
    EXPECT_EQ(count, 40) << name;
    const auto skipped = dataset->open(0, {});
    EXPECT_EQ(skipped->skip(38), 38);
    EXPECT_EQ(skipped->skip(5), 2);
  }
}

}  // namespace
}  // namespace arrays_of_python
