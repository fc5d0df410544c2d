// Combined loaders: the order of each mode, resuming, ranks, and what is refused.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>

#include "levin/data/loader.h"
#include "levin/data/loading/dispatched_loader.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"
#include "tests/support/world.h"

namespace combined_loader {
namespace {

using levin::Batch;
using levin::DataLoader;
using levin::State;
using levin::data::combined;
using levin::test::connect;
using levin::test::error_of;
using levin::test::indices_of;
using levin::test::numbers;
using levin::test::numbers_in_shards;
using levin::test::run_world;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// "a 0 1 2 b 0 1", the samples of each part.
std::string text_of(const Batch& batch) {
  std::string text;
  for (const auto& [name, tensor] : batch) {
    text += (text.empty() ? "" : " ") + name.substr(0, name.find('/'));
    for (const int64_t index : indices_of({{"index", tensor}})) text += " " + std::to_string(index);
  }
  return text;
}

/// At most so many batches of the epoch; all that are left if it is below 0.
std::vector<std::string> texts(DataLoader& loader, int64_t batches = -1) {
  std::vector<std::string> all;
  for (Batch batch; batches < 0 || std::ssize(all) < batches;) {
    if (!loader.next(batch)) break;
    all.push_back(text_of(batch));
  }
  return all;
}

/// The rest of this epoch and the next one.
std::vector<std::string> texts_of_two(DataLoader& loader) {
  std::vector<std::string> all;
  while (loader.epoch() < 2) {
    const auto rest = texts(loader);
    all.insert(all.end(), rest.begin(), rest.end());
    all.emplace_back("end");
  }
  return all;
}

DataLoader two(const std::string& mode) {
  return combined({{"a", {numbers(5), {.batch_size = 2}}}, {"b", {numbers(3), {.batch_size = 3}}}},
                  {.mode = mode});
}

TEST(CombinedLoader, EndsWithTheShortestLoader) {
  DataLoader loader = two("min_size");
  EXPECT_EQ(loader.size(), 1);
  for (int epoch = 0; epoch < 2; ++epoch) EXPECT_THAT(texts(loader), ElementsAre("a 0 1 b 0 1 2"));
}

TEST(CombinedLoader, ShorterLoadersBeginAgain) {
  DataLoader loader = two("max_size_cycle");
  EXPECT_EQ(loader.size(), 3);
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_THAT(texts(loader), ElementsAre("a 0 1 b 0 1 2", "a 2 3 b 0 1 2", "a 4 b 0 1 2"));
  }
}

TEST(CombinedLoader, LacksThePartsOfLoadersThatHaveEnded) {
  DataLoader loader = two("max_size");
  EXPECT_EQ(loader.size(), 3);
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_THAT(texts(loader), ElementsAre("a 0 1 b 0 1 2", "a 2 3", "a 4"));
  }
  loader.set_epoch(0);
  Batch batch;
  ASSERT_TRUE(loader.next(batch) && batch.has_part("b") && loader.next(batch));
  EXPECT_TRUE(batch.has_part("a"));
  EXPECT_FALSE(batch.has_part("b"));
}

TEST(CombinedLoader, ReadsLoadersOneAfterAnother) {
  DataLoader loader = two("sequential");
  EXPECT_EQ(loader.size(), 4);
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_THAT(texts(loader), ElementsAre("a 0 1", "a 2 3", "a 4", "b 0 1 2"));
  }
}

TEST(CombinedLoader, ABatchHasTheFieldsOfEachPart) {
  DataLoader loader = two("min_size");
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.size(), 2);
  EXPECT_TRUE(torch::equal(batch.part("b")["index"], batch["b/index"]));
  EXPECT_THAT(error_of([&] { batch.part("c"); }),
              StartsWith("data.batch.field: this batch has no part 'c'; it holds [a/index, "));
  EXPECT_FALSE(batch.has_part("a/index"));
}

TEST(CombinedLoader, ALoaderThatBeginsAgainHasANewPermutation) {
  DataLoader loader = combined({{"a", {numbers(60), {.batch_size = 10}}},
                                {"b", {numbers(20), {.batch_size = 10, .shuffle = true}}}},
                               {.mode = "max_size_cycle"});
  std::vector<std::vector<int64_t>> orders;
  for (Batch batch; loader.epoch() < 2;) {
    std::vector<int64_t> order;
    while (std::ssize(order) < 20 && loader.next(batch)) {
      for (const int64_t index : indices_of(batch.part("b"))) order.push_back(index);
    }
    if (order.empty()) continue;
    EXPECT_THAT(order, testing::UnorderedElementsAreArray(levin::test::from_zero(20)));
    EXPECT_EQ(std::ranges::count(orders, order), 0);
    orders.push_back(order);
  }
  EXPECT_EQ(orders.size(), 6);
}

/// A shuffled data set with workers, a stream, and a small data set that cycles twice.
DataLoader three(const std::string& mode, int64_t seed = 3) {
  return combined(
      {{"a", {numbers(23), {.batch_size = 4, .shuffle = true, .num_workers = 2, .seed = seed}}},
       {"s",
        {numbers_in_shards({5, 9, 3}, /*tells_sizes=*/true),
         {.batch_size = 3, .shuffle = true, .seed = seed + 1}}},
       {"b", {numbers(7), {.batch_size = 3, .shuffle = true, .seed = seed + 2}}}},
      {.mode = mode});
}

class CombinedModes : public testing::TestWithParam<const char*> {};

TEST_P(CombinedModes, ResumedAtEveryBatchEqualsNoInterruption) {
  DataLoader straight = three(GetParam());
  const std::vector<std::string> wanted = texts_of_two(straight);
  const int64_t size = three(GetParam()).size();
  for (int64_t done = 0; done <= size; ++done) {
    DataLoader first = three(GetParam());
    std::vector<std::string> order = texts(first, done);
    DataLoader second = three(GetParam(), 99);  // the state brings the seeds
    second.load_state_dict(first.state_dict());
    EXPECT_EQ(second.batches_done(), done);
    const auto rest = texts_of_two(second);
    order.insert(order.end(), rest.begin(), rest.end());
    EXPECT_EQ(order, wanted) << done;
  }
}

TEST_P(CombinedModes, RewoundEqualsTheFirstReading) {
  const int64_t size = three(GetParam()).size();
  for (int64_t from = 0; from < size; ++from) {
    DataLoader loader = three(GetParam());
    texts(loader, from);
    loader.mark();
    const auto first = texts(loader, size - from);
    ASSERT_TRUE(loader.rewind());
    EXPECT_EQ(texts(loader, size - from), first) << from;
    ASSERT_TRUE(loader.rewind());
    EXPECT_EQ(texts(loader, size - from), first) << from;
  }
}

TEST_P(CombinedModes, ACopyGoesOnFromTheSamePlace) {
  DataLoader loader = three(GetParam());
  texts(loader, 2);
  DataLoader copy = loader.copy();
  EXPECT_EQ(texts_of_two(copy), texts_of_two(loader));
}

TEST_P(CombinedModes, EpochsComeInAnyOrder) {
  DataLoader loader = three(GetParam());
  texts(loader);
  const auto second = texts(loader);
  loader.set_epoch(1);
  EXPECT_EQ(texts(loader), second);
  loader.set_epoch(1);
  texts(loader, 1);
  loader.set_epoch(1);
  EXPECT_EQ(texts(loader), second);
}

TEST_P(CombinedModes, RanksSplitEachLoader) {
  std::map<std::string, std::multiset<int64_t>> seen;
  std::vector<int64_t> sizes;
  for (const int64_t rank : {0, 1}) {
    DataLoader loader =
        combined({{"a", {numbers(16), {.batch_size = 2, .shuffle = true, .seed = 1}}},
                  {"b", {numbers(8), {.batch_size = 1, .seed = 1}}}},
                 {.mode = GetParam()});
    loader.set_slice({rank, 2}, /*even=*/true);
    sizes.push_back(loader.size());
    for (Batch batch; loader.next(batch);) {
      for (const auto& [name, tensor] : batch) {
        for (const int64_t index : indices_of({{"index", tensor}})) seen[name].insert(index);
      }
    }
  }
  EXPECT_EQ(sizes[0], sizes[1]);
  const auto all_of = [](int64_t size) {
    const auto all = levin::test::from_zero(size);
    return std::multiset<int64_t>(all.begin(), all.end());
  };
  EXPECT_EQ(seen["a/index"], all_of(16));
  EXPECT_EQ(seen["b/index"], all_of(8));
}

TEST_P(CombinedModes, RankZeroCanReadForAll) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const std::filesystem::path&) -> std::string {
                          const auto world = connect();
                          const auto make = [] {
                            return combined({{"a", {numbers(11), {.batch_size = 2}}},
                                             {"b", {numbers(7), {.batch_size = 1}}}},
                                            {.mode = GetParam()});
                          };
                          DataLoader mine = levin::dispatched(make(), world, /*even=*/true);
                          DataLoader wanted = make();
                          wanted.set_slice({rank, 2}, /*even=*/true);
                          const auto got = texts_of_two(mine), expected = texts_of_two(wanted);
                          return got == expected ? "" : c10::str(got);
                        }),
              Each(""));
}

// Two ranks stop inside an epoch; one goes on with what they left of each loader.
TEST_P(CombinedModes, AnotherNumberOfRanksReadsTheRest) {
  const auto make = [] {
    return combined({{"a", {numbers(16), {.batch_size = 2, .shuffle = true, .seed = 1}}},
                     {"s", {numbers_in_shards({6, 6, 4}), {.batch_size = 2}}}},
                    {.mode = GetParam()});
  };
  std::map<std::string, std::multiset<int64_t>> seen;
  const auto note = [&](const Batch& batch) {
    for (const auto& [name, tensor] : batch) {
      for (const int64_t index : indices_of({{"index", tensor}})) seen[name].insert(index);
    }
  };
  std::vector<State> states;
  for (const int64_t rank : {0, 1}) {
    DataLoader loader = make();
    loader.set_slice({rank, 2}, /*even=*/true);
    Batch batch;
    for (int i = 0; i < 2 && loader.next(batch); ++i) note(batch);
    states.push_back(loader.state_dict());
  }
  DataLoader one = make();
  one.load_state_dict(DataLoader::merged_state(states));
  for (Batch batch; one.next(batch);) note(batch);
  const bool reads_all = std::string_view(GetParam()) != "min_size";
  for (const auto& [name, indices] : seen) {
    const std::set<int64_t> different(indices.begin(), indices.end());
    if (std::string_view(GetParam()) == "max_size_cycle") continue;  // repeats some
    EXPECT_EQ(different.size(), indices.size()) << name;
    if (reads_all) EXPECT_EQ(indices.size(), 16) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(, CombinedModes,
                         testing::Values("min_size", "max_size_cycle", "max_size", "sequential"));

TEST(CombinedLoader, ASeedForAllReplacesTheirOwn) {
  DataLoader first = three("min_size", 3), second = three("min_size", 8);
  for (DataLoader* loader : {&first, &second}) {
    loader->load_state_dict(loader->state_dict().set("seed", int64_t{5}));
  }
  EXPECT_EQ(texts_of_two(first), texts_of_two(second));
}

TEST(CombinedLoader, TheFirstLoadersPaddingCounts) {
  DataLoader loader = combined(
      {{"a", {numbers(5), {.batch_size = 4, .pad_last_batch = true}}}, {"b", {numbers(2), {}}}});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(loader.added(), 0);
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch["a/index"].size(0), 4);
  EXPECT_EQ(batch["a/sample_mask"].sum().item<int64_t>(), 1);
  EXPECT_EQ(loader.added(), 3);
}

TEST(CombinedLoader, AStreamOfUnknownSizeHasNone) {
  DataLoader loader = combined({{"s", {numbers_in_shards({3, 2}), {.batch_size = 2}}},
                                {"a", {numbers(4), {.batch_size = 2}}}},
                               {.mode = "sequential"});
  EXPECT_FALSE(loader.has_size());
  EXPECT_EQ(texts(loader).size(), 5);
}

TEST(CombinedLoader, LoadersThatAreGivenStayWhereTheyAre) {
  DataLoader inner(numbers(4), {.batch_size = 2});
  DataLoader loader = combined({{"a", inner}});
  texts(loader);
  EXPECT_EQ(inner.epoch(), 0);
  EXPECT_EQ(inner.batches_done(), 0);
}

TEST(CombinedLoader, RefusesWhatItCannotCombine) {
  const DataLoader loader(numbers(4));
  const auto message = [&](const std::vector<std::pair<std::string, DataLoader>>& loaders,
                           const std::string& mode = "min_size") {
    return error_of([&] { combined(loaders, {.mode = mode}); });
  };
  EXPECT_THAT(message({{"a", loader}}, "longest"),
              StartsWith("data.combined.options: got mode 'longest', wanted min_size, "));
  EXPECT_THAT(message({}), StartsWith("data.combined.options: got no loader"));
  EXPECT_THAT(message({{"a", loader}, {"a", loader}}),
              StartsWith("data.combined.options: got two loaders of the name 'a'"));
  for (const char* name : {"", "a/b"}) {
    EXPECT_THAT(message({{name, loader}}), HasSubstr("wanted a name without a slash"));
  }
  const auto sampler = levin::random_sampler(4, 1);
  const DataLoader sampled(numbers(4), {.sampler = sampler});
  EXPECT_THAT(message({{"a", sampled}, {"b", sampled}}),
              StartsWith("data.combined.options: loaders 'a' and 'b' share one sampler"));
}

TEST(CombinedLoader, ALoaderWithoutBatchesCannotBeginAgain) {
  DataLoader loader = combined({{"a", numbers(4)}, {"b", numbers(0)}}, {.mode = "max_size_cycle"});
  Batch batch;
  EXPECT_THAT(error_of([&] { loader.next(batch); }),
              StartsWith("data.combined.empty: loader 'b' has no batch"));
  DataLoader shortest = combined({{"a", numbers(4)}, {"b", numbers(0)}});
  EXPECT_FALSE(shortest.next(batch));
}

TEST(CombinedLoader, RefusesTheStateOfOthers) {
  DataLoader loader = two("min_size");
  EXPECT_THAT(error_of([&] { loader.load_state_dict(two("sequential").state_dict()); }),
              StartsWith("data.loader.state: the state is of mode \"sequential\""));
  EXPECT_THAT(error_of([&] { loader.load_state_dict(DataLoader(numbers(5)).state_dict()); }),
              StartsWith("data.loader.state: the state is of another kind of loader"));
  const DataLoader other = combined({{"a", numbers(5)}, {"c", numbers(3)}});
  EXPECT_THAT(error_of([&] { loader.load_state_dict(other.state_dict()); }),
              StartsWith("data.loader.state: the state is of the loaders [a, c]"));
  EXPECT_THAT(
      error_of([&] { loader.load_state_dict(loader.state_dict().set("turn", int64_t{2})); }),
      StartsWith("data.loader.state: got epoch 0, 0 batches and loader 2 of 2"));
  EXPECT_THAT(error_of([&] { loader.set_epoch(-1); }),
              StartsWith("data.loader.epoch: got epoch -1"));
}

TEST(CombinedLoader, IsNotDispatchedForEvaluation) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const std::filesystem::path&) -> std::string {
                          const auto world = connect();
                          return error_of(
                              [&] { levin::dispatched(two("min_size"), world, /*even=*/false); });
                        }),
              Each(StartsWith("data.loader.dispatch: dispatch_batches with combined loaders")));
}

}  // namespace
}  // namespace combined_loader
