#include "levin/observe/logger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <set>
#include <thread>

#include "levin/base/error.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/variable.h"

namespace {

namespace fs = std::filesystem;
using levin::test::error_of;
using levin::test::get;
using levin::test::put;
using levin::test::run_child;
using levin::test::Scratch;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Logger, WritesElsewhereWhereTheEnvironmentSaysSo) {
  const Scratch elsewhere, folder;
  const levin::test::Variable variable("LEVIN_LOGS_TO", elsewhere.str());
  const int64_t version = levin::claim_version(folder.str());
  const auto logger = levin::csv_logger({.save_dir = folder.str(), .version = version});
  logger->log_metrics({{"loss", 1.0}}, 0, 1);
  logger->flush();
  EXPECT_TRUE(fs::is_empty(folder.path()));
  EXPECT_TRUE(logger->log_dir().starts_with(elsewhere.str()));
  EXPECT_TRUE(fs::exists(fs::path(logger->log_dir()) / "metrics.csv"));
}

levin::LoggerOptions in(const Scratch& folder) { return {.save_dir = folder.path().string()}; }

levin::TensorBoardOptions board_in(const Scratch& folder) {
  return {.save_dir = folder.path().string()};
}

std::string csv(const levin::Logger& logger) { return get(logger.log_dir() + "/metrics.csv"); }

TEST(ClaimVersion, IsOneMoreThanTheHighest) {
  const Scratch folder;
  fs::create_directories(folder / "version_7");
  fs::create_directories(folder / "version_old");
  EXPECT_EQ(levin::claim_version(folder.path().string()), 8);
  EXPECT_EQ(levin::claim_version(folder.path().string()), 9);
  EXPECT_TRUE(fs::is_directory(folder / "version_9"));
}

TEST(ClaimVersion, GivesEachOfManyAtOnceItsOwn) {
  const Scratch folder;
  std::vector<int64_t> versions(32);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (size_t k = 0; k < 8; ++k) {
        versions[8 * i + k] = levin::claim_version((folder / "runs").string());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<int64_t>(versions.begin(), versions.end()).size(), 32u);
}

TEST(ClaimVersion, AnImpossibleFolderIsAnError) {
  const Scratch folder;
  put(folder / "file", "");
  EXPECT_THAT(error_of([&] { levin::claim_version((folder / "file").string()); }),
              HasSubstr("observe.logger.dir: cannot make the folder"));
  EXPECT_THAT(
      error_of([&] { levin::csv_logger({.save_dir = (folder / "file/x").string()})->log_dir(); }),
      HasSubstr("observe.logger.dir"));
}

TEST(Logger, MakesItsFolderOnlyWhenItIsNeeded) {
  const Scratch folder;
  const auto logger = levin::csv_logger({.save_dir = (folder / "a").string(), .name = "b"});
  EXPECT_FALSE(fs::exists(folder / "a"));
  EXPECT_EQ(logger->log_dir(), (folder / "a/b/version_0").string());
  EXPECT_TRUE(fs::is_directory(folder / "a/b/version_0"));
}

TEST(Logger, TwoOfOneVersionShareTheFolder) {
  const Scratch folder;
  const int64_t version = levin::claim_version(folder.path().string());
  const auto a = levin::csv_logger({.save_dir = folder.path().string(), .version = version});
  const auto b =
      levin::tensorboard_logger({.save_dir = folder.path().string(), .version = version});
  EXPECT_EQ(a->log_dir(), b->log_dir());
}

TEST(Logger, HyperparametersAreToml) {
  const Scratch folder;
  const std::vector<std::shared_ptr<levin::Logger>> loggers = {
      levin::csv_logger(in(folder)), levin::tensorboard_logger(board_in(folder))};
  for (const auto& logger : loggers) {
    logger->log_hyperparams({{"lr", "0.001"},
                             {"epochs", "3"},
                             {"shuffle", "true"},
                             {"name", "a \"b\"\n"},
                             {"zip", "007"},
                             {"optim.kind", "adam"}});
    EXPECT_EQ(
        get(logger->log_dir() + "/hparams.toml"),
        "# hyperparameters of a run of levin\n# run_id = " + get(logger->log_dir() + "/run_id") +
            "epochs = 3\nlr = 0.001\nname = \"a \\\"b\\\"\\n\"\n\"optim.kind\" = \"adam\"\n"
            "shuffle = true\nzip = \"007\"\n");
  }
}

TEST(LoggerOptions, AreReadFromFlags) {
  levin::LoggerOptions options{.save_dir = "runs", .version = 3};
  const auto text = levin::options_as_text(options);
  EXPECT_EQ(text.at("save_dir"), "runs");
  EXPECT_EQ(text.at("name"), "");
  EXPECT_EQ(text.at("version"), "3");
}

TEST(CsvLogger, WritesARowForEachCall) {
  const Scratch folder;
  const auto logger = levin::csv_logger(in(folder));
  logger->log_metrics({{"loss", 0.1}, {"lr", 1e-5}}, 0, 10);
  logger->log_metrics({{"lr", 1.0 / 3}, {"loss", 2}}, 1, 20);
  EXPECT_EQ(csv(*logger), "step,epoch,loss,lr\n10,0,0.1,1e-05\n20,1,2,0.3333333333333333\n");
}

TEST(CsvLogger, ANewNameWidensTheRowsThereAre) {
  const Scratch folder;
  const auto logger = levin::csv_logger(in(folder));
  logger->log_metrics({{"loss", 1}}, 0, 1);
  logger->log_metrics({{"acc", 0.5}, {"f1", 0.25}}, 0, 1);
  logger->log_metrics({{"loss", 2}, {"acc", 0.75}}, 1, 2);
  EXPECT_EQ(csv(*logger), "step,epoch,loss,acc,f1\n1,0,1,,\n1,0,,0.5,0.25\n2,1,2,0.75,\n");
}

TEST(CsvLogger, QuotesNamesThatNeedIt) {
  const Scratch folder;
  const auto options = levin::LoggerOptions{.save_dir = folder.path().string(), .version = 0};
  levin::csv_logger(options)->log_metrics({{"a,b", 1}, {"say \"x\"", 2}, {"line\nend", 3}}, 0, 1);
  const std::string header = "step,epoch,\"a,b\",\"say \"\"x\"\"\",\"line\nend\"";
  const auto again = levin::csv_logger(options);
  again->log_metrics({{"say \"x\"", 5}, {"line\nend", 6}}, 0, 2);
  EXPECT_EQ(csv(*again), header + "\n1,0,1,2,3\n2,0,,5,6\n");
  again->log_metrics({{"new", 7}}, 0, 3);
  EXPECT_EQ(csv(*again), header + ",new\n1,0,1,2,3,\n2,0,,5,6,\n3,0,,,,7\n");
}

TEST(CsvLogger, NotFiniteNumbersAreWritten) {
  const Scratch folder;
  const auto logger = levin::csv_logger(in(folder));
  logger->log_metrics({{"a", std::nan("")}, {"b", -INFINITY}}, 0, 1);
  EXPECT_EQ(csv(*logger), "step,epoch,a,b\n1,0,nan,-inf\n");
}

TEST(CsvLogger, GoesOnWithTheFileOfItsVersion) {
  const Scratch folder;
  const auto options = levin::LoggerOptions{.save_dir = folder.path().string(), .version = 4};
  levin::csv_logger(options)->log_metrics({{"loss", 1}}, 0, 1);
  const std::string path = (folder / "version_4/metrics.csv").string();
  put(path, get(path) + "2,0,0.");  // cut short
  const auto logger = levin::csv_logger(options);
  logger->log_metrics({{"loss", 3}, {"acc", 1}}, 0, 2);
  EXPECT_EQ(csv(*logger), "step,epoch,loss,acc\n1,0,1,\n2,0,3,1\n");
}

TEST(CsvLogger, LeavesAForeignFileAlone) {
  const Scratch folder;
  const auto logger = levin::csv_logger(in(folder));
  const std::string foreign = "epoch,step\n1,2\n";
  put(logger->log_dir() + "/metrics.csv", foreign);
  ::testing::internal::CaptureStderr();
  logger->log_metrics({{"x", 1}}, 0, 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("observe.logger.csv: "));
  EXPECT_EQ(csv(*logger), foreign);
}

TEST(CsvLogger, LeavesALinkAndForeignHyperparametersAlone) {
  const Scratch folder;
  const auto logger = levin::csv_logger(in(folder));
  const std::string own = "step,epoch,loss\n1,0,1\n";
  put(folder / "other.csv", own);
  fs::create_symlink(folder / "other.csv", logger->log_dir() + "/metrics.csv");
  put(logger->log_dir() + "/hparams.toml", "mine = 1\n");
  ::testing::internal::CaptureStderr();
  logger->log_hyperparams({{"lr", "0.1"}});
  logger->log_metrics({{"loss", 2}}, 0, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("hparams.toml"));
  EXPECT_EQ(get(folder / "other.csv"), own);
  EXPECT_TRUE(fs::is_symlink(logger->log_dir() + "/metrics.csv"));
  EXPECT_EQ(get(logger->log_dir() + "/hparams.toml"), "mine = 1\n");
}

/// Rows of an earlier run, and what is left of them once somebody who may not read them has logged.
std::string rows_after(const Scratch& folder, const std::function<void(const fs::path&)>& hide) {
  const auto options = levin::LoggerOptions{.save_dir = folder.path().string(), .version = 0};
  levin::csv_logger(options)->log_metrics({{"loss", 1}}, 0, 1);
  const fs::path file = folder / "version_0/metrics.csv";
  fs::permissions(folder.path(), fs::perms::all);
  fs::permissions(folder / "version_0", fs::perms::all);
  hide(file);
  EXPECT_EQ(run_child([&]() -> int {
              if (::geteuid() == 0 && ::seteuid(65534) != 0) return levin::test::kSkipped;
              ::testing::internal::CaptureStderr();
              levin::csv_logger(options)->log_metrics({{"acc", 2}}, 0, 2);
              const std::string said = ::testing::internal::GetCapturedStderr();
              return said.find("metrics.csv") != said.npos ? 0 : 1;
            }),
            0);
  fs::permissions(file, fs::perms::owner_all);
  return get(file);
}

TEST(CsvLogger, DoesNotTakeAFileThatItCannotReadForEmpty) {
  const Scratch folder;
  EXPECT_EQ(
      rows_after(folder, [](const fs::path& file) { fs::permissions(file, fs::perms::none); }),
      "step,epoch,loss\n1,0,1\n");
}

TEST(CsvLogger, LeavesAFileWithoutALineAlone) {
  const Scratch folder;
  const auto logger = levin::csv_logger(in(folder));
  put(logger->log_dir() + "/metrics.csv", "a note to myself");
  ::testing::internal::CaptureStderr();
  logger->log_metrics({{"x", 1}}, 0, 1);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("observe.logger.csv: "));
  EXPECT_EQ(csv(*logger), "a note to myself");
}

TEST(CsvLogger, LosesNothingWhenKilled) {
  const Scratch folder;
  const auto options = levin::LoggerOptions{.save_dir = folder.path().string(), .version = 0};
  const int code = run_child([&]() -> int {
    const auto logger = levin::csv_logger(options);
    logger->log_metrics({{"loss", 1}}, 0, 1);
    logger->log_metrics({{"loss", 2}}, 0, 2);
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(code, -SIGKILL);
  EXPECT_EQ(get(folder / "version_0/metrics.csv"), "step,epoch,loss\n1,0,1\n2,0,2\n");
}

void limit_files(rlim_t bytes) {
  const rlimit limit{bytes, RLIM_INFINITY};
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

size_t count(const std::string& text, std::string_view word) {
  size_t found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

// What a logger says on stderr while files cannot grow beyond 400 bytes, and then can again.
std::string stderr_on_a_full_disk(const Scratch& folder, levin::Logger& logger) {
  const int code = run_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    if (std::freopen((folder / "stderr").c_str(), "w", stderr) == nullptr) return 1;
    logger.log_metrics({{"loss", 0.5}}, 0, 1);
    limit_files(400);
    for (int64_t step = 2; step < 90; ++step) logger.log_metrics({{"loss", 0.5}}, 0, step);
    logger.log_metrics({{"another_name", 1}}, 0, 90);
    limit_files(RLIM_INFINITY);
    logger.log_metrics({{"loss", 0.25}}, 0, 91);
    return 0;
  });
  EXPECT_EQ(code, 0);
  return get(folder / "stderr");
}

TEST(CsvLogger, OnAFullDiskWarnsOnceKeepsWholeRowsAndGoesOnLater) {
  const Scratch folder;
  const auto logger = levin::csv_logger({.save_dir = folder.path().string(), .version = 0});
  const std::string said = stderr_on_a_full_disk(folder, *logger);
  EXPECT_EQ(count(said, "levin warn: observe.logger.write: cannot write"), 1u) << said;
  EXPECT_THAT(said, HasSubstr("file too large; raise the limit on the size of a file"));
  std::string expected = "step,epoch,loss\n";
  for (int step = 1; step <= 43; ++step) expected += std::to_string(step) + ",0,0.5\n";
  ASSERT_EQ(expected.size(), 394u);
  EXPECT_EQ(csv(*logger), expected + "91,0,0.25\n");
}

TEST(JsonlLogger, OnAFullDiskWarnsOnceKeepsWholeRowsAndGoesOnLater) {
  const Scratch folder;
  const auto logger = levin::jsonl_logger({.save_dir = folder.path().string(), .version = 0});
  const std::string said = stderr_on_a_full_disk(folder, *logger);
  EXPECT_EQ(count(said, "levin warn: observe.logger.write: cannot write"), 1u) << said;
  std::string expected;
  for (int step = 1; step <= 12; ++step) {
    expected += "{\"step\":" + std::to_string(step) + ",\"epoch\":0,\"loss\":0.5}\n";
  }
  ASSERT_GT(expected.size() + 34, 400u);
  EXPECT_EQ(get(folder / "version_0/metrics.jsonl"),
            expected + "{\"step\":91,\"epoch\":0,\"loss\":0.25}\n");
}

TEST(TensorBoardLogger, OnAFullDiskWarnsOnceAndTrainingGoesOn) {
  const Scratch folder;
  const auto logger = levin::tensorboard_logger({.save_dir = folder.path().string(), .version = 0});
  const std::string said = stderr_on_a_full_disk(folder, *logger);
  EXPECT_EQ(count(said, "levin warn: files.write"), 1u) << said;
}

TEST(TensorBoardLogger, WritesScalarsAndTheEpochThrough) {
  const Scratch folder;
  const auto logger = levin::tensorboard_logger(board_in(folder));
  logger->log_metrics({{"train_loss", 0.5}}, 3, 7);
  std::string events;
  for (const auto& entry : fs::directory_iterator(logger->log_dir())) {
    if (entry.path().filename() == "run_id") continue;
    EXPECT_THAT(entry.path().filename().string(), HasSubstr("events.out.tfevents."));
    events = get(entry.path());
  }
  EXPECT_THAT(events, HasSubstr("train_loss"));
  EXPECT_THAT(events, HasSubstr("epoch"));
  EXPECT_THAT(events, Not(HasSubstr("hparams")));
  EXPECT_THAT(events, HasSubstr(std::string("\x15\x00\x00\x00\x3f", 5)));  // simple_value 0.5f
  logger->log_hyperparams({{"lr", "0.1"}});
  EXPECT_THAT(get(fs::directory_iterator(logger->log_dir())->path()), Not(::testing::IsEmpty()));
}

/// As a run does it that goes on from a checkpoint.
TEST(ResumedLogger, GoesOnInItsFolderAndWithoutLaterRows) {
  const Scratch folder;
  levin::State state;
  {
    const auto logger = levin::csv_logger(in(folder));
    logger->log_metrics({{"loss", 1.0}}, 0, 1);
    state = logger->state_dict();
    logger->log_metrics({{"loss", 2.0}}, 0, 2);
    logger->log_metrics({{"acc", 3.0}}, 0, 3);
  }
  const auto logger = levin::csv_logger(in(folder));
  EXPECT_TRUE(logger->resume(state, 1));
  EXPECT_EQ(logger->log_dir(), folder / "version_0");
  logger->log_metrics({{"loss", 4.0}}, 0, 2);
  EXPECT_EQ(csv(*logger), "step,epoch,loss,acc\n1,0,1,\n2,0,4,\n");
}

TEST(ResumedLogger, TakesNoFolderThatDoesNotHoldItsRunId) {
  const Scratch folder;
  levin::State state;
  {
    const auto logger = levin::csv_logger(in(folder));
    logger->log_metrics({{"loss", 1.0}}, 0, 1);
    state = logger->state_dict();
  }
  put(folder / "version_0/run_id", "0123\n");
  fs::create_directories(folder / "elsewhere");
  fs::rename(folder / "version_0", folder / "elsewhere/version_0");
  levin::State path = state;
  path.set("folder", "version_0/../elsewhere/version_0").set("run_id", "0123");
  for (const levin::State& wrong : {state, path}) {
    const auto logger = levin::csv_logger(in(folder));
    EXPECT_FALSE(logger->resume(wrong, 1));
  }
  EXPECT_FALSE(fs::exists(folder / "version_0"));
  EXPECT_EQ(get(folder / "elsewhere/version_0/metrics.csv"), "step,epoch,loss\n1,0,1\n");
}

TEST(ResumedLogger, LeavesAFileAloneOfWhichNobodyKnowsHowFarItWas) {
  const Scratch folder;
  fs::create_directories(folder / "version_0");
  put(folder / "version_0/metrics.csv", "not,levins\n1,2\n");
  levin::LoggerOptions options = in(folder);
  options.version = 0;
  const levin::State state = levin::csv_logger(options)->state_dict();
  EXPECT_EQ(state.integer("rows"), -1);
  EXPECT_FALSE(levin::csv_logger(options)->resume(state, 0));
  EXPECT_EQ(get(folder / "version_0/metrics.csv"), "not,levins\n1,2\n");
}

}  // namespace
