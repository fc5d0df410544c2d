// What rank 0 reads for all is what each rank would read itself.
#include "levin/data/loading/dispatched_loader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <numeric>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"
#include "tests/support/in_shards.h"
#include "tests/support/world.h"

namespace {

using levin::Batch;
using levin::DataLoader;
using levin::dispatched;
using levin::test::connect;
using levin::test::error_of;
using levin::test::flat;
using levin::test::indices_of;
using levin::test::numbers_in_shards;
using levin::test::Order;
using levin::test::read;
using levin::test::run_world;
using testing::Each;
using testing::StartsWith;

/// Fields of several dtypes and shapes, one of them without elements.
Batch many_fields(int64_t size) {
  const auto index = torch::arange(size);
  return {{"index", index},
          {"odd", index.remainder(2).eq(1)},
          {"image", (index * 3).to(torch::kByte).view({size, 1, 1}).expand({size, 2, 5}).clone()},
          {"half", index.to(torch::kBFloat16).div(3)},
          {"double", index.to(torch::kDouble).div(7).unsqueeze(1)},
          {"none", torch::empty({size, 0})}};
}

levin::DatasetPtr noisy(int64_t size) {
  const Batch all = many_fields(size);
  const auto get = [all](int64_t index) {
    levin::data::Sample sample;
    for (const auto& [name, tensor] : all) sample.set(name, tensor[index]);
    return sample;
  };
  return levin::data::samples(
      size, get, {.transform = [](levin::data::Sample sample, std::mt19937_64& random) {
        sample.set("noise", torch::tensor(static_cast<int64_t>(random() % 1000)));
        return sample;
      }});
}

std::string difference(const Batch& mine, const Batch& wanted) {
  if (mine.fields().size() != wanted.fields().size()) return "other fields";
  for (const auto& [name, tensor] : wanted) {
    const bool same = mine[name].scalar_type() == tensor.scalar_type() &&
                      mine[name].sizes() == tensor.sizes() && torch::equal(mine[name], tensor);
    if (!same) return c10::str(name, ": got ", mine[name], ", wanted ", tensor);
  }
  return "";
}

/// Of the rest of the epoch.
std::string difference(DataLoader& mine, DataLoader& wanted) {
  Batch batch, expected;
  while (wanted.next(expected)) {
    if (!mine.next(batch)) return "ended early";
    const std::string off = difference(batch, expected);
    if (!off.empty()) return off;
  }
  return mine.next(batch) ? "too many batches" : "";
}

struct DispatchCase {
  int64_t size;
  bool even;
  bool drop_last = false;
  int64_t workers = 0;
};
void PrintTo(const DispatchCase& which, std::ostream* out) {
  *out << which.size << " samples, even " << which.even << ", drop_last " << which.drop_last;
}

class Dispatch : public testing::TestWithParam<DispatchCase> {
 protected:
  static DataLoader loader(int64_t seed = 3) {
    return {noisy(GetParam().size),
            {.batch_size = 3,
             .shuffle = true,
             .num_workers = GetParam().workers,
             .drop_last = GetParam().drop_last,
             .seed = seed}};
  }
  /// What this rank reads by itself.
  static DataLoader own(const levin::comm::ProcessGroup& world) {
    DataLoader made = loader();
    made.set_slice({world.rank(), world.size()}, GetParam().even);
    return made;
  }
};

TEST_P(Dispatch, GivesEachRankWhatItWouldReadItself) {
  for (const int64_t ranks : {1, 2, 3, 4}) {
    EXPECT_THAT(run_world(ranks,
                          [](int64_t rank, const std::filesystem::path&) {
                            const auto world = connect();
                            DataLoader mine =
                                dispatched(loader(/*seed=*/3 + rank), world, GetParam().even);
                            DataLoader wanted = own(world);
                            for (int epoch = 0; epoch < 2; ++epoch) {
                              const std::string off = difference(mine, wanted);
                              if (!off.empty()) return fmt::format("epoch {}: {}", epoch, off);
                            }
                            return std::string(mine.epoch() == 2 ? "" : "in another epoch");
                          }),
                Each(""))
        << ranks << " ranks";
  }
}

TEST_P(Dispatch, ResumedAtEveryBatchEqualsNoInterruption) {
  EXPECT_THAT(run_world(3,
                        [](int64_t rank, const std::filesystem::path&) {
                          auto world = connect();
                          // Of the last batch some ranks may get nothing in evaluation.
                          const int64_t batches =
                              dispatched(loader(), world, true).size() - (GetParam().even ? 0 : 1);
                          for (int64_t done = 0; done <= batches; ++done) {
                            DataLoader first = dispatched(loader(), world, GetParam().even);
                            read(first, done);
                            DataLoader second = dispatched(loader(7), world, GetParam().even);
                            second.load_state_dict(first.state_dict());
                            // Rank 0's also serves a run without dispatch.
                            DataLoader wanted = own(world);
                            wanted.load_state_dict(world.broadcast(first.state_dict(), 0));
                            const std::string off = difference(second, wanted);
                            if (!off.empty()) return fmt::format("after {}: {}", done, off);
                          }
                          return std::string();
                        }),
              Each(""));
}

INSTANTIATE_TEST_SUITE_P(DispatchedLoader, Dispatch,
                         testing::Values(DispatchCase{36, true}, DispatchCase{22, true, false, 2},
                                         DispatchCase{19, true, true}, DispatchCase{2, true},
                                         DispatchCase{22, false, false, 2}, DispatchCase{19, false},
                                         DispatchCase{1, false}));

TEST(DispatchedLoader, OtherRanksNeverTouchTheirData) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const std::filesystem::path&) {
                          int64_t touched = 0;
                          const auto data = levin::data::samples(9, [&](int64_t index) {
                            ++touched;
                            return levin::data::Sample{{"index", torch::tensor(index)}};
                          });
                          DataLoader loader =
                              dispatched({data, {.batch_size = 2}}, connect(), true);
                          const auto mine = flat(read(loader));
                          const std::vector<int64_t> wanted =
                              rank == 0 ? std::vector<int64_t>{0, 2, 4, 6, 8}
                                        : std::vector<int64_t>{1, 3, 5, 7, 0};
                          if (mine != wanted) return testing::PrintToString(mine);
                          return std::string((rank == 0) == (touched > 0) ? "" : "touched");
                        }),
              Each(""));
}

TEST(DispatchedLoader, AnExceptionOfTheDataIsThrownOnEveryRankInItsTurn) {
  EXPECT_THAT(
      run_world(3,
                [](int64_t rank, const std::filesystem::path&) {
                  bool broken = true;
                  const auto data = levin::data::samples(30, [&](int64_t index) {
                    if (index == 14 && broken) throw std::runtime_error("no such picture");
                    return levin::data::Sample{{"index", torch::tensor(index)}};
                  });
                  DataLoader loader = dispatched({data, {.batch_size = 2}}, connect(), true);
                  std::string said;
                  for (int i = 0; i < 2; ++i) {
                    said = error_of([&] { read(loader); });
                    said += fmt::format(" [{} done]", loader.batches_done());
                  }
                  broken = false;
                  const auto rest = flat(read(loader));
                  return said + fmt::format(" [then {} to {}]", rest.front(), rest.back());
                }),
      testing::ElementsAre(
          "data.loader.sample: sample 14: no such picture [rank 0] [2 done] [then 12 to 27]",
          "data.loader.sample: on rank 0: sample 14: no such picture [rank 1] [2 done] "
          "[then 13 to 28]",
          "data.loader.sample: on rank 0: sample 14: no such picture [rank 2] [2 done] "
          "[then 14 to 29]"));
}

TEST(DispatchedLoader, AnExceptionOfASamplerIsThrownOnEveryRank) {
  class Broken final : public levin::Sampler {
   public:
    int64_t size() const override { return 30; }
    void start(int64_t, int64_t) override {}
    int64_t next(std::span<int64_t>) override { throw std::out_of_range("no order"); }
  };
  EXPECT_THAT(
      run_world(2,
                [](int64_t, const std::filesystem::path&) {
                  DataLoader loader =
                      dispatched({levin::test::numbers(30),
                                  {.batch_size = 2, .sampler = std::make_shared<Broken>()}},
                                 connect(), true);
                  read(loader);
                  return "";
                }),
      testing::ElementsAre("no order", "data.loader.dispatch: on rank 0: no order [rank 1]"));
}

TEST(DispatchedLoader, AStreamIsReadByRank0AndSplitBySamples) {
  for (const bool even : {false, true}) {
    EXPECT_THAT(run_world(2,
                          [&](int64_t rank, const std::filesystem::path&) {
                            auto data = numbers_in_shards({4, 0, 3}, even);
                            DataLoader loader =
                                dispatched({levin::IterableDatasetPtr(data), {.batch_size = 2}},
                                           connect(), even);
                            const Order wanted = rank == 0 ? Order{{0, 2}, {4, 6}}
                                                 : even    ? Order{{1, 3}, {5, 0}}
                                                           : Order{{1, 3}, {5}};
                            if (loader.has_size() != even) return std::string("size");
                            if (even && loader.size() != 2) return std::string("another size");
                            for (int epoch = 0; epoch < 2; ++epoch) {
                              const Order mine = read(loader);
                              if (mine != wanted) return testing::PrintToString(mine);
                            }
                            return std::string();
                          }),
                Each(""));
  }
}

TEST(DispatchedLoader, AStreamIsResumedAtEveryBatch) {
  const auto stream = [] {
    return DataLoader(numbers_in_shards({9, 7, 8}),
                      {.batch_size = 2, .shuffle = true, .num_workers = 1, .seed = 3});
  };
  EXPECT_THAT(run_world(2,
                        [&](int64_t, const std::filesystem::path&) {
                          const auto world = connect();
                          DataLoader whole = dispatched(stream(), world, true);
                          DataLoader first = dispatched(stream(), world, true);
                          const Order wanted = read(whole);
                          for (int64_t done = 0; done <= std::ssize(wanted); ++done) {
                            first.set_epoch(0);
                            Order order = read(first, done);
                            DataLoader second = dispatched(stream(), world, true);
                            second.load_state_dict(first.state_dict());
                            if (second.batches_done() != done) return std::string("another place");
                            const Order rest = read(second);
                            order.insert(order.end(), rest.begin(), rest.end());
                            if (order != wanted) return testing::PrintToString(order);
                          }
                          return std::string();
                        }),
              Each(""));
}

/// Two streams' own batches: of `sizes` samples.
struct OwnBatches : levin::IterableDataset {
  std::vector<int64_t> sizes;
  explicit OwnBatches(std::vector<int64_t> sizes) : sizes(std::move(sizes)) {}
  struct Stream : levin::SampleStream {
    std::vector<int64_t> sizes;
    size_t at = 0;
    explicit Stream(std::vector<int64_t> sizes) : sizes(std::move(sizes)) {}
    bool next(levin::data::Sample& sample) override {
      if (at == sizes.size()) return false;
      const int64_t first = std::accumulate(sizes.begin(), sizes.begin() + std::ptrdiff_t(at), 0L);
      sample = {{"index", torch::arange(first, first + sizes[at++])},
                {"scale", torch::tensor(0.5)}};
      return true;
    }
  };
  std::unique_ptr<levin::SampleStream> open(int64_t, const levin::DrawContext&) const override {
    return std::make_unique<Stream>(sizes);
  }
  bool in_batches() const override { return true; }
};

TEST(DispatchedLoader, ReadymadeBatchesAreSplitAndOtherFieldsGoToAll) {
  EXPECT_THAT(run_world(2,
                        [](int64_t rank, const std::filesystem::path&) {
                          DataLoader loader =
                              dispatched({std::make_shared<OwnBatches>(std::vector<int64_t>{4, 2})},
                                         connect(), true);
                          Batch batch;
                          Order order;
                          while (loader.next(batch)) {
                            order.push_back(indices_of(batch));
                            if (batch["scale"].item<double>() != 0.5) return std::string("scale");
                          }
                          const Order wanted = rank == 0 ? Order{{0, 2}, {4}} : Order{{1, 3}, {5}};
                          return order == wanted ? "" : testing::PrintToString(order);
                        }),
              Each(""));
}

TEST(DispatchedLoader, ABatchThatIsTooSmallForAllRanksIsAnError) {
  const auto said = run_world(3, [](int64_t, const std::filesystem::path&) {
    DataLoader loader =
        dispatched({std::make_shared<OwnBatches>(std::vector<int64_t>{4, 2, 3})}, connect(), false);
    read(loader);
    return "";
  });
  EXPECT_THAT(said[0], StartsWith("data.loader.dispatch: a batch of 2 samples cannot be split over "
                                  "3 ranks, wanted at least 3 samples"));
  EXPECT_THAT(said[2], StartsWith("data.loader.dispatch: on rank 0: a batch of 2 samples"));
}

TEST(DispatchedLoader, AStateThatDoesNotFitIsAnErrorOnEveryRank) {
  EXPECT_THAT(run_world(2,
                        [](int64_t, const std::filesystem::path&) {
                          const auto world = connect();
                          const auto of = [&](int64_t size) {
                            return dispatched({levin::test::numbers(size), {.batch_size = 2}},
                                              world, true);
                          };
                          const levin::State state = of(8).state_dict();
                          of(9).load_state_dict(state);
                          return "";
                        }),
              Each(StartsWith("data.loader.state")));
}

}  // namespace
