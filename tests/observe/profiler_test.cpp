#include "levin/observe/profiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/torch.h>

#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace {

using levin::OperatorAverage;
using levin::Profiler;
using levin::test::error_of;
using levin::test::names_in;
using levin::test::Scratch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void work() {
  const at::Tensor x = torch::ones({64, 64});
  x.mm(x).relu();
}

OperatorAverage average_of(const Profiler& profiler, const std::string& name) {
  for (const OperatorAverage& average : profiler.key_averages()) {
    if (average.name == name) return average;
  }
  return {};
}

TEST(Profiler, CountsTheCallsOfEachOperator) {
  Profiler profiler({.activities = {"cpu"}, .with_flops = true});
  for (int i = 0; i < 3; ++i) work();
  profiler.stop();
  const OperatorAverage mm = average_of(profiler, "aten::mm");
  EXPECT_EQ(mm.calls, 3);
  EXPECT_EQ(mm.flops, 3 * 2 * 64 * 64 * 64);
  EXPECT_GT(mm.total_us, 0.0);
  EXPECT_EQ(average_of(profiler, "aten::relu").calls, 3);
}

TEST(Profiler, SelfTimeIsWithoutTheOperatorsCalled) {
  Profiler profiler;
  work();
  profiler.stop();
  const OperatorAverage relu = average_of(profiler, "aten::relu");
  const OperatorAverage within = average_of(profiler, "aten::clamp_min");
  ASSERT_EQ(within.calls, 1);
  EXPECT_NEAR(relu.self_us, relu.total_us - within.total_us, 1e-6);
  double self_us = 0.0, outer_us = 0.0;
  for (const OperatorAverage& average : profiler.key_averages()) self_us += average.self_us;
  for (const char* name : {"aten::ones", "aten::mm", "aten::relu"}) {
    outer_us += average_of(profiler, name).total_us;
  }
  EXPECT_NEAR(self_us, outer_us, 1e-6);
}

TEST(Profiler, WritesAChromeTrace) {
  const Scratch scratch;
  {
    const Profiler profiler({.output_trace_dir = (scratch / "a/b").string(), .rank = 3});
    work();
  }
  ASSERT_THAT(names_in(scratch / "a/b"), ElementsAre("profile_3.json"));
  const auto trace = nlohmann::json::parse(levin::test::get(scratch / "a/b/profile_3.json"));
  int products = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.value("name", "") == "aten::mm") ++products;
  }
  EXPECT_EQ(products, 1);
}

TEST(Profiler, ASecondRunsTraceStandsBesideTheFirst) {
  const Scratch scratch;
  for (int run = 0; run < 2; ++run) {
    const Profiler profiler({.output_trace_dir = scratch.str()});
    work();
  }
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("profile_0.2.json", "profile_0.json"));
  levin::test::put(scratch / "mine", "somebody's");
  std::filesystem::create_symlink(scratch / "mine", scratch / "link.json");
  Profiler profiler({});
  work();
  profiler.stop();
  profiler.export_chrome_trace(scratch / "link.json");
  EXPECT_EQ(levin::test::get(scratch / "mine"), "somebody's");
}

TEST(Profiler, RecordsTheStepsOfItsSchedule) {
  std::vector<int64_t> products;
  Profiler profiler(
      {.schedule_option = {.wait = 1, .warmup = 1, .active = 2, .repeat = 2, .skip_first = 1},
       .on_trace_ready = [&](Profiler& ready) {
         products.push_back(average_of(ready, "aten::mm").calls);
         EXPECT_EQ(average_of(ready, "ProfilerStep#3").calls, products.size() == 1);
       }});
  for (int step = 0; step < 20; ++step) {
    for (int i = 0; i <= step; ++i) work();
    profiler.step();
  }
  profiler.stop();
  EXPECT_THAT(products, ElementsAre(4 + 5, 8 + 9));
}

TEST(Profiler, ACycleThatIsCutShortIsHandedOutAsFarAsItGot) {
  const Scratch scratch;
  {
    Profiler profiler({.schedule_option = {.active = 2}, .output_trace_dir = scratch.str()});
    for (int step = 0; step < 3; ++step) {
      work();
      profiler.step();
    }
  }
  EXPECT_THAT(names_in(scratch.path()), ElementsAre("profile_0.json", "profile_0_1.json"));
}

TEST(Profiler, AWarmUpIsNoRecording) {
  Profiler profiler({.schedule_option = {.warmup = 2, .active = 1}});
  work();
  profiler.stop();
  EXPECT_THAT(error_of([&] { profiler.table(); }),
              StartsWith("observe.profiler.empty: nothing was recorded yet"));
}

TEST(Profiler, PrintsTheMostExpensiveFirst) {
  const at::Tensor x = torch::ones({400, 400});
  Profiler profiler;
  for (int i = 0; i < 40; ++i) x.mm(x);  // so long that no pause of the machine's outweighs it
  x.neg();
  profiler.stop();
  const std::string table = profiler.table(1);
  EXPECT_THAT(table, HasSubstr("aten::mm"));
  EXPECT_EQ(std::ranges::count(table, '\n'), 2);
}

TEST(Profiler, RunsOneAtATime) {
  const Profiler first;
  EXPECT_THAT(error_of([] { const Profiler second; }),
              StartsWith("observe.profiler.running: another profiler is running"));
}

TEST(Profiler, OfAnUnknownActivityOrScheduleIsAnError) {
  EXPECT_THAT(error_of([] { const Profiler profiler({.activities = {"tpu"}}); }),
              StartsWith("observe.profiler.activity: got the activity 'tpu'"));
  if (!torch::cuda::is_available()) {
    EXPECT_THAT(
        error_of([] { const Profiler profiler({.activities = {"cuda"}}); }),
        StartsWith("observe.profiler.activity: got the activity cuda, but there is no GPU"));
  }
  EXPECT_THAT(error_of([] { const Profiler profiler({.schedule_option = {.wait = 1}}); }),
              StartsWith("observe.profiler.schedule: got a schedule with active = 0"));
  EXPECT_THAT(
      error_of([] { const Profiler profiler({.schedule_option = {.wait = -1, .active = 1}}); }),
      StartsWith("observe.profiler.schedule: got wait = -1"));
}

TEST(Profiler, WhereNoFileCanBeWrittenIsAnErrorOfStop) {
  const Scratch scratch;
  levin::test::put(scratch / "file", "");
  Profiler profiler({.output_trace_dir = (scratch / "file").string()});
  work();
  EXPECT_THAT(error_of([&] { profiler.stop(); }), StartsWith("observe.profiler.write: the trace"));
  EXPECT_EQ(average_of(profiler, "aten::mm").calls, 1);  // and nothing is lost
}

}  // namespace
