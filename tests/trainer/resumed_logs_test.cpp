// A resumed run goes on in its own folder of logs, so that its curves are those of a run that nobody disturbed; and
// nothing that it has not written is touched.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <protozero/pbf_reader.hpp>
#include <torch/torch.h>

#include <cstring>
#include <map>
#include <stdexcept>

#include "levin/trainer/callbacks/callbacks.h"
#include "tests/support/child_process.h"
#include "tests/trainer/small_run.h"

namespace resumed_logs_test {
namespace {

using namespace small_run;  // NOLINT
using levin::test::get;
using levin::test::names_in;
using levin::test::put;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

using Version = std::vector<std::string>;

/// Throws after so many steps, behind what was logged.
struct Crash : levin::Callback {
  int64_t step;
  explicit Crash(int64_t step) : step(step) {}
  std::string state_key() const override { return "crash"; }
  void on_train_batch_start(levin::Trainer& trainer, levin::Module&, const levin::Batch&,
                            int64_t) override {
    if (trainer.global_step() == step) throw std::runtime_error("crash");
  }
};

/// Without a schedule, which would depend on how long the run is to be.
struct Unscheduled : Net {
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::sgd({.lr = 0.1}); }
};

struct LoggedRun {
  int64_t max_epochs = 4;
  int64_t max_steps = -1;
  int64_t crash_at = -1;
  std::string ckpt_path = {};
  levin::ModelCheckpointOptions checkpoint = {};
  levin::Loggers logger = true;
  bool in_place = true;
};

/// 4 epochs of 10 batches, each with two validations; the folder of its logs.
std::string logged_run(const fs::path& root, const LoggedRun& settings = {}) {
  auto options = quiet(root.string());
  options.logger = settings.logger;
  options.max_epochs = settings.max_epochs;
  options.max_steps = settings.max_steps;
  options.log_every_n_steps = 3;
  options.val_check_interval = 0.5;
  options.seed = 3;
  options.ckpt_path = settings.ckpt_path;
  options.resume_in_place = settings.in_place;
  options.callbacks = {levin::model_checkpoint(settings.checkpoint),
                       std::make_shared<Crash>(settings.crash_at)};
  levin::Trainer trainer(options);
  const auto net = std::make_shared<Unscheduled>();
  try {
    trainer.fit(net, levin::DataLoader(dataset(80), {.batch_size = 8, .shuffle = true}),
                levin::DataLoader(dataset(16, 6), {.batch_size = 8}));
  } catch (const std::runtime_error&) {
    EXPECT_GE(settings.crash_at, 0);
  }
  return trainer.log_dir();
}

std::string metrics(const fs::path& root, int version = 0) {
  return get(root / c10::str("levin_logs/version_", version, "/metrics.csv"));
}

Version versions(const fs::path& root) { return names_in(root / "levin_logs"); }

struct Event {
  int64_t step = 0;
  bool starts = false;
  std::map<std::string, float> scalars;
};

/// Field numbers of tensorflow's event.proto and summary.proto.
Event event_of(const std::string& message) {
  Event event;
  protozero::pbf_reader reader(message);
  while (reader.next()) {
    if (reader.tag() == 2) {
      event.step = reader.get_int64();
    } else if (reader.tag() == 7) {
      event.starts = true;
      reader.skip();
    } else if (reader.tag() == 5) {
      protozero::pbf_reader value = reader.get_message();
      value.next();
      protozero::pbf_reader fields = value.get_message();
      std::string tag;
      while (fields.next()) {
        if (fields.tag() == 1) {
          tag = fields.get_string();
        } else if (fields.tag() == 2) {
          event.scalars[tag] = fields.get_float();
        } else {
          fields.skip();
        }
      }
    } else {
      reader.skip();
    }
  }
  return event;
}

using Curves = std::map<std::string, std::vector<std::pair<int64_t, float>>>;

/// As TensorBoard reads the files of a folder: a session that starts drops what was there of its step and later.
Curves curves(const fs::path& folder) {
  Curves all;
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with("events.out")) continue;
    const std::string bytes = get(folder / name);
    for (size_t at = 0; at < bytes.size();) {
      uint64_t length = 0;
      std::memcpy(&length, bytes.data() + at, sizeof length);
      const Event event = event_of(bytes.substr(at + 12, length));
      at += 16 + length;
      if (event.starts) {
        for (auto& [tag, points] : all) {
          std::erase_if(points, [&](const auto& point) { return point.first >= event.step; });
        }
      }
      for (const auto& [tag, value] : event.scalars) all[tag].emplace_back(event.step, value);
    }
  }
  return all;
}

struct Disturbance {
  std::string name;
  LoggedRun first;
};

TEST(ResumedLogs, AreThoseOfARunThatNobodyDisturbed) {
  const Scratch whole;
  logged_run(whole.path());
  const std::string wanted = metrics(whole.path());
  const Curves wanted_curves = curves(whole / "levin_logs/version_0");
  ASSERT_EQ(wanted_curves.at("val_acc").size(), 8U);
  const std::vector<Disturbance> disturbances = {
      {"ended after an epoch", {.max_epochs = 2}},
      {"ended at a step", {.max_steps = 23, .checkpoint = {.every_n_train_steps = 7}}},
      {"crashed behind the newest checkpoint",
       {.crash_at = 19, .checkpoint = {.save_on_exception = false, .every_n_train_steps = 7}}},
      {"crashed behind a checkpoint before a validation",
       {.crash_at = 19, .checkpoint = {.save_on_exception = false, .every_n_train_steps = 5}}},
      {"crashed, and saved", {.crash_at = 26}},
  };
  for (const auto& [name, first] : disturbances) {
    const Scratch root;
    const std::string folder = logged_run(root.path(), first);
    LoggedRun second = first;
    second.max_epochs = 4;
    second.max_steps = -1;
    second.crash_at = -1;
    second.ckpt_path = "last";
    EXPECT_EQ(logged_run(root.path(), second), folder) << name;
    EXPECT_THAT(versions(root.path()), ElementsAre("version_0")) << name;
    EXPECT_EQ(metrics(root.path()), wanted) << name;
    EXPECT_EQ(curves(folder), wanted_curves) << name;
  }
}

TEST(ResumedLogs, AreCutAgainWhereARunIsResumedTwiceFromOneCheckpoint) {
  const Scratch whole, root;
  logged_run(whole.path());
  LoggedRun run = {.crash_at = 25,
                   .checkpoint = {.save_on_exception = false, .every_n_train_steps = 12}};
  logged_run(root.path(), run);
  run.ckpt_path = "last";
  run.crash_at = 31;
  logged_run(root.path(), run);
  run.crash_at = -1;
  CaptureStderr();
  logged_run(root.path(), run);
  EXPECT_THAT(GetCapturedStderr(),
              HasSubstr("continues from step 24; removed rows from after it: "));
  EXPECT_EQ(metrics(root.path()), metrics(whole.path()));
}

TEST(ResumedLogs, GoToANewFolderWhereThatIsAskedFor) {
  const Scratch root;
  logged_run(root.path(), {.max_epochs = 1});
  const std::string before = metrics(root.path());
  logged_run(root.path(), {.max_epochs = 2, .ckpt_path = "last", .in_place = false});
  EXPECT_THAT(versions(root.path()), ElementsAre("version_0", "version_1"));
  EXPECT_EQ(metrics(root.path()), before);
}

TEST(ResumedLogs, GoOnWhereTheFolderOfAllRunsIsByNow) {
  const Scratch root;
  logged_run(root / "a", {.max_epochs = 1});
  fs::rename(root / "a", root / "b");
  logged_run(root / "b", {.max_epochs = 2, .ckpt_path = "last"});
  EXPECT_THAT(versions(root / "b"), ElementsAre("version_0"));
  EXPECT_FALSE(fs::exists(root / "a"));
}

TEST(ResumedLogs, LeaveAFolderAloneThatIsAnotherRuns) {
  const Scratch root;
  logged_run(root.path(), {.max_epochs = 1});
  const fs::path logs = root / "levin_logs";
  fs::rename(logs / "version_0/checkpoints", root / "kept");
  for (const char* kind : {"another run's", "of nobody", "gone"}) {
    fs::remove_all(logs);
    if (kind == std::string("another run's")) {
      logged_run(root.path(), {.max_epochs = 1});
    } else if (kind == std::string("of nobody")) {
      fs::create_directories(logs / "version_0");
      put(logs / "version_0/metrics.csv", "step,epoch\n1,0\n2,0\n");
    }
    const bool is_there = fs::exists(logs);
    const std::string before = is_there ? metrics(root.path()) : "";
    logged_run(root.path(), {.max_epochs = 2, .ckpt_path = (root / "kept/last").string()});
    if (!is_there) continue;
    EXPECT_THAT(versions(root.path()), ElementsAre("version_0", "version_1")) << kind;
    EXPECT_EQ(metrics(root.path()), before) << kind;
  }
}

TEST(ResumedLogs, LeaveAFolderAloneThatAnotherProcessWrites) {
  const Scratch root;
  logged_run(root.path(), {.max_epochs = 1});
  const std::string before = metrics(root.path());
  auto options = quiet(root.str());
  options.logger = true;
  options.max_epochs = 1;
  options.ckpt_path = "last";
  levin::Trainer other(options);  // goes on in the folder, and stays
  other.fit(std::make_shared<Unscheduled>(), levin::DataLoader(dataset(80), {.batch_size = 8}));
  EXPECT_THAT(versions(root.path()), ElementsAre("version_0"));
  const int code = levin::test::run_child([&] {
    at::set_num_threads(1);
    logged_run(root.path(), {.max_epochs = 2, .ckpt_path = "last"});
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_THAT(versions(root.path()), ElementsAre("version_0", "version_1"));
  EXPECT_EQ(metrics(root.path()), before);
}

TEST(ResumedLogs, OfLoggersOfOnesOwnGoOnToo) {
  const Scratch whole, root;
  const auto loggers = [](const Scratch& in) {
    return levin::Loggers{levin::csv_logger({.save_dir = in.str(), .name = "mine"}),
                          levin::tensorboard_logger({.save_dir = in.str(), .name = "board"})};
  };
  logged_run(whole.path(), {.logger = loggers(whole)});
  logged_run(root.path(), {.max_epochs = 2, .logger = loggers(root)});
  logged_run(root.path(), {.ckpt_path = "last", .logger = loggers(root)});
  EXPECT_EQ(get(root / "mine/version_0/metrics.csv"), get(whole / "mine/version_0/metrics.csv"));
  EXPECT_THAT(names_in(root / "mine"), ElementsAre("version_0"));
  EXPECT_THAT(names_in(root / "board"), ElementsAre("version_0"));
  EXPECT_EQ(curves(root / "board/version_0"), curves(whole / "board/version_0"));
}

/// What on_save_checkpoint sees, of a module and of a callback.
struct Sees : Unscheduled {
  std::vector<std::pair<int64_t, int64_t>> seen;
  void on_save_checkpoint(levin::State&) override {
    seen.emplace_back(current_epoch(), global_step());
  }
};
struct CallbackSees : levin::Callback {
  std::vector<std::pair<int64_t, int64_t>> seen;
  std::string state_key() const override { return "sees"; }
  void on_save_checkpoint(levin::Trainer& trainer, levin::Module&, levin::State&) override {
    seen.emplace_back(trainer.current_epoch(), trainer.global_step());
  }
};

// As Lightning 2.5 does it with these callbacks, two epochs of three batches.
TEST(SavedEpoch, IsTheOneThatRunsOrHasJustEnded) {
  using Seen = std::vector<std::pair<int64_t, int64_t>>;
  const std::vector<std::pair<levin::ModelCheckpointOptions, Seen>> cases = {
      {{}, {{0, 3}, {1, 6}}},
      {{.save_last = false, .save_top_k = -1, .every_n_train_steps = 2}, {{0, 2}, {1, 4}, {1, 6}}},
      {{.save_on_train_epoch_end = false}, {{0, 3}, {1, 6}}},
  };
  for (const auto& [checkpoint, wanted] : cases) {
    const Scratch root;
    const auto net = std::make_shared<Sees>();
    const auto callback = std::make_shared<CallbackSees>();
    const levin::DataLoader loader(dataset(6), {.batch_size = 2});
    auto options = quiet(root.str());
    options.max_epochs = 2;
    options.callbacks = {levin::model_checkpoint(checkpoint), callback};
    levin::Trainer(options).fit(net, loader, loader);
    EXPECT_EQ(net->seen, wanted);
    EXPECT_EQ(callback->seen, wanted);
    options.max_epochs = 3;
    options.ckpt_path = "last";
    if (!checkpoint.save_last) continue;
    const auto resumed = std::make_shared<Sees>();
    levin::Trainer(options).fit(resumed, loader, loader);
    EXPECT_EQ(resumed->seen, (Seen{{2, 9}}));
  }
}

}  // namespace
}  // namespace resumed_logs_test
