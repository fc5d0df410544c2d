#include <gmock/gmock.h>
#include <torch/torch.h>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"

namespace {

using levin::Batch;
using levin::data::Sample;
using levin::test::error_of;
using testing::HasSubstr;
using testing::StartsWith;

using Indices = std::vector<int64_t>;

Sample row(int64_t index) {
  return {{"x", torch::full({2, 3}, index, at::kFloat)}, {"label", torch::tensor(index)}};
}

Sample add_noise(Sample sample, std::mt19937_64& random) {
  const double noise = std::uniform_real_distribution<double>()(random);
  sample.set("x", sample["x"] + noise);
  return sample;
}

/// All x of two epochs.
at::Tensor two_epochs(int64_t workers) {
  const auto dataset = levin::data::samples(23, row, {.transform = add_noise});
  levin::DataLoader loader(dataset,
                           {.batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 11});
  std::vector<at::Tensor> seen;
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const auto& batch : loader) seen.push_back(batch["x"].clone());
  }
  return torch::cat(seen);
}

TEST(SampleDataset, StacksSamples) {
  const Batch batch = levin::data::samples(10, row)->get(Indices{4, 0, 9});
  EXPECT_EQ(batch["x"].sizes(), (Indices{3, 2, 3}));
  EXPECT_TRUE(torch::equal(batch["label"], torch::tensor({4, 0, 9})));
  EXPECT_EQ(batch["x"][2][0][0].item<float>(), 9);
}

TEST(SampleDataset, StacksIntoTheMemoryItIsGiven) {
  const auto dataset = levin::data::samples(10, row);
  Batch first = dataset->get(Indices{4, 0, 9});
  const void* memory = first["x"].const_data_ptr();
  const Batch second = dataset->draw(Indices{1, 2}, {}, std::move(first));
  EXPECT_EQ(second["x"].const_data_ptr(), memory);
  EXPECT_TRUE(torch::equal(second["x"], dataset->get(Indices{1, 2})["x"]));
}

TEST(SampleDataset, CollateMakesTheBatch) {
  const auto count = [](std::vector<Sample> samples) {
    return Batch{{"count", torch::full({1}, std::ssize(samples))}};
  };
  const auto dataset = levin::data::samples(10, row, {.collate = count});
  EXPECT_EQ(dataset->get(Indices{1, 2, 3})["count"].item<int64_t>(), 3);
}

TEST(SampleDataset, TransformsAreRandomBySampleAndEpoch) {
  const at::Tensor x = two_epochs(0).select(1, 0).select(1, 0);
  const at::Tensor noise = x - x.floor();
  EXPECT_EQ(std::get<0>(at::_unique(noise)).numel(), 46);
}

TEST(SampleDataset, TransformsDoNotDependOnTheWorkers) {
  const at::Tensor alone = two_epochs(0);
  for (const int64_t workers : {1, 3}) EXPECT_TRUE(torch::equal(two_epochs(workers), alone));
}

TEST(SampleDataset, MistakesAreErrors) {
  const auto get = [](auto sample) {
    const auto dataset = levin::data::samples(10, sample);
    return error_of([&] { dataset->get(Indices{0, 3}); });
  };
  EXPECT_EQ(get([](int64_t i) { return Sample{{"x", torch::zeros({i + 1})}}; }),
            "data.samples.stack: 'x' is Float [4] in sample 3, but Float [1] in sample 0; give all "
            "samples one shape and dtype in the transform, or set collate");
  EXPECT_THAT(get([](int64_t i) {
                return Sample{{"x", torch::zeros({2}, i > 0 ? at::kLong : at::kFloat)}};
              }),
              StartsWith("data.samples.stack"));
  EXPECT_EQ(get([](int64_t i) { return Sample{{i > 0 ? "y" : "x", torch::zeros({2})}}; }),
            "data.samples.stack: sample 3 has no 'x', but sample 0 has it; give all samples the "
            "same fields");
  EXPECT_EQ(get([](int64_t i) { return i > 0 ? Sample{} : row(0); }),
            "data.samples.stack: sample 3 has 0 fields, but sample 0 has 2; give all samples the "
            "same fields");
  EXPECT_THAT(error_of([] { levin::data::samples(3, row)->get(Indices{3}); }),
              StartsWith("data.samples.index: got index 3"));
  EXPECT_THAT(error_of([] { levin::data::samples(-1, row); }), StartsWith("data.samples.get"));
  EXPECT_THAT(error_of([] { levin::data::samples(3, nullptr); }), HasSubstr("no function"));
}

}  // namespace
