#include "levin/accelerator/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "levin/base/log.h"
#include "tests/accelerator/small_nets.h"
#include "tests/support/error_of.h"
#include "tests/support/world.h"

namespace {

using levin::Accelerator;
using levin::Processes;
using levin::ReduceOp;
using levin::test::error_of;
using levin::test::run_world;
using small_nets::dataset;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::StartsWith;

Processes joined() { return {levin::rank_from_environment(), levin::test::connect()}; }

/// Words that each of some ranks returned.
template <class Body>
std::vector<std::string> of_ranks(int64_t size, const Body& body) {
  return run_world(size, [&](int64_t, const auto&) {
    Processes processes = joined();
    return std::string(body(processes));
  });
}

TEST(Processes, KnowTheirPlaces) {
  const auto words = of_ranks(3, [](Processes& p) {
    return fmt::format("{}/{}{}{}", p.process_index(), p.num_processes(),
                       p.is_main_process() ? " main" : "", p.is_last_process() ? " last" : "");
  });
  EXPECT_THAT(words, ElementsAre("0/3 main", "1/3", "2/3 last"));
}

TEST(Processes, RunWhatIsForOneOfThem) {
  const auto words = of_ranks(3, [](Processes& p) {
    std::string ran;
    p.on_main_process([&] { ran += "m"; });
    p.on_local_main_process([&] { ran += "l"; });
    p.on_process(1, [&] { ran += "1"; });
    p.on_local_process(1, [&] { ran += "o"; });
    p.on_last_process([&] { ran += "e"; });
    return ran;
  });
  EXPECT_THAT(words, ElementsAre("ml", "1o", "e"));
  Processes alone({}, {});
  EXPECT_THAT(error_of([&] { alone.on_process(1, [] {}); }),
              StartsWith("accelerator.process: got process 1, wanted 0 to 0"));
  EXPECT_THAT(error_of([&] { alone.on_local_process(-1, [] {}); }),
              StartsWith("accelerator.process: got process -1 of this machine"));
}

TEST(Processes, TheMainOneGoesFirst) {
  const auto words = run_world(2, [](int64_t rank, const auto& folder) {
    Processes processes = joined();
    std::string seen = "nothing";
    const auto body = [&] {
      if (rank == 0) std::ofstream(folder / "written") << "x";
      seen = std::filesystem::exists(folder / "written") ? "it" : "too early";
    };
    processes.main_process_first(body);
    processes.local_main_process_first(body);
    return seen;
  });
  EXPECT_THAT(words, Each("it"));
}

/// Of three ranks whose exchanges may take a second of an idle machine, what rank 0 prepares taking
/// longer.
std::chrono::milliseconds exchange_timeout() {
  static const auto timeout = levin::test::patient(std::chrono::seconds(1));
  return timeout;
}
std::vector<std::string> prepare(double timeout_s, const std::function<void()>& body) {
  return run_world(3, [&](int64_t, const auto&) -> std::string {
    Processes processes(
        levin::rank_from_environment(),
        levin::comm::ProcessGroup::connect(levin::comm::read_environment(),
                                           {.backend = "shm", .timeout = exchange_timeout()}),
        timeout_s);
    for (int i = 0; i < 2; ++i) {
      std::string said = "no error";
      try {
        processes.prepare_on_local_main(body);
      } catch (const std::exception& error) {
        said = error.what();
      }
      if (said != "no error") return said;
    }
    processes.wait_for_everyone();
    return "";
  });
}

TEST(Processes, WaitForDataLongerThanForAnExchange) {
  EXPECT_THAT(prepare(3600, [] { std::this_thread::sleep_for(1.5 * exchange_timeout()); }),
              Each(""));
}

TEST(Processes, HearOfDataThatCannotBePrepared) {
  const auto words = prepare(60, [] { throw std::runtime_error("the disk is full"); });
  EXPECT_EQ(words[0], "the disk is full");
  for (const size_t rank : {1, 2}) {
    EXPECT_THAT(words[rank],
                StartsWith("accelerator.prepare: rank 0 failed while preparing data: the disk is "
                           "full"));
  }
}

TEST(Processes, WaitForDataNoLongerThanTheyAreTold) {
  const auto words = prepare(0.5, [] { std::this_thread::sleep_for(std::chrono::seconds(2)); });
  for (const size_t rank : {1, 2}) {
    EXPECT_THAT(words[rank], StartsWith("accelerator.prepare: waited 0.5 s for data to be prepared "
                                        "(prepare_data), and 2 of 3 processes are done"));
  }
}

TEST(Processes, PutValuesTogether) {
  const auto words = of_ranks(2, [](Processes& p) {
    const at::Tensor one = torch::full({2}, p.process_index() + 1.0);
    const bool right =
        torch::equal(p.reduce(one, ReduceOp::kSum), torch::full({2}, 3.0)) &&
        torch::equal(p.reduce(one, ReduceOp::kSum, 0.5), torch::full({2}, 1.5)) &&
        torch::equal(p.gather(one), torch::tensor({1.0, 1.0, 2.0, 2.0}).to(at::kFloat));
    return right ? "" : "differs";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Processes, PadToTheLargest) {
  const auto words = of_ranks(2, [](Processes& p) {
    const int64_t own = p.process_index() + 1;
    const at::Tensor rows = p.pad_across_processes(torch::ones({own, 2}));
    const at::Tensor columns = p.pad_across_processes(torch::ones({2, own}), -1, -7.0, true);
    if (rows.size(0) != 2 || columns.size(1) != 2) return "another size";
    const bool padded = rows[1][0].item<double>() == 0.0 && columns[0][0].item<double>() == -7.0;
    return padded == (own == 1) ? "" : "another padding";
  });
  EXPECT_THAT(words, Each(""));
  Processes alone({}, {});
  EXPECT_THAT(error_of([&] { alone.pad_across_processes(torch::ones({2}), 1); }),
              StartsWith("accelerator.pad: got dim 1 for a tensor with 1 dims"));
}

TEST(Processes, SplitWhatAllHave) {
  const auto words = of_ranks(3, [](Processes& p) {
    std::string text;
    for (const bool padding : {false, true}) {
      for (const int i : p.split_between_processes(std::vector<int>{0, 1, 2, 3}, padding)) {
        text += std::to_string(i);
      }
      text += " ";
    }
    text += std::to_string(p.split_between_processes(torch::arange(2)).numel());
    return text;
  });
  EXPECT_THAT(words, ElementsAre("01 01 1", "2 22 1", "3 33 0"));
  Processes alone({}, {});
  EXPECT_THAT(error_of([&] { alone.split_between_processes(torch::ones({})); }),
              StartsWith("accelerator.split: got a scalar"));
}

TEST(Processes, ATriggerOfOneIsSeenByAllOnce) {
  const auto words = of_ranks(2, [](Processes& p) {
    if (p.process_index() == 1) p.set_trigger();
    const bool first = p.check_trigger(), second = p.check_trigger();
    return first && !second ? "" : "not once";
  });
  EXPECT_THAT(words, Each(""));
}

TEST(Processes, OneOfAMachinePrints) {
  testing::internal::CaptureStdout();
  Processes({}, {}).print("hello");
  Processes({.rank = 1, .world_size = 2, .local_rank = 1, .local_world_size = 2}, {})
      .print("there");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "hello\n");
}

/// Each sample's number, as gathered over an epoch.
std::string gathered(Accelerator& accelerator, int64_t samples, int64_t batch_size) {
  auto [loader] = accelerator.prepare(levin::DataLoader(
      levin::data::tensors({{"number", torch::arange(samples)}}), {.batch_size = batch_size}));
  std::vector<at::Tensor> all;
  for (const auto& batch : loader) all.push_back(accelerator.gather_for_metrics(batch["number"]));
  const at::Tensor numbers = torch::cat(all);
  return torch::equal(numbers, torch::arange(samples)) ? "" : c10::str(numbers);
}

TEST(GatherForMetrics, GivesEachSampleOnceWhateverTheSizeOfTheData) {
  for (const int64_t size : {1, 2, 3}) {
    const auto words = run_world(size, [](int64_t, const auto&) {
      std::string wrong;
      for (const bool dispatch : {false, true}) {
        Accelerator accelerator({.cpu = true, .dataloader_config = {.dispatch_batches = dispatch}});
        for (const int64_t samples : {7, 12, 13, 20, 37}) {
          wrong += gathered(accelerator, samples, 4);
        }
      }
      return wrong;
    });
    EXPECT_THAT(words, Each("")) << size;
  }
}

TEST(SplitBatches, CutsTheBatchOfTheLoader) {
  const auto words = run_world(2, [](int64_t, const auto&) {
    Accelerator accelerator({.cpu = true, .dataloader_config = {.split_batches = true}});
    auto [loader] = accelerator.prepare(levin::DataLoader(dataset(16), {.batch_size = 8}));
    if (loader.size() != 2 || loader.begin()->size() != 4) return std::string("other batches");
    return error_of(
        [&] { accelerator.prepare(levin::DataLoader(dataset(16), {.batch_size = 7})); });
  });
  EXPECT_THAT(words, Each(StartsWith("accelerator.split_batches: batches of 7 samples cannot be "
                                     "split over 2 processes; set another batch_size")));
}

TEST(EvenBatches, UnevenOnesWithoutJoinAreAnError) {
  const auto words = run_world(2, [](int64_t, const auto&) {
    Accelerator accelerator({.cpu = true, .dataloader_config = {.even_batches = false}});
    auto [loader] = accelerator.prepare(levin::DataLoader(dataset(9), {.batch_size = 2}));
    return error_of([&] {
      for ([[maybe_unused]] const auto& batch : loader) continue;
    });
  });
  EXPECT_THAT(words, Each(StartsWith("accelerator.even_batches: only 1 of 2 processes have a batch "
                                     "left; set even_batches = true")));
}

}  // namespace
