// The settings from which --strategy auto chooses, and the memory that it refuses. tests/trainer has the runs.
#include "levin/accelerator/engine/automatic_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/accelerator/accelerator.h"
#include "tests/support/error_of.h"

namespace {

using levin::test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> allowed(const levin::AcceleratorOptions& options,
                                 levin::detail::RunPlace run = {}, int64_t batches = 1) {
  run.ranks = 4;
  std::vector<std::string> names;
  for (const levin::forecast::Setting& each :
       levin::detail::allowed_settings(options, run, batches)) {
    names.push_back(each.name() + " " + levin::forecast::to_text(each.mesh));
  }
  return names;
}

TEST(AutomaticSettings, AreThoseThatTheOptionsAllow) {
  const auto all =
      ElementsAre("ddp dp=4", "zero 1 fsdp=4", "zero 2 fsdp=4", "fsdp fsdp=4", "zero 3 fsdp=4");
  const auto ddp = ElementsAre("ddp dp=4");
  const levin::detail::RunPlace gloo{.backend = "gloo"}, gpu{.device = at::kCUDA};
  levin::AcceleratorOptions replayed, uneven, buckets, units, staged, mesh, offloaded;
  replayed.engine.compile = "replay";
  uneven.dataloader_config.even_batches = false;
  buckets.engine.ddp.bucket_cap_mb = 5;
  units.engine.fsdp.unit_mb = 4;
  staged.engine.fsdp.zero_stage = 3;
  mesh.engine.fsdp.mesh = "replicate=2,fsdp=2";
  offloaded.engine.offload.state = "parameters";
  EXPECT_THAT(allowed({}), all);
  EXPECT_THAT(allowed({}, gloo), all);
  EXPECT_THAT(allowed(replayed), all);
  EXPECT_THAT(allowed(replayed, {}, 4), ddp);
  EXPECT_THAT(allowed(replayed, gloo), all);
  EXPECT_THAT(allowed(replayed, gpu), ddp);
  EXPECT_THAT(allowed(uneven), all);
  EXPECT_THAT(allowed(uneven, gloo), ddp);
  EXPECT_THAT(allowed(buckets), ddp);
  EXPECT_THAT(allowed(units),
              ElementsAre("zero 1 fsdp=4", "zero 2 fsdp=4", "fsdp fsdp=4", "zero 3 fsdp=4"));
  EXPECT_THAT(allowed(staged), ElementsAre("zero 3 fsdp=4"));
  EXPECT_THAT(allowed(mesh), ElementsAre("zero 1 dp=2,fsdp=2", "zero 2 dp=2,fsdp=2",
                                         "fsdp dp=2,fsdp=2", "zero 3 dp=2,fsdp=2"));
  EXPECT_THAT(allowed(offloaded), ElementsAre("fsdp fsdp=4", "zero 3 fsdp=4"));
}

TEST(AutomaticSettings, RefuseAMemoryThatNobodyAsksFor) {
  const auto error = [](const levin::AcceleratorOptions& options) {
    return error_of([&] { levin::Accelerator accelerator(options); });
  };
  EXPECT_THAT(error({.engine = {.max_memory_gb = -1}}),
              HasSubstr("accelerator.max_memory: got --max-memory-gb -1"));
  EXPECT_THAT(error({.strategy = "ddp", .engine = {.max_memory_gb = 4}}),
              HasSubstr("with strategy 'ddp'"));
}

}  // namespace
