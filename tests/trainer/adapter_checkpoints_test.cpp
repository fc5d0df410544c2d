// Checkpoints of adapters under every strategy: how large they are, that a run goes on from them bit for bit,
// and that a process may be killed at any of a save's steps on the disk.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/killed_at.h"
#include "tests/support/world.h"
#include "tests/trainer/adapter_run.h"

namespace {

using namespace adapter_run;  // NOLINT
using levin::test::End;
using levin::test::run_world;
using levin::test::Scratch;
using small_run::off_by;
using small_run::quiet;
using ::testing::Each;

struct Spread {
  std::string name;
  std::string strategy;
  int64_t stage = 2;
  int64_t ranks = 2;
  std::string backend = "auto";
};
std::ostream& operator<<(std::ostream& out, const Spread& spread) { return out << spread.name; }

struct Part {
  int64_t max_steps = 10;
  std::string resume = {};
  std::string save = {};  ///< a checkpoint of its end
};

/// Leaves name.safetensors of what trains, and the adapter's folder.
void train_part(const Spread& spread, const fs::path& folder, const std::string& name,
                const Part& part) {
  auto options = quiet(folder.string());
  options.accelerator = "cpu";
  options.strategy = spread.strategy;
  options.engine.comm.backend = spread.backend;
  options.engine.fsdp.zero_stage = spread.stage;
  options.enable_checkpointing = false;
  options.seed = 3;
  options.max_epochs = -1;
  options.max_steps = part.max_steps;
  levin::Trainer trainer(options);
  const auto net = adapted(folder / "base", /*rank=*/16);
  trainer.fit(module(net), loader(4), std::nullopt, {.ckpt_path = part.resume});
  if (!part.save.empty()) trainer.save_checkpoint(part.save);
  const levin::State weights = levin::full(*net);
  const levin::WholeScope whole(*net);
  if (!trainer.accelerator().is_main_process()) return;
  levin::save_weights(folder / (name + ".safetensors"), weights);
  net->save_pretrained(folder / "adapter");
}

class AdapterCheckpoints : public ::testing::TestWithParam<Spread> {};

TEST_P(AdapterCheckpoints, AreSmallAndARunGoesOnFromThemBitForBit) {
  const Scratch folder;
  write_base(folder / "base");
  const std::string place = (folder / "at_6").string();
  const auto run = [&](const std::string& name, const Part& part) {
    return run_world(GetParam().ranks, [&](int64_t, const fs::path&) {
      train_part(GetParam(), folder.path(), name, part);
      return std::string();
    });
  };
  ASSERT_THAT(run("whole", {}), Each(""));
  ASSERT_THAT(run("begun", {.max_steps = 6, .save = place}), Each(""));
  ASSERT_THAT(run("resumed", {.resume = place}), Each(""));
  EXPECT_EQ(off_by(folder / "resumed.safetensors", folder / "whole.safetensors", 0), "");
  EXPECT_NE(off_by(folder / "begun.safetensors", folder / "whole.safetensors", 0), "");
  const auto adapter = fs::file_size(folder / "adapter" / "adapter_model.safetensors");
  const auto checkpoint = bytes_in(place);
  std::printf("%s: an adapter of %ju bytes, a checkpoint of %ju: %.2f times\n",
              GetParam().name.c_str(), adapter, checkpoint,
              static_cast<double>(checkpoint) / static_cast<double>(adapter));
  EXPECT_LE(checkpoint, 4 * adapter);
  EXPECT_GT(checkpoint, adapter) << "moments of the optimizer are in it";
}

INSTANTIATE_TEST_SUITE_P(
    All, AdapterCheckpoints,
    ::testing::Values(Spread{"Single", "single", 2, 1}, Spread{"Ddp", "ddp"},
                      Spread{"DdpGloo", "ddp", 2, 3, "gloo"}, Spread{"Fsdp", "fsdp"},
                      Spread{"FsdpGloo", "fsdp", 2, 3, "gloo"}, Spread{"Zero1", "zero", 1},
                      Spread{"Zero2", "zero", 2, 4}, Spread{"Zero3", "zero", 3}),
    [](const auto& info) { return info.param.name; });

/// Goes on from the last checkpoint of its folder, if there is one, which it makes each second step.
int train_and_save(const fs::path& base, const fs::path& folder) {
  at::set_num_threads(1);
  auto options = quiet(folder.string());
  options.accelerator = "cpu";
  options.seed = 3;
  options.max_epochs = -1;
  options.max_steps = 6;
  options.ckpt_path = "last";
  options.callbacks = {levin::model_checkpoint({.dirpath = (folder / "ckpt").string(),
                                                .save_last = true,
                                                .save_top_k = 1,
                                                .every_n_train_steps = 2})};
  levin::Trainer trainer(options);
  const auto net = adapted(base);
  trainer.fit(module(net), loader(8));
  levin::save_weights(folder / "final.safetensors", levin::module_state(*net));
  return 0;
}

/// At each of the calls that change the disk in the course of the run, its own last one too.
TEST(AdapterCheckpoint, AProcessThatIsKilledAnywhereGoesOnBitForBit) {
  const Scratch scratch;
  write_base(scratch / "base");
  const auto run = [&](const fs::path& folder) {
    return [&, folder] { return train_and_save(scratch / "base", folder); };
  };
  fs::create_directories(scratch / "whole");
  ASSERT_EQ(levin::test::wait_for(levin::test::start_child(run(scratch / "whole"))), 0);
  int64_t kills = 0;
  for (int64_t call = 1;; call += 5) {
    SCOPED_TRACE(call);
    const Scratch folder;
    const End end = levin::test::killed_at(call, run(folder.path()), levin::test::changes_the_disk);
    if (end == End::kCannotTrace) GTEST_SKIP() << "ptrace is not permitted here";
    ASSERT_NE(end, End::kFailed);
    if (end == End::kEnded) break;  // it came through with fewer calls
    ++kills;
    ASSERT_EQ(levin::test::wait_for(levin::test::start_child(run(folder.path()))), 0);
    EXPECT_EQ(off_by(folder / "final.safetensors", scratch / "whole" / "final.safetensors", 0), "");
  }
  EXPECT_GT(kills, 5);
  std::printf("killed %ld times\n", static_cast<long>(kills));
}

}  // namespace
