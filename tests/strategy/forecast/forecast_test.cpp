// Forecasts against numbers reckoned by hand, and what a cluster's file and a mesh may be.
#include "levin/strategy/forecast/forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "levin/module/wrap.h"
#include "levin/strategy/forecast/gather_plan.h"
#include "tests/strategy/forecast/recorded.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::test::forecasts {
namespace {

using forecast::Cluster;
using forecast::Forecast;
using forecast::Kind;
using forecast::Mesh;
using ::testing::HasSubstr;

/// Rates of which times are easy to reckon.
Cluster simple_cluster() {
  return {.name = "simple",
          .device = "gpu",
          .memory_bytes = 1e9,
          .float32_flops_per_s = 1e9,
          .bfloat16_flops_per_s = 2e9,
          .float16_flops_per_s = 2e9,
          .bytes_per_s = 1e9,
          .ranks_per_node = 4,
          .runtime_bytes = 1000,
          .inside = {"nccl", 1e-3, 1e6, 2e6, 4e6},
          .across = {"nccl", 2e-3, 1e5, 1e5, 1e5}};
}

int64_t of(const Forecast& forecast, Kind kind) {
  return forecast.memory[static_cast<size_t>(kind)];
}

table::Case mlp_case(const std::string& strategy) {
  return {.name = "mlp", .strategy = strategy, .task = mlp, .wrap = wrap_all};
}

Forecast forecast_of_mlp(const std::string& strategy, const Mesh& mesh,
                         const Cluster& cluster = simple_cluster()) {
  const RecordedCase recorded = recorded_case(mlp_case(strategy), 1);
  return forecast::forecast_of(recorded.step, recorded.description,
                               forecast::setting_of(strategy, mesh), cluster);
}

// Bytes of the layers 6 x 16, 16 x 16 and 16 x 3 with their biases.
constexpr int64_t kParameters = int64_t{4} * (6 * 16 + 16 + 16 * 16 + 16 + 16 * 3 + 3);

TEST(Forecast, OfOneProcessHasWholeParametersGradientsAndMomentum) {
  const Forecast forecast = forecast_of_mlp("single", {});
  EXPECT_EQ(of(forecast, Kind::kParameters), kParameters);
  EXPECT_EQ(of(forecast, Kind::kOptimizer), kParameters);
  EXPECT_EQ(of(forecast, Kind::kGradients), kParameters);
  EXPECT_EQ(of(forecast, Kind::kInputs), kGlobalBatch * 6 * 4);
  EXPECT_EQ(of(forecast, Kind::kRuntime), 1000);
  EXPECT_TRUE(forecast.collectives.empty());
  EXPECT_DOUBLE_EQ(forecast.step_s, forecast.compute_s);
  EXPECT_DOUBLE_EQ(forecast.samples_per_s, kGlobalBatch / forecast.step_s);
}

TEST(Forecast, OfDdpHasOneBucketOfWholeCacheLines) {
  const Forecast forecast = forecast_of_mlp("ddp", {.replicate = 2});
  // 384, 64, 1024, 64, 192 bytes are whole lines, 12 bytes become one; 6 flags go alone on a GPU.
  const int64_t bucket = 384 + 64 + 1024 + 64 + 192 + 64;
  EXPECT_EQ(of(forecast, Kind::kParameters), kParameters);
  EXPECT_EQ(of(forecast, Kind::kGradientBuffers), bucket + 24);
  EXPECT_EQ(forecast.collective_bytes("all_reduce"), bucket + 24);
  EXPECT_EQ(forecast.collectives.size(), 2);
}

TEST(Forecast, OfFsdpHasTheLargestRanksRows) {
  const Forecast forecast = forecast_of_mlp("fsdp", {.replicate = 2});
  // Units of 112, 272 and 51 numbers, whose parameters begin at multiples of 16. Rank 0 has 9 of 16 rows of 6
  // and of 16 (with the bias that is 7 rows of the second rank), and 2 of 3 rows of 16.
  const int64_t own = of(forecast, Kind::kParameters);
  EXPECT_GE(2 * own, kParameters);
  EXPECT_LE(own, kParameters / 2 + 152);
  EXPECT_EQ(of(forecast, Kind::kOptimizer), of(forecast, Kind::kGradients));
  EXPECT_EQ(of(forecast, Kind::kGradientBuffers), 2 * 272 * 4);    // two of the largest unit
  EXPECT_EQ(of(forecast, Kind::kGathered), 4 * (112 + 272 + 51));  // less than three of the largest
  EXPECT_EQ(forecast.collective_bytes("reduce_scatter"), kParameters);
  EXPECT_EQ(forecast.collective_bytes("all_reduce"), 6 * 8);
  EXPECT_EQ(forecast.collective_bytes("all_gather"), kParameters);
}

TEST(Forecast, OfHsdpReducesRowsOverReplicas) {
  const Forecast sharded = forecast_of_mlp("fsdp", {.replicate = 2});
  const Forecast both = forecast_of_mlp("fsdp", {.replicate = 3, .shard = 2});
  EXPECT_EQ(both.memory, sharded.memory);
  EXPECT_EQ(both.collective_bytes("reduce_scatter"), kParameters);
  EXPECT_GE(both.collective_bytes("all_reduce"), kParameters / 2 + 48);
  EXPECT_EQ(both.setting.mesh.size(), 6);
}

TEST(Forecast, OfAccumulatedBatchesKeepsWholeGradientsOrReducesEach) {
  table::Case c = mlp_case("fsdp");
  c.accumulate = 3;
  const RecordedCase recorded = recorded_case(c, 1);
  const auto planned = [&](const char* strategy) {
    return forecast::forecast_of(recorded.step, recorded.description,
                                 forecast::setting_of(strategy, {.replicate = 2}),
                                 simple_cluster());
  };
  const Forecast fsdp = planned("fsdp"), zero = planned("zero2");
  EXPECT_EQ(of(fsdp, Kind::kGradients) - of(zero, Kind::kGradients), kParameters);
  EXPECT_EQ(fsdp.collective_bytes("reduce_scatter"), kParameters);
  EXPECT_EQ(zero.collective_bytes("reduce_scatter"), 3 * kParameters);
  EXPECT_EQ(zero.collective_bytes("all_reduce"), 3 * 6 * 8);
}

TEST(Forecast, OfSharedMemoryGathersNothing) {
  Cluster cluster = simple_cluster();
  cluster.device = "cpu";
  cluster.inside.backend = "shm";
  const Forecast forecast = forecast_of_mlp("fsdp", {.replicate = 2}, cluster);
  EXPECT_EQ(of(forecast, Kind::kGathered), 0);
  EXPECT_EQ(forecast.collective_bytes("all_gather"), 0);
  EXPECT_EQ(forecast.collective_bytes("all_reduce"), 6 * 8 + 4);
}

TEST(Forecast, OverGlooHasTwoBuffersForTheOthersParts) {
  Cluster cluster = simple_cluster();
  cluster.device = "cpu";
  cluster.inside.backend = "gloo";
  // The largest reduction: the bucket of 1792 bytes with a number for each of 6 gradients.
  EXPECT_EQ(of(forecast_of_mlp("ddp", {.replicate = 2}, cluster), Kind::kCommunication),
            2 * (1792 + 6 * 4));
  EXPECT_EQ(of(forecast_of_mlp("ddp", {.replicate = 2}), Kind::kCommunication), 0);
}

// The largest unit's gradients over the ranks of a copy, the largest rows over the replicas, and the flags of six
// parameters over all.
TEST(Forecast, OfHsdpOverGlooHasTwoBuffersForEachGroup) {
  Cluster cluster = simple_cluster();
  cluster.device = "cpu";
  cluster.inside.backend = "gloo";
  const Forecast forecast = forecast_of_mlp("fsdp", {.replicate = 2, .shard = 2}, cluster);
  int64_t rows = 0;
  for (const auto& each : forecast.collectives) {
    if (each.name == "all_reduce" && each.ranks == 2) rows = std::max(rows, each.bytes);
  }
  EXPECT_GE(rows, 272 * 4 / 2);
  EXPECT_LT(rows, 272 * 4);
  EXPECT_EQ(of(forecast, Kind::kCommunication), 2 * (272 * 4 + rows + 6 * 8));
}

TEST(Forecast, HidesWhatRunsBesideOperators) {
  Cluster cluster = simple_cluster();
  cluster.inside = {"nccl", 0, 1e15, 1e15, 1e15};
  const Forecast fast = forecast_of_mlp("ddp", {.replicate = 2}, cluster);
  EXPECT_NEAR(fast.step_s, fast.compute_s, 1e-9);
  cluster.inside = {"nccl", 1.0, 1e15, 1e15, 1e15};
  const Forecast slow = forecast_of_mlp("ddp", {.replicate = 2}, cluster);
  EXPECT_NEAR(slow.step_s - slow.compute_s, 2.0, 0.01);  // gradients and flags, one after another
  EXPECT_NEAR(slow.hidden_s(), 0.0, 0.01);
}

TEST(Forecast, SlowsComputeByWhatIsHiddenOnBusyCores) {
  Cluster cluster = simple_cluster();
  cluster.inside = {"gloo", 1e-7, 1e15, 1e15, 1e15};
  const Forecast without = forecast_of_mlp("fsdp", {.replicate = 2}, cluster);
  cluster.overlap_cost = 0.5;
  const Forecast with = forecast_of_mlp("fsdp", {.replicate = 2}, cluster);
  EXPECT_NEAR(with.step_s - without.step_s, 0.5 * without.hidden_s(), 1e-12);
  EXPECT_GT(without.hidden_s(), 0);
}

TEST(ForecastCollectives, TakeAlphaAndTheirShareOfTheBusBandwidth) {
  const Cluster cluster = simple_cluster();
  // 4 ranks: two starts of 1 ms; 2 * 3/4 of 1 MB at 1 MB/s, 3/4 of it at 2 and 4 MB/s.
  EXPECT_DOUBLE_EQ(forecast::collective_seconds(cluster, "all_reduce", 4, 1000000, true), 1.502);
  EXPECT_DOUBLE_EQ(forecast::collective_seconds(cluster, "all_gather", 4, 1000000, true), 0.377);
  EXPECT_DOUBLE_EQ(forecast::collective_seconds(cluster, "reduce_scatter", 4, 1000000, true),
                   0.1895);
  EXPECT_DOUBLE_EQ(forecast::collective_seconds(cluster, "all_reduce", 8, 1000000, false), 17.506);
  EXPECT_DOUBLE_EQ(forecast::collective_seconds(cluster, "all_reduce", 1, 1000000, true), 0.0);
}

TEST(ForecastGathers, TakeWhatForwardFreedFromNeighbours) {
  // Five units: forward frees two of them, of which each of two ranks keeps half.
  std::vector<forecast::Image> images;
  for (size_t unit = 0; unit < 5; ++unit) images.push_back({.unit = unit, .bytes = 11, .near = 2});
  const std::vector<std::vector<size_t>> reads = {{0}, {1}, {2}, {3}, {4}, {4}, {3}, {2}, {1}, {0}};
  forecast::GatherState before;
  for (int step = 0; step < 3; ++step) {
    const auto plan = forecast::plan_gathers(images, reads, 5, 0, before);
    std::vector<size_t> near, far;
    for (const auto& gather : plan.gathers) (gather.is_near ? near : far).push_back(gather.image);
    EXPECT_THAT(far, ::testing::ElementsAre(0, 1, 2, 3, 4));
    EXPECT_THAT(near, ::testing::ElementsAre(1, 0));
    EXPECT_EQ(plan.most_bytes, 3 * 11 + 2 * 6);
    before = plan.left;
  }
}

TEST(ForecastGathers, DropTheOldestUnitAndPrefetchTheNext) {
  // Four units of 10 bytes, read one after another and back: three are kept at a time.
  const std::vector<forecast::Image> images = {{0, 10}, {1, 10}, {2, 10}, {3, 10}};
  const std::vector<std::vector<size_t>> reads = {{0}, {1}, {2}, {3}, {3}, {2}, {1}, {0}};
  const auto first = forecast::plan_gathers(images, reads, 4, 0);
  EXPECT_EQ(first.gathers[1].started, 1);  // nothing is known of the order yet
  const auto plan = forecast::plan_gathers(images, reads, 4, 0, first.left);
  EXPECT_EQ(plan.most_bytes, 30);
  std::vector<size_t> order;
  for (const auto& gather : plan.gathers) order.push_back(gather.image);
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3, 0));  // 3, 2 and 1 are still there
  EXPECT_EQ(plan.gathers[1].started, 0);                      // with unit 0
  EXPECT_EQ(plan.gathers[1].needed, 1);
  EXPECT_EQ(forecast::plan_gathers(images, reads, 4, -1).gathers.size(), 4);
}

TEST(ForecastMesh, IsReadFromAxesAndSizes) {
  const Mesh mesh = forecast::mesh_of("dp=64,fsdp=8");
  EXPECT_EQ(mesh.replicate, 64);
  EXPECT_EQ(mesh.shard, 8);
  EXPECT_EQ(forecast::mesh_of("replicate=2,shard=4").size(), 8);
  EXPECT_EQ(forecast::mesh_of("").size(), 1);
  EXPECT_EQ(forecast::to_text(forecast::mesh_of("fsdp=8")), "fsdp=8");
  for (const char* wrong : {"tp=2", "dp", "dp=0", "dp=2;fsdp=2"}) {
    EXPECT_THAT(error_of([&] { forecast::mesh_of(wrong); }),
                ::testing::AnyOf(HasSubstr("strategy.forecast.mesh"), HasSubstr("base.text")));
  }
}

TEST(ForecastSetting, NamesAStrategy) {
  EXPECT_EQ(forecast::setting_of("zero3", {.replicate = 4}).zero_stage, 3);
  EXPECT_EQ(forecast::setting_of("zero", {.replicate = 4}).mesh.shard, 4);
  EXPECT_EQ(forecast::setting_of("zero-1", {}).name(), "zero 1");
  for (const char* wrong : {"tp", "zero4", "zero11", ""}) {
    EXPECT_EQ(error_id([&] { forecast::setting_of(wrong, {}); }), "strategy.forecast.strategy");
  }
  EXPECT_EQ(error_id([] { forecast_of_mlp("single", {.replicate = 2}); }),
            "strategy.forecast.mesh");
  EXPECT_EQ(error_id([] { forecast_of_mlp("ddp", {.replicate = 1, .shard = 2}); }),
            "strategy.forecast.mesh");
}

TEST(ForecastCluster, IsTheSameFromItsFile) {
  const Scratch scratch;
  Cluster cluster = simple_cluster();
  cluster.source = "a test";
  std::ofstream(scratch.path() / "cluster.toml") << forecast::to_toml(cluster);
  const Cluster read = forecast::read_cluster((scratch.path() / "cluster.toml").string());
  EXPECT_EQ(forecast::to_toml(read), forecast::to_toml(cluster));
  EXPECT_EQ(read.source, "a test");
  EXPECT_DOUBLE_EQ(read.inside.reduce_scatter_bytes_per_s, 4e6);
  EXPECT_FALSE(read.shares_memory());
}

TEST(ForecastCluster, IsRefusedWithoutRates) {
  EXPECT_THAT(
      error_of([] { forecast::read_cluster("no such cluster"); }),
      HasSubstr("strategy.forecast.cluster: got cluster 'no such cluster', wanted cpu, a100"));
  const Scratch scratch;
  const std::string file = (scratch.path() / "cluster.toml").string();
  std::ofstream(file) << "name = \"empty\"\n";
  EXPECT_EQ(error_id([&] { forecast::read_cluster(file); }), "strategy.forecast.cluster");
  std::ofstream(file) << "flops = 3\n";
  EXPECT_EQ(error_id([&] { forecast::read_cluster(file); }), "strategy.forecast.cluster");
}

TEST(ForecastDescription, IsTheSameFromItsJson) {
  const RecordedCase recorded = recorded_case(mlp_case("fsdp"), 1);
  const std::string json = forecast::to_json(recorded.description);
  EXPECT_EQ(forecast::to_json(forecast::description_of(json)), json);
  EXPECT_EQ(recorded.description.units.size(), 3);
  forecast::Description changed = recorded.description;
  changed.units[1].options = {.reshard_after_forward = 4, .reduce_dtype = at::kBFloat16};
  changed.units[2].options = {.reshard_after_forward = false};
  const auto units = forecast::description_of(forecast::to_json(changed)).units;
  EXPECT_FALSE(units[0].options.reshard_after_forward.is_set());
  EXPECT_EQ(to_text(units[1].options.reshard_after_forward), "4");
  EXPECT_EQ(units[1].options.reduce_dtype, at::kBFloat16);
  EXPECT_EQ(to_text(units[2].options.reshard_after_forward), "false");
  EXPECT_EQ(units[2].options.reduce_dtype, std::nullopt);
  for (const char* wrong : {"", "{}", "[1]", "{\"parameters\": 3}"}) {
    EXPECT_EQ(error_id([&] { forecast::description_of(wrong); }), "strategy.forecast.description");
  }
}

TEST(ForecastStep, NeedsGradients) {
  graph::Graph graph;
  EXPECT_EQ(error_id([&] { forecast::recorded_step(graph, {}); }), "strategy.forecast.step");
}

TEST(ForecastChoice, IsTheFastestThatFitsAndSaysWhy) {
  const auto made = [](const char* strategy, int64_t bytes, double seconds) {
    Forecast forecast{.setting = forecast::setting_of(strategy, {.replicate = 8}),
                      .step_s = seconds};
    forecast.memory[0] = bytes;
    return forecast;
  };
  const std::vector<Forecast> forecasts = {made("ddp", 100'000'000'000, 1.0),
                                           made("zero2", 50'000'000'000, 1.5),
                                           made("fsdp", 20'000'000'000, 2.0)};
  const auto all = forecast::choose(forecasts, 200e9);
  EXPECT_EQ(all.best, 0);
  const auto fits = forecast::choose(forecasts, 80e9);
  EXPECT_EQ(fits.best, 1);
  EXPECT_EQ(fits.reason,
            "zero 2 on fsdp=8: the fastest of the 2 that fit 80 GB (50 GB a rank, 1.5 s a step)");
  const auto none = forecast::choose(forecasts, 10e9);
  EXPECT_FALSE(none.best.has_value());
  EXPECT_EQ(none.reason, "none fits 10 GB; fsdp on fsdp=8 needs least, 20 GB");
}

TEST(ForecastCandidates, HaveHsdpOverSeveralNodes) {
  const Cluster cluster = simple_cluster();
  EXPECT_EQ(forecast::candidates(1, cluster).size(), 1);
  EXPECT_EQ(forecast::candidates(4, cluster).size(), 5);
  const auto settings = forecast::candidates(16, cluster);
  ASSERT_EQ(settings.size(), 6);
  EXPECT_EQ(settings.back().mesh.replicate, 4);
  EXPECT_EQ(settings.back().mesh.shard, 4);
}

}  // namespace
}  // namespace levin::test::forecasts
