#include <gmock/gmock.h>
#include <torch/torch.h>

#include <atomic>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/data/read_epoch.h"
#include "tests/support/error_of.h"

namespace {

using levin::Batch;
using levin::DataLoader;
using levin::data::Sample;
using levin::test::error_of;
using levin::test::flat;
using levin::test::Order;
using levin::test::read;
using testing::StartsWith;

Sample number(int64_t index) { return {{"index", torch::tensor(index)}}; }

class LoaderErrors : public testing::TestWithParam<int64_t> {
 protected:
  static DataLoader loader(std::function<Sample(int64_t)> get,
                           levin::data::SampleOptions options = {}) {
    return {levin::data::samples(30, std::move(get), std::move(options)),
            {.batch_size = 4, .num_workers = GetParam()}};
  }
  static std::string error_at_17(const std::function<void()>& fail) {
    DataLoader one = loader([fail](int64_t index) {
      if (index == 17) fail();
      return number(index);
    });
    return error_of([&] { read(one); });
  }
};

TEST_P(LoaderErrors, NameTheSample) {
  EXPECT_EQ(error_at_17([] { throw std::runtime_error("no such picture"); }),
            "data.loader.sample: sample 17: no such picture");
  EXPECT_EQ(error_at_17([] { throw levin::Error("files.idx", "truncated"); }),
            "data.loader.sample: sample 17: files.idx: truncated");
  EXPECT_EQ(error_at_17([] { throw 3; }),  // NOLINT(bugprone-std-exception-baseclass)
            "data.loader.sample: sample 17: an exception that is not a std::exception");
  EXPECT_THAT(error_at_17([] { torch::ones({2}).reshape({3}); }),
              testing::AllOf(StartsWith("data.loader.sample: sample 17: shape '[3]' is invalid"),
                             testing::Not(testing::HasSubstr("frame #"))));
}

TEST_P(LoaderErrors, NameTheBatchWhenEachSampleCanBeRead) {
  DataLoader one = loader(number, {.collate = [](std::vector<Sample> samples) {
                            if (samples.size() > 1) throw std::runtime_error("too many");
                            return samples.front();
                          }});
  EXPECT_EQ(error_of([&] { read(one); }),
            "data.loader.sample: samples 0 to 3 can each be read, but not together: too many");
}

TEST_P(LoaderErrors, ComeInTheirTurn) {
  DataLoader one = loader([](int64_t index) {
    if (index >= 17) throw std::runtime_error("end of tape");
    return number(index);
  });
  EXPECT_EQ(flat(read(one, 4)).back(), 15);
  Batch batch;
  EXPECT_EQ(error_of([&] { one.next(batch); }), "data.loader.sample: sample 17: end of tape");
}

TEST_P(LoaderErrors, LeaveTheLoaderWhereItStood) {
  auto broken = std::make_shared<std::atomic<bool>>(true);
  DataLoader one = loader([broken](int64_t index) {
    if (index == 17 && *broken) throw std::runtime_error("not mounted");
    return number(index);
  });
  EXPECT_NE(error_of([&] { read(one); }), "no error");
  EXPECT_EQ(one.batches_done(), 4);
  EXPECT_NE(error_of([&] { read(one); }), "no error") << "the same sample fails again";
  *broken = false;
  EXPECT_EQ(read(one, 1), (Order{{16, 17, 18, 19}}));
  one.set_epoch(0);
  EXPECT_EQ(flat(read(one)).size(), 30u);
}

TEST_P(LoaderErrors, OfASamplerComeOutToo) {
  class Broken final : public levin::Sampler {
   public:
    int64_t size() const override { return 30; }
    void start(int64_t, int64_t) override {}
    int64_t next(std::span<int64_t>) override { throw std::out_of_range("no order"); }
  };
  DataLoader one(
      levin::test::numbers(30),
      {.batch_size = 4, .sampler = std::make_shared<Broken>(), .num_workers = GetParam()});
  EXPECT_THROW(read(one), std::out_of_range);
}

TEST_P(LoaderErrors, OfAnIndexOutsideNameIt) {
  DataLoader one(
      levin::test::numbers(30),
      {.batch_size = 4, .sampler = levin::sequential_sampler(40), .num_workers = GetParam()});
  EXPECT_THAT(error_of([&] { read(one); }),
              StartsWith("data.loader.sample: sample 30: data.tensors.index: got index 30"));
}

INSTANTIATE_TEST_SUITE_P(DataLoader, LoaderErrors, testing::Values(0, 1, 2));

}  // namespace
