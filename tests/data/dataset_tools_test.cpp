// Datasets made of other datasets. Expected indices are printed by torch.utils.data (torch 2.13) and
// scikit-learn 1.9.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>
#include <numeric>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"

namespace dataset_tools {
namespace {

using levin::Batch;
using levin::DatasetPtr;
using levin::data::Fold;
using levin::data::Sample;
using levin::test::error_id;
using levin::test::error_of;
using levin::test::from_zero;
using levin::test::indices_of;
using levin::test::numbers;
using levin::test::Order;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::StartsWith;

using Indices = std::vector<int64_t>;

Indices all_of(const DatasetPtr& dataset) {
  if (dataset->size() == 0) return {};
  return indices_of(dataset->get(from_zero(dataset->size())));
}

/// Samples {"index": begin + i, "noise": drawn by LibTorch, "own": drawn by the transform}.
DatasetPtr noisy(int64_t size, int64_t begin = 0) {
  return levin::data::samples(
      size,
      [begin](int64_t i) {
        return Sample{{"index", torch::tensor(begin + i)}, {"noise", torch::rand({})}};
      },
      {.transform = [](Sample sample, std::mt19937_64& random) {
        sample.set("own", torch::tensor(static_cast<int64_t>(random() >> 1)));
        return sample;
      }});
}

/// Each field of an epoch, over all batches.
Batch epoch_of(const DatasetPtr& dataset, levin::DataLoaderOptions options, int64_t epoch = 0) {
  levin::DataLoader loader(dataset, options);
  loader.set_epoch(epoch);
  std::vector<Batch> batches;
  for (Batch batch; loader.next(batch);) batches.push_back(batch);
  Batch all;
  for (const auto& [name, first] : batches.front()) {
    std::vector<at::Tensor> parts;
    for (const Batch& batch : batches) parts.push_back(batch[name].clone());
    all.set(name, torch::cat(parts));
  }
  return all;
}

bool equal(const Batch& a, const Batch& b) {
  if (a.fields().size() != b.fields().size()) return false;
  return std::ranges::all_of(
      a, [&](const auto& field) { return torch::equal(field.second, b[field.first]); });
}

TEST(Subset, ReadsTheseSamplesInThisOrder) {
  const DatasetPtr part = levin::data::subset(numbers(10), {7, 2, 2, 9});
  EXPECT_EQ(part->size(), 4);
  EXPECT_THAT(all_of(part), ElementsAre(7, 2, 2, 9));
  EXPECT_THAT(indices_of(part->get(Indices{3, 0})), ElementsAre(9, 7));
  EXPECT_THAT(all_of(levin::data::subset(part, {3, 1})), ElementsAre(9, 2));
}

TEST(Subset, HasTheRandomDrawsOfTheDatasetsSamples) {
  const Batch whole = epoch_of(noisy(10), {.batch_size = 3, .seed = 5});
  const Batch part = epoch_of(levin::data::subset(noisy(10), {7, 2}), {.batch_size = 2, .seed = 5});
  EXPECT_TRUE(torch::equal(part["noise"], whole["noise"].index_select(0, torch::tensor({7, 2}))));
  EXPECT_TRUE(torch::equal(part["own"], whole["own"].index_select(0, torch::tensor({7, 2}))));
}

TEST(Subset, RefusesIndicesOutOfRange) {
  EXPECT_EQ(error_of([] { levin::data::subset(numbers(3), {0, 3}); }),
            "data.subset.index: got index 3 for a dataset of 3 samples, wanted 0 <= index < 3");
  EXPECT_EQ(error_id([] { levin::data::subset(numbers(3), {-1}); }), "data.subset.index");
  const DatasetPtr part = levin::data::subset(numbers(3), {0, 1});
  EXPECT_EQ(error_id([&] { part->get(Indices{2}); }), "data.subset.index");
  EXPECT_EQ(error_id([] { levin::data::subset(nullptr, {}); }), "data.dataset.null");
}

TEST(RandomSplit, HasTheSamplesOfPyTorch) {
  // random_split(range(11), [0.5, 0.3, 0.2], torch.Generator().manual_seed(42))
  const auto parts = levin::data::random_split(numbers(11), {0.5, 0.3, 0.2}, 42);
  ASSERT_EQ(parts.size(), 3);
  EXPECT_THAT(all_of(parts[0]), ElementsAre(6, 8, 9, 2, 1, 10));
  EXPECT_THAT(all_of(parts[1]), ElementsAre(0, 7, 3));
  EXPECT_THAT(all_of(parts[2]), ElementsAre(5, 4));
  // random_split(range(6), [4, 0, 2], torch.Generator().manual_seed(7))
  const auto counted = levin::data::random_split(numbers(6), {4, 0, 2}, 7);
  EXPECT_THAT(all_of(counted[0]), ElementsAre(3, 0, 1, 5));
  EXPECT_THAT(all_of(counted[1]), IsEmpty());
  EXPECT_THAT(all_of(counted[2]), ElementsAre(2, 4));
}

TEST(RandomSplit, RoundsFractionsAsPyTorch) {
  const auto lengths = [](int64_t size, const std::vector<levin::data::SplitLength>& fractions) {
    Indices lengths;
    for (const auto& part : levin::data::random_split(numbers(size), fractions, 1)) {
      lengths.push_back(part->size());
    }
    return lengths;
  };
  EXPECT_THAT(lengths(10, {0.33, 0.33, 0.34}), ElementsAre(4, 3, 3));
  EXPECT_THAT(lengths(17, {0.25, 0.25, 0.25, 0.25}), ElementsAre(5, 4, 4, 4));
  EXPECT_THAT(lengths(7, {0.7, 0.2, 0.1}), ElementsAre(5, 2, 0));
  EXPECT_THAT(lengths(7, {1.0}), ElementsAre(7));
}

TEST(RandomSplit, RefusesOtherLengths) {
  const auto split = [](const std::vector<levin::data::SplitLength>& lengths) {
    return error_of([&] { levin::data::random_split(numbers(10), lengths, 0); });
  };
  EXPECT_EQ(split({4, 5}), "data.split.lengths: the lengths have the sum 9, wanted 10");
  EXPECT_EQ(split({0.5, 0.4}), "data.split.lengths: the fractions have the sum 0.9, wanted 1");
  EXPECT_EQ(split({5, 0.5}),
            "data.split.lengths: got 2 lengths, 1 of them fractions; give either numbers of "
            "samples or fractions");
  EXPECT_THAT(split({11, -1}), StartsWith("data.split.lengths: got the length -1"));
  EXPECT_THAT(split({}), StartsWith("data.split.lengths: got 0 lengths"));
  EXPECT_EQ(error_id([] { levin::data::random_split(nullptr, {1.0}, 0); }), "data.dataset.null");
}

TEST(KFold, HasContiguousFoldsAsScikitLearn) {
  const std::vector<Fold> folds = levin::data::k_fold(numbers(8), {.n_splits = 3});
  ASSERT_EQ(folds.size(), 3);
  EXPECT_THAT(all_of(folds[0].validation), ElementsAre(0, 1, 2));
  EXPECT_THAT(all_of(folds[0].train), ElementsAre(3, 4, 5, 6, 7));
  EXPECT_THAT(all_of(folds[1].validation), ElementsAre(3, 4, 5));
  EXPECT_THAT(all_of(folds[1].train), ElementsAre(0, 1, 2, 6, 7));
  EXPECT_THAT(all_of(folds[2].validation), ElementsAre(6, 7));
  EXPECT_THAT(all_of(folds[2].train), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST(KFold, ShufflesAsScikitLearn) {
  // KFold(3, shuffle=True, random_state=5).split(range(8))
  const auto folds = levin::data::k_fold(numbers(8), {.n_splits = 3, .shuffle = true, .seed = 5});
  EXPECT_THAT(all_of(folds[0].validation), ElementsAre(2, 4, 7));
  EXPECT_THAT(all_of(folds[0].train), ElementsAre(0, 1, 3, 5, 6));
  EXPECT_THAT(all_of(folds[1].validation), ElementsAre(0, 1, 5));
  EXPECT_THAT(all_of(folds[2].validation), ElementsAre(3, 6));
  // KFold(4, shuffle=True, random_state=123).split(range(30))
  const auto other =
      levin::data::k_fold(numbers(30), {.n_splits = 4, .shuffle = true, .seed = 123});
  EXPECT_THAT(all_of(other[0].validation), ElementsAre(5, 7, 8, 12, 21, 26, 27, 29));
  EXPECT_THAT(all_of(other[1].validation), ElementsAre(3, 4, 11, 14, 16, 18, 23, 24));
  EXPECT_THAT(all_of(other[2].validation), ElementsAre(0, 1, 9, 15, 20, 22, 25));
  EXPECT_THAT(all_of(other[3].validation), ElementsAre(2, 6, 10, 13, 17, 19, 28));
}

TEST(KFold, RefusesNumbersOfFoldsThatDoNotFit) {
  for (const int64_t n_splits : {1, 4, -1}) {
    EXPECT_THAT(error_of([&] { levin::data::k_fold(numbers(3), {.n_splits = n_splits}); }),
                StartsWith("data.k_fold.splits: got n_splits = " + std::to_string(n_splits)));
  }
  EXPECT_EQ(error_id([] { levin::data::k_fold(nullptr); }), "data.dataset.null");
}

TEST(Concat, ReadsDatasetsOneAfterAnother) {
  const DatasetPtr all = levin::data::concat({numbers(3), numbers(1), numbers(2)});
  EXPECT_EQ(all->size(), 6);
  EXPECT_THAT(all_of(all), ElementsAre(0, 1, 2, 0, 0, 1));
  EXPECT_THAT(indices_of(all->get(Indices{5, 0, 3, 2})), ElementsAre(1, 0, 0, 2));
  EXPECT_THAT(indices_of(all->get(Indices{2, 1})), ElementsAre(2, 1));
}

TEST(Concat, DrawsAreThoseOfTheSampleForAnyWorkersAndBatches) {
  const DatasetPtr all = levin::data::concat({noisy(9), noisy(9, 100)});
  const Batch wanted = epoch_of(all, {.batch_size = 18, .seed = 5});
  EXPECT_TRUE(equal(epoch_of(all, {.batch_size = 4, .num_workers = 3, .seed = 5}), wanted));
  EXPECT_FALSE(equal(epoch_of(all, {.batch_size = 18, .seed = 5}, 1), wanted));
  EXPECT_FALSE(equal(epoch_of(all, {.batch_size = 18, .seed = 6}), wanted));
  // The same index of both datasets.
  EXPECT_FALSE(torch::equal(wanted["noise"].slice(0, 0, 9), wanted["noise"].slice(0, 9)));
  EXPECT_FALSE(torch::equal(wanted["own"].slice(0, 0, 9), wanted["own"].slice(0, 9)));
}

TEST(Concat, RefusesDatasetsThatDoNotFitTogether) {
  const auto tensor = [](const char* name, at::Tensor value) {
    return levin::data::tensors({{name, std::move(value)}});
  };
  const auto read = [&](const DatasetPtr& second) {
    const DatasetPtr all = levin::data::concat({tensor("x", torch::zeros({2, 3})), second});
    return error_of([&] { all->get(Indices{0, 2}); });
  };
  EXPECT_EQ(read(tensor("x", torch::zeros({2, 4}))),
            "data.samples.stack: 'x' of dataset 1 is Float [4], but of dataset 0 Float [3]; give "
            "them one shape and dtype");
  EXPECT_THAT(read(tensor("x", torch::zeros({2, 3}, torch::kLong))),
              StartsWith("data.samples.stack: 'x' of dataset 1 is Long [3]"));
  EXPECT_THAT(read(tensor("y", torch::zeros({2, 3}))),
              StartsWith("data.samples.stack: samples of dataset 1 have 'y'"));
  EXPECT_THAT(read(levin::data::tensors({{"x", torch::zeros({2, 3})}, {"y", torch::zeros({2})}})),
              StartsWith("data.samples.stack: samples of dataset 1 have 2 fields"));
  const auto one = [](std::vector<Sample>) { return Batch{{"x", torch::zeros({5, 3})}}; };
  EXPECT_THAT(read(levin::data::samples(2, [](int64_t) { return Sample(); }, {.collate = one})),
              StartsWith("data.samples.stack: dataset 1 returned a batch of 5 samples for 1"));
  EXPECT_EQ(error_id([] { levin::data::concat({}); }), "data.concat.empty");
  EXPECT_EQ(error_id([] { levin::data::concat({numbers(1), nullptr}); }), "data.dataset.null");
  EXPECT_EQ(error_id([] { levin::data::concat({numbers(1)})->get(Indices{1}); }),
            "data.subset.index");
}

/// Numbers of datasets and samples of a mixture of datasets with samples 100 k + i.
std::pair<Indices, Indices> mixed(const std::vector<int64_t>& sizes,
                                  levin::data::MixtureOptions options) {
  std::vector<DatasetPtr> parts;
  for (size_t k = 0; k < sizes.size(); ++k) {
    parts.push_back(levin::data::tensors(
        {{"index", torch::arange(sizes[k], torch::kLong) + static_cast<int64_t>(100 * k)}}));
  }
  std::pair<Indices, Indices> found;
  for (const int64_t index : all_of(levin::data::mixture(parts, std::move(options)))) {
    found.first.push_back(index / 100);
    found.second.push_back(index % 100);
  }
  return found;
}

/// interleave_datasets of Hugging Face's datasets, its loop over drawn sources.
Indices interleaved(const Indices& sources, const std::vector<int64_t>& sizes, bool all) {
  std::vector<bool> exhausted(sizes.size(), false);
  Indices at(sizes.size(), 0), samples;
  for (const int64_t source : sources) {
    const auto done = std::ranges::count(exhausted, true);
    if (all ? done == std::ssize(sizes) : done > 0) break;
    const auto k = static_cast<size_t>(source);
    samples.push_back(at[k]);
    if (++at[k] == sizes[k]) {
      exhausted[k] = true;
      at[k] = 0;
    }
  }
  return samples;
}

TEST(Mixture, ReadsAndEndsAsInterleaveDatasets) {
  const std::vector<int64_t> sizes = {40, 7, 90};
  for (const bool all : {false, true}) {
    const auto end =
        all ? levin::data::MixtureEnd::kAllExhausted : levin::data::MixtureEnd::kFirstExhausted;
    for (uint64_t seed = 0; seed < 5; ++seed) {
      const auto [sources, samples] =
          mixed(sizes, {.weights = {1, 0.5, 1.5}, .end = end, .seed = seed});
      // A source more would show a mixture that ends too early.
      Indices more = sources;
      more.push_back(0);
      EXPECT_EQ(samples, interleaved(more, sizes, all));
    }
  }
}

TEST(Mixture, DrawsDatasetsByTheirWeights) {
  const auto [sources, samples] =
      mixed({99, 99}, {.weights = {1, 3}, .end = levin::data::MixtureEnd::kAllExhausted});
  const double share =
      static_cast<double>(std::ranges::count(sources, 1)) / static_cast<double>(sources.size());
  EXPECT_NEAR(share, 0.75, 0.08);  // 4 standard deviations of 400 draws
  EXPECT_EQ(
      sources,
      mixed({99, 99}, {.weights = {1, 3}, .end = levin::data::MixtureEnd::kAllExhausted}).first);
  EXPECT_NE(
      sources,
      mixed({99, 99}, {.weights = {1, 3}, .end = levin::data::MixtureEnd::kAllExhausted, .seed = 1})
          .first);
}

TEST(Mixture, RepeatedSamplesHaveOtherDraws) {
  const DatasetPtr mixture =
      levin::data::mixture({noisy(2), noisy(30, 100)},
                           {.weights = {1, 1}, .end = levin::data::MixtureEnd::kAllExhausted});
  const Batch batch = epoch_of(mixture, {.batch_size = 8, .seed = 1});
  const at::Tensor first = batch["noise"].masked_select(batch["index"] == 0);
  ASSERT_GT(first.numel(), 3);
  EXPECT_EQ(std::get<0>(at::_unique(first)).numel(), first.numel());
  EXPECT_TRUE(equal(epoch_of(mixture, {.batch_size = 5, .num_workers = 2, .seed = 1}), batch));
}

TEST(Mixture, RefusesWeightsThatDoNotFit) {
  const auto mix = [](std::vector<double> weights, int64_t size = 2) {
    return error_of([&] {
      levin::data::mixture({numbers(2), numbers(size)}, {.weights = std::move(weights)});
    });
  };
  EXPECT_EQ(mix({1}), "data.mixture.weights: got 1 weights for 2 datasets, wanted one for each");
  EXPECT_THAT(mix({1, 0}), StartsWith("data.mixture.weights: got the weight 0 for dataset 1"));
  EXPECT_THAT(mix({1, NAN}), StartsWith("data.mixture.weights: got the weight nan"));
  EXPECT_THAT(mix({1, 1}, 0), StartsWith("data.mixture.weights: dataset 1 has no samples"));
  EXPECT_EQ(error_id([] { levin::data::mixture({}, {}); }), "data.concat.empty");
}

/// Counts how often a sample is read.
DatasetPtr counted(int64_t size, std::shared_ptr<std::atomic<int64_t>> reads) {
  return levin::data::samples(size, [reads](int64_t i) {
    ++*reads;
    return Sample{{"index", torch::tensor(i)}, {"noise", torch::rand({2})}};
  });
}

TEST(Cache, ReadsEachSampleOnce) {
  const auto reads = std::make_shared<std::atomic<int64_t>>(0);
  const DatasetPtr cached = levin::data::cache(counted(12, reads));
  EXPECT_EQ(cached->size(), 12);
  EXPECT_THAT(indices_of(cached->get(Indices{3, 1, 3})), ElementsAre(3, 1, 3));
  EXPECT_EQ(*reads, 2);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const Batch batch = epoch_of(cached, {.batch_size = 5, .num_workers = 2}, epoch);
    EXPECT_EQ(indices_of(batch), from_zero(12));
  }
  EXPECT_GE(*reads, 12);  // two workers may read one at the same time
  const int64_t before = *reads;
  epoch_of(cached, {.batch_size = 5});
  EXPECT_EQ(*reads, before);
  EXPECT_EQ(cached->get(Indices{}).size(), 0);
}

TEST(Cache, DrawsDoNotDependOnTheFirstReader) {
  const Batch wanted = epoch_of(levin::data::cache(noisy(9)), {.batch_size = 9, .seed = 1});
  const Batch other =
      epoch_of(levin::data::cache(noisy(9)), {.batch_size = 2, .num_workers = 3, .seed = 2}, 4);
  EXPECT_TRUE(equal(other, wanted));
  EXPECT_EQ(std::get<0>(at::_unique(wanted["noise"])).numel(), 9);
}

TEST(Cache, RefusesSamplesThatDiffer) {
  const DatasetPtr cached = levin::data::cache(levin::data::samples(4, [](int64_t i) {
    if (i == 3) return Sample{{"y", torch::zeros({1})}};
    if (i == 2) return Sample{{"x", torch::zeros({1})}, {"y", torch::zeros({1})}};
    return Sample{{"x", torch::zeros({i + 1})}};
  }));
  cached->get(Indices{0});
  EXPECT_EQ(error_of([&] { cached->get(Indices{1}); }),
            "data.samples.stack: 'x' is Float [2] in sample 1, but Float [1] in sample 0; give all "
            "samples one shape and dtype");
  EXPECT_THAT(error_of([&] { cached->get(Indices{2}); }),
              StartsWith("data.samples.stack: sample 2 has 2 fields, but sample 0 has 1"));
  EXPECT_THAT(error_of([&] { cached->get(Indices{3}); }),
              StartsWith("data.samples.stack: sample 3 has 'y'"));
  EXPECT_EQ(error_id([&] { cached->get(Indices{4}); }), "data.tensors.index");
  EXPECT_EQ(error_id([] { levin::data::cache(nullptr); }), "data.dataset.null");
}

Indices order_of(levin::Sampler& sampler, int64_t epoch, int64_t consumed = 0) {
  sampler.start(epoch, consumed);
  Indices order(static_cast<size_t>(sampler.size() - consumed));
  EXPECT_EQ(sampler.next(order), std::ssize(order));
  return order;
}

// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
const std::vector<double> kWeights = {0.1, 0.0, 3.0, 1.0, 0.5, 2.0};

TEST(WeightedRandomSampler, DrawsAsPyTorch) {
  // list(WeightedRandomSampler(weights, n, replacement, generator)), its generator seeded by derive_seed(3, epoch)
  const auto with = levin::weighted_random_sampler(kWeights, {.num_samples = 10, .seed = 3});
  EXPECT_THAT(order_of(*with, 0), ElementsAre(3, 2, 5, 3, 2, 2, 4, 5, 2, 5));
  EXPECT_THAT(order_of(*with, 1), ElementsAre(2, 2, 2, 5, 2, 3, 2, 0, 2, 3));
  const auto without =
      levin::weighted_random_sampler(kWeights, {.num_samples = 5, .replacement = false, .seed = 3});
  EXPECT_THAT(order_of(*without, 0), ElementsAre(5, 4, 2, 3, 0));
  EXPECT_THAT(order_of(*without, 1), ElementsAre(4, 2, 5, 3, 0));
  EXPECT_EQ(levin::weighted_random_sampler(kWeights)->size(), 6);
}

TEST(WeightedRandomSampler, StandsWhereItIsStarted) {
  const auto sampler = levin::weighted_random_sampler(kWeights, {.num_samples = 10, .seed = 3});
  const Indices all = order_of(*sampler, 2);
  for (int64_t consumed = 0; consumed <= 10; ++consumed) {
    EXPECT_EQ(order_of(*sampler, 2, consumed), Indices(all.begin() + consumed, all.end()));
  }
}

TEST(WeightedRandomSampler, RanksSplitTheDrawsAndAResumeContinues) {
  const auto loader = [](int64_t rank, int64_t world, int64_t seed = 9) {
    levin::DataLoader made(
        numbers(6), {.batch_size = 2,
                     .sampler = levin::weighted_random_sampler(kWeights, {.num_samples = 12}),
                     .num_workers = 2,
                     .seed = seed});
    made.set_slice({rank, world}, /*even=*/true);
    return made;
  };
  auto one = loader(0, 1);
  const Indices all = levin::test::flat(levin::test::read(one));
  ASSERT_EQ(all.size(), 12);
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto part = loader(rank, 2);
    Indices wanted;
    for (size_t i = static_cast<size_t>(rank); i < 12; i += 2) wanted.push_back(all[i]);
    EXPECT_EQ(levin::test::flat(levin::test::read(part)), wanted);
  }
  auto first = loader(0, 1);
  levin::test::read(first, 2);
  auto resumed = loader(0, 1, 77);  // the state's seed counts
  resumed.load_state_dict(first.state_dict());
  EXPECT_EQ(levin::test::flat(levin::test::read(resumed)), Indices(all.begin() + 4, all.end()));
}

TEST(WeightedRandomSampler, RefusesWeightsThatCannotBeDrawnFrom) {
  const auto make = [](std::vector<double> weights, levin::WeightedSamplerOptions options = {}) {
    return error_of([&] { levin::weighted_random_sampler(std::move(weights), options); });
  };
  EXPECT_THAT(make({1, -1}), StartsWith("data.sampler.weights: got the weight -1 for sample 1"));
  EXPECT_THAT(make({INFINITY}), StartsWith("data.sampler.weights: got the weight inf"));
  EXPECT_THAT(make({0, 0}), StartsWith("data.sampler.weights: got 2 weights, 0 of them above 0"));
  EXPECT_THAT(make({}), StartsWith("data.sampler.weights: got 0 weights"));
  EXPECT_THAT(make(std::vector<double>((1 << 24) + 1, 1.0)),
              StartsWith("data.sampler.weights: got 16777217 weights"));
  EXPECT_EQ(make({1, 0}, {.num_samples = 2, .replacement = false}),
            "data.sampler.weights: cannot draw 2 samples without replacement from 1 with a weight "
            "above 0; set replacement or a smaller num_samples");
  EXPECT_THAT(make({1}, {.num_samples = -1}), StartsWith("data.sampler.size"));
}

}  // namespace
}  // namespace dataset_tools
