// What data draws belongs to seed, epoch and sample: on any thread, rank and place of resuming.
#include "levin/data/sample_random.h"

#include <gmock/gmock.h>
#include <torch/torch.h>

#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "levin/graph/record/interposer.h"

namespace {

using levin::Batch;
using levin::DataLoader;
using levin::DataLoaderOptions;
using levin::data::Sample;
using testing::AllOf;
using testing::Each;
using testing::Gt;
using testing::Lt;
using testing::SizeIs;

/// Waits now and then, so that threads take turns in another way each time.
void dawdle(int64_t index) {
  if (index % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
}

Sample noisy_sample(int64_t index) {
  dawdle(index);
  return {{"index", torch::tensor(index)}, {"draw", torch::rand({3}, torch::kDouble)}};
}

levin::DatasetPtr noisy_samples(int64_t size = 23) {
  return levin::data::samples(size, noisy_sample);
}

/// A data set of whole batches.
struct NoisyBatches : levin::Dataset {
  int64_t size() const override { return 23; }
  Batch get(std::span<const int64_t> indices) const override {
    dawdle(indices[0]);
    const auto count = std::ssize(indices);
    return {{"index", torch::tensor(std::vector<int64_t>(indices.begin(), indices.end()))},
            {"draw", torch::randn({count, 3}, torch::kDouble)}};
  }
};

/// Shards of noise that are read through.
struct NoisyShards : levin::IterableDataset {
  struct Stream : levin::SampleStream {
    int64_t shard, at = 0;
    double offset = torch::rand({1}, torch::kDouble).item<double>();  // drawn when it is opened
    explicit Stream(int64_t shard) : shard(shard) {}
    bool next(Sample& sample) override {
      if (at == 11) return false;
      dawdle(at);
      sample = {{"index", torch::tensor(shard * 100 + at++)},
                {"draw", torch::rand({3}, torch::kDouble) + offset}};
      return true;
    }
  };
  int64_t num_shards() const override { return 4; }
  std::unique_ptr<levin::SampleStream> open(int64_t shard,
                                            const levin::DrawContext&) const override {
    return std::make_unique<Stream>(shard);
  }
};

/// What each sample of each epoch drew.
using Drawn = std::map<std::pair<int64_t, int64_t>, std::vector<double>>;

/// Batches that are left of epochs 0 to 2, or so many.
void read_on(DataLoader& loader, Drawn& drawn, int64_t batches = -1) {
  for (Batch batch; loader.epoch() < 2 && batches != 0; --batches) {
    const int64_t epoch = loader.epoch();
    if (!loader.next(batch)) continue;
    torch::rand({2});  // training draws too
    for (int64_t i = 0; i < batch.size(); ++i) {
      const at::Tensor row = batch["draw"][i].contiguous();
      const auto* first = row.const_data_ptr<double>();
      drawn[{epoch, batch["index"][i].item<int64_t>()}] = {first, first + row.numel()};
    }
  }
}

template <class Data>
Drawn drawn_by(const Data& data, DataLoaderOptions options) {
  options.seed = options.seed.value_or(7);
  DataLoader loader(data, options);
  Drawn drawn;
  read_on(loader, drawn);
  return drawn;
}

std::vector<double> first_numbers(const Drawn& drawn) {
  std::vector<double> numbers;
  for (const auto& [sample, row] : drawn) numbers.push_back(row.front());
  return numbers;
}

TEST(SampleRandom, IsTheSameWithAnyNumberOfWorkers) {
  const auto expect_same = [](const auto& data, const DataLoaderOptions& options) {
    torch::manual_seed(1);
    const Drawn alone = drawn_by(data, options);
    for (const int64_t workers : {0, 1, 3}) {
      torch::manual_seed(100 + workers);
      DataLoaderOptions with = options;
      with.num_workers = workers;
      EXPECT_EQ(drawn_by(data, with), alone) << workers << " workers";
    }
    const std::vector<double> numbers = first_numbers(alone);
    const std::set<double> different(numbers.begin(), numbers.end());
    EXPECT_THAT(different, SizeIs(numbers.size()));  // epochs and samples differ
    DataLoaderOptions other = options;
    other.seed = 8;
    EXPECT_NE(drawn_by(data, other).begin()->second, alone.begin()->second);
  };
  expect_same(noisy_samples(), {.batch_size = 4, .shuffle = true});
  expect_same(std::make_shared<const NoisyBatches>(), {.batch_size = 4, .shuffle = true});
  expect_same(std::make_shared<const NoisyShards>(),
              {.batch_size = 4, .shuffle = true, .shuffle_buffer_size = 5, .open_shards = 3});
}

TEST(SampleRandom, OfASampleIsTheSameOnAnyRanksAndInAnyBatch) {
  const Drawn whole = drawn_by(noisy_samples(), {.batch_size = 4, .shuffle = true});
  EXPECT_EQ(drawn_by(noisy_samples(), {.batch_size = 7, .num_workers = 1}), whole);
  for (const int64_t ranks : {2, 3}) {
    Drawn together;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      DataLoader loader(noisy_samples(),
                        {.batch_size = 2, .shuffle = true, .num_workers = rank, .seed = 7});
      loader.set_slice({rank, ranks}, /*even=*/true);
      read_on(loader, together);
    }
    EXPECT_EQ(together, whole) << ranks << " ranks";
  }
  const auto shards = std::make_shared<const NoisyShards>();
  const Drawn stream = drawn_by(shards, {.batch_size = 4});
  for (const int64_t ranks : {2, 3}) {  // shards of their own, and each other sample of all
    Drawn together;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      DataLoader loader(shards, {.batch_size = 3, .num_workers = rank, .seed = 7});
      loader.set_slice({rank, ranks}, /*even=*/true);
      read_on(loader, together);
    }
    EXPECT_EQ(together, stream) << ranks << " ranks";
  }
}

TEST(SampleRandom, GoesOnAsItWouldHaveWhenResumed) {
  const auto expect_same = [](const auto& data, const DataLoaderOptions& options) {
    const Drawn whole = drawn_by(data, options);
    for (const int64_t done : {1, 3, 6, 8}) {
      DataLoader first(data, options);
      Drawn drawn;
      read_on(first, drawn, done);
      torch::manual_seed(99 + done);
      DataLoader second(data, options);
      second.load_state_dict(first.state_dict());
      read_on(second, drawn);
      EXPECT_EQ(drawn, whole) << "after " << done << " batches";
    }
  };
  for (const int64_t workers : {0, 2}) {
    const DataLoaderOptions options{
        .batch_size = 4, .shuffle = true, .num_workers = workers, .seed = 7};
    expect_same(noisy_samples(), options);
    expect_same(std::make_shared<const NoisyBatches>(), options);
    expect_same(std::make_shared<const NoisyShards>(), options);
  }
}

TEST(SampleRandom, LeavesTheTrainingsNumbersAlone) {
  for (const int64_t workers : {0, 2}) {
    torch::manual_seed(3);
    const at::Tensor wanted = torch::rand({8});
    torch::manual_seed(3);
    DataLoader loader(noisy_samples(), {.batch_size = 4, .num_workers = workers, .seed = 7});
    for ([[maybe_unused]] const auto& batch : loader) {
    }
    EXPECT_TRUE(torch::equal(torch::rand({8}), wanted)) << workers << " workers";
  }
}

using Draw = std::function<at::Tensor()>;

/// By name; each of them without a generator of its own.
const std::map<std::string, Draw>& draws() {
  static const std::map<std::string, Draw> kDraws = {
      {"rand", [] { return torch::rand({4}); }},
      {"randn", [] { return torch::randn({40}); }},
      {"rand_like", [] { return torch::rand_like(torch::zeros({4})); }},
      {"randn_like", [] { return torch::randn_like(torch::zeros({4})); }},
      {"randint", [] { return torch::randint(1 << 30, {4}); }},
      {"randint_like", [] { return torch::randint_like(torch::zeros({4}), 1 << 20); }},
      {"randperm", [] { return torch::randperm(50); }},
      {"bernoulli", [] { return torch::bernoulli(torch::full({64}, 0.5)); }},
      {"bernoulli_", [] { return torch::zeros({64}).bernoulli_(0.5); }},
      {"bernoulli_ of a tensor",
       [] { return torch::zeros({64}).bernoulli_(torch::full({64}, 0.5)); }},
      {"multinomial", [] { return torch::multinomial(torch::ones({1000}), 5); }},
      {"multinomial again", [] { return torch::multinomial(torch::ones({1000}), 5, true); }},
      {"normal", [] { return at::normal(torch::zeros({4}), torch::ones({4})); }},
      {"normal of numbers", [] { return at::normal(0.0, 1.0, {4}); }},
      {"normal_", [] { return torch::zeros({4}).normal_(); }},
      {"uniform_", [] { return torch::zeros({4}).uniform_(-1, 1); }},
      {"exponential_", [] { return torch::zeros({4}).exponential_(); }},
      {"cauchy_", [] { return torch::zeros({4}).cauchy_(); }},
      {"geometric_", [] { return torch::zeros({64}).geometric_(0.3); }},
      {"log_normal_", [] { return torch::zeros({4}).log_normal_(); }},
      {"random_", [] { return torch::zeros({4}).random_(); }},
      {"poisson", [] { return torch::poisson(torch::full({64}, 4.0)); }},
      {"binomial", [] { return torch::binomial(torch::full({64}, 9.0), torch::full({64}, 0.5)); }},
      {"dropout", [] { return torch::dropout(torch::ones({64}), 0.5, true); }},
      {"native_dropout",
       [] { return std::get<0>(torch::native_dropout(torch::ones({64}), 0.5, true)); }},
      {"rrelu", [] { return torch::rrelu(-torch::ones({64}), 0.1, 0.9, true); }},
      {"_standard_gamma", [] { return torch::_standard_gamma(torch::ones({64})); }},
      {"_sample_dirichlet", [] { return torch::_sample_dirichlet(torch::ones({64})); }},
      {"init", [] { return torch::nn::init::kaiming_uniform_(torch::empty({8, 8})); }},
      {"drop in a module", [] { return torch::nn::Dropout(0.5)->forward(torch::ones({64})); }},
  };
  return kDraws;
}

TEST(SampleRandom, IsThatOfEveryFunctionThatDraws) {
  for (const auto& [name, draw] : draws()) {
    const auto read = [&draw = draw](int64_t workers, int64_t seed) {
      torch::manual_seed(seed);
      const auto data = levin::data::samples(6, [&](int64_t) { return Sample{{"draw", draw()}}; });
      DataLoader loader(data, {.batch_size = 3, .num_workers = workers, .seed = 7});
      std::vector<at::Tensor> all;
      for (const auto& batch : loader) all.push_back(batch["draw"].clone());
      return torch::cat(all);
    };
    const at::Tensor first = read(0, 1);
    EXPECT_TRUE(torch::equal(read(2, 2), first)) << name;
    EXPECT_FALSE(torch::equal(first[0], first[1])) << name;
    torch::manual_seed(3);
    const at::Tensor wanted = torch::rand({4});
    read(0, 3);
    EXPECT_TRUE(torch::equal(torch::rand({4}), wanted)) << name;
  }
}

TEST(SampleRandom, IsUniform) {
  const Drawn drawn = drawn_by(noisy_samples(2000), {.batch_size = 50});
  const std::vector<double> numbers = first_numbers(drawn);
  double sum = 0.0;
  for (const double number : numbers) sum += number;
  EXPECT_NEAR(sum / static_cast<double>(numbers.size()), 0.5, 0.02);
  EXPECT_THAT(numbers, Each(AllOf(Gt(0.0), Lt(1.0))));
}

TEST(SampleRandom, AGeneratorThatIsGivenIsUsed) {
  const auto data = levin::data::samples(4, [](int64_t) {
    const auto own = at::make_generator<at::CPUGeneratorImpl>(uint64_t{5});
    return Sample{{"draw", torch::rand({2}, own)}};
  });
  DataLoader loader(data, {.batch_size = 4});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  const at::Tensor wanted = torch::rand({2}, at::make_generator<at::CPUGeneratorImpl>(uint64_t{5}));
  EXPECT_TRUE(torch::equal(batch["draw"], wanted.expand({4, 2})));
}

TEST(SampleRandom, SeedsOtherGenerators) {
  const auto data = levin::data::samples(20, [](int64_t index) {
    const auto seed = static_cast<int64_t>(levin::data::sample_seed());
    EXPECT_EQ(static_cast<int64_t>(levin::data::sample_seed()), seed);
    dawdle(index);
    return Sample{{"index", torch::tensor(index)},
                  {"draw", torch::full({1}, static_cast<double>(seed), torch::kDouble)}};
  });
  const Drawn alone = drawn_by(data, {.batch_size = 4});
  EXPECT_EQ(drawn_by(data, {.batch_size = 6, .num_workers = 2}), alone);
  const std::vector<double> numbers = first_numbers(alone);
  EXPECT_THAT((std::set<double>(numbers.begin(), numbers.end())), SizeIs(40));
  // Outside of a loader it is drawn as anything else.
  torch::manual_seed(1);
  const uint64_t first = levin::data::sample_seed();
  EXPECT_NE(levin::data::sample_seed(), first);
  torch::manual_seed(1);
  EXPECT_EQ(levin::data::sample_seed(), first);
}

/// A user's own order, drawn from LibTorch.
struct Drawing : levin::Sampler {
  at::Tensor order;
  int64_t at = 0;
  int64_t size() const override { return 23; }
  void start(int64_t, int64_t consumed) override {
    order = torch::randperm(23);
    at = consumed;
  }
  int64_t next(std::span<int64_t> indices) override {
    int64_t count = 0;
    for (; count < std::ssize(indices) && at < 23; ++count) {
      indices[static_cast<size_t>(count)] = order[at++].item<int64_t>();
    }
    return count;
  }
};

TEST(SampleRandom, OfASamplerIsTheEpochs) {
  const auto order = [](int64_t resumed_after) {
    torch::manual_seed(resumed_after + 5);
    const auto make = [] {
      return DataLoader(noisy_samples(),
                        {.batch_size = 4, .sampler = std::make_shared<Drawing>(), .seed = 7});
    };
    DataLoader loader = make();
    std::vector<int64_t> seen;
    for (Batch batch; loader.epoch() < 2;) {
      if (std::ssize(seen) == resumed_after * 4) {
        const levin::State state = loader.state_dict();
        loader = make();
        loader.load_state_dict(state);
      }
      if (!loader.next(batch)) continue;
      for (int64_t i = 0; i < batch.size(); ++i) seen.push_back(batch["index"][i].item<int64_t>());
    }
    return seen;
  };
  const std::vector<int64_t> straight = order(-1);
  EXPECT_EQ(order(2), straight);
  EXPECT_NE(std::vector<int64_t>(straight.begin(), straight.begin() + 23),
            std::vector<int64_t>(straight.begin() + 23, straight.end()));
}

/// What is recorded of the code that reads a loader is not the data's.
TEST(SampleRandom, WhoRecordsOperatorsDoesNotSeeTheDatas) {
  struct Count : levin::graph::OperatorHandler {
    int64_t calls = 0;
    void call(levin::graph::OperatorCall& call) override {
      ++calls;
      call.proceed();
    }
  } count;
  DataLoader loader(noisy_samples(), {.batch_size = 4, .seed = 7});
  Batch batch;
  const levin::graph::HandlerScope scope(count);
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(count.calls, 0);
  torch::rand({2});
  EXPECT_GT(count.calls, 0);
}

}  // namespace
