#include <gmock/gmock.h>
#include <torch/torch.h>
#include <unistd.h>

#include <thread>

#include "levin/files/atomic.h"
#include "levin/xla/pjrt/executable_cache.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/small_disk.h"
#include "tests/xla/plugins.h"

namespace {

namespace fs = std::filesystem;
namespace pjrt = levin::xla::pjrt;
using levin::test::add_text;
using levin::test::all_reduce_text;
using levin::test::names_in;
using levin::test::OnCpuDevices;
using levin::test::run;
using levin::test::Scratch;
using levin::test::Variable;
using pjrt::ExecutableCache;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class XlaCache : public OnCpuDevices {
 protected:
  /// A cache of a process that starts now.
  ExecutableCache start(int64_t limit_bytes = int64_t{1} << 30) const {
    return ExecutableCache({.folder = folder(), .limit_bytes = limit_bytes});
  }
  fs::path folder() const { return scratch_ / "cache"; }
  fs::path only_entry() const {
    const auto names = names_in(folder());
    EXPECT_EQ(names.size(), 1U);
    return folder() / names.at(0);
  }
  void expect_adds(const pjrt::Executable& add) {
    const pjrt::Buffer x = device().upload(torch::ones(16));
    EXPECT_TRUE(torch::equal(run(add, {&x, &x})[0].download(), torch::full(16, 2.0)));
  }
  /// What the warning says when a process with these bytes as its entry compiles.
  std::string compile_over(const std::string& bytes) {
    const fs::path entry = only_entry();
    levin::test::put(entry, bytes);
    ExecutableCache cache = start();
    ::testing::internal::CaptureStderr();
    expect_adds(cache.compile(device(), add_text(16)));
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(cache.hits(), 0);
    EXPECT_EQ(cache.misses(), 1);
    EXPECT_EQ(only_entry(), entry);
    return said;
  }

  Scratch scratch_;
};

TEST_F(XlaCache, CompilesAProgramOnce) {
  ExecutableCache first = start();
  expect_adds(first.compile(device(), add_text(16)));
  EXPECT_EQ(first.misses(), 1);
  EXPECT_GT(first.compile_s(), 0);
  ExecutableCache second = start();
  expect_adds(second.compile(device(), add_text(16)));
  EXPECT_EQ(second.hits(), 1);
  EXPECT_EQ(second.misses(), 0);
  EXPECT_EQ(second.compile_s(), 0);
}

TEST_F(XlaCache, TellsProgramsOptionsDevicesAndFlagsApart) {
  ExecutableCache cache = start();
  cache.compile(device(), add_text(16));
  cache.compile(device(), add_text(17));
  cache.compile(devices(2), add_text(16));
  cache.compile(devices(2), add_text(16), {.device_ids = {1}});
  cache.compile(devices(2), add_text(16), {.num_replicas = 2});
  {
    const Variable flags("XLA_FLAGS", "--xla_dump_hlo_as_text=false");
    cache.compile(device(), add_text(16));
  }
  EXPECT_EQ(cache.misses(), 6);
  EXPECT_EQ(cache.hits(), 0);
  EXPECT_EQ(names_in(folder()).size(), 6U);
}

TEST_F(XlaCache, KeepsProgramsOfSeveralDevices) {
  start().compile(devices(2), all_reduce_text(2), {.num_replicas = 2});
  ExecutableCache cache = start();
  const auto sum = cache.compile(devices(2), all_reduce_text(2), {.num_replicas = 2});
  EXPECT_EQ(cache.hits(), 1);
  const pjrt::Buffer x = devices(2).upload(torch::ones(4), 0),
                     y = devices(2).upload(torch::ones(4), 1);
  EXPECT_TRUE(torch::equal(run(sum, {&x, &y})[0].download(), torch::full(4, 2.0)));
}

TEST_F(XlaCache, KeepsWhatAProgramTakesOver) {
  start().compile(device(), add_text(16, /*donated=*/true));
  ExecutableCache cache = start();
  const auto add = cache.compile(device(), add_text(16, /*donated=*/true));
  EXPECT_EQ(cache.hits(), 1);
  const pjrt::Buffer x = device().upload(torch::ones(16)), y = device().upload(torch::ones(16));
  run(add, {&x, &y});
  EXPECT_TRUE(x.is_deleted());
  EXPECT_FALSE(y.is_deleted());
}

TEST_F(XlaCache, CompilesADamagedEntryAnew) {
  start().compile(device(), add_text(16));
  const std::string whole = levin::test::get(only_entry());
  for (const size_t size : {size_t{0}, size_t{5}, size_t{30}, whole.size() / 2, whole.size() - 1}) {
    EXPECT_THAT(compile_over(whole.substr(0, size)),
                AllOf(HasSubstr("levin warn: xla cache: "), HasSubstr("compiled again")))
        << size;
  }
  for (const size_t at : {size_t{0}, size_t{20}, size_t{41}, whole.size() / 2, whole.size() - 1}) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 4);
    EXPECT_THAT(compile_over(flipped), HasSubstr("compiled again")) << at;
  }
  EXPECT_THAT(compile_over(whole + "more"), HasSubstr("compiled again"));
  ExecutableCache cache = start();
  cache.compile(device(), add_text(16));
  EXPECT_EQ(cache.hits(), 1);
}

TEST_F(XlaCache, CompilesAnewWhatThePluginRefuses) {
  start().compile(device(), add_text(16));
  const fs::path entry = only_entry();
  start().compile(devices(2), all_reduce_text(2), {.num_replicas = 2});
  // A whole entry, of a program for more devices than there are.
  for (const std::string& name : names_in(folder())) {
    if (folder() / name == entry) continue;
    fs::rename(folder() / name, entry);
  }
  EXPECT_THAT(compile_over(levin::test::get(entry)), HasSubstr("compiled again"));
}

TEST_F(XlaCache, DropsWhatWasNotUsedForTheLongestTime) {
  start().compile(device(), add_text(16, false, "a"));
  const auto size = static_cast<int64_t>(fs::file_size(only_entry()));
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  pause();
  start().compile(device(), add_text(16, false, "b"));
  pause();
  start().compile(device(), add_text(16, false, "a"));  // used again
  pause();
  start(size * 5 / 2).compile(device(), add_text(16, false, "c"));
  EXPECT_EQ(names_in(folder()).size(), 2U);
  ExecutableCache cache = start();
  cache.compile(device(), add_text(16, false, "a"));
  cache.compile(device(), add_text(16, false, "c"));
  EXPECT_EQ(cache.hits(), 2);
  cache.compile(device(), add_text(16, false, "b"));
  EXPECT_EQ(cache.misses(), 1);
}

TEST_F(XlaCache, KeepsNothingThatIsLargerThanItself) {
  start(/*limit_bytes=*/100).compile(device(), add_text(16));
  EXPECT_FALSE(fs::exists(folder()) && !names_in(folder()).empty());
}

TEST_F(XlaCache, CompilesWhereItCannotWrite) {
  levin::test::put(scratch_ / "file", "");
  ExecutableCache cache({.folder = scratch_ / "file/cache"});
  ::testing::internal::CaptureStderr();
  expect_adds(cache.compile(device(), add_text(16)));
  cache.compile(device(), add_text(17));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("levin warn: xla cache: cannot store compiled programs: "));
  EXPECT_EQ(said.find("cannot store"), said.rfind("cannot store"));  // said once
}

/// Run by the next test in a process of its own, which is given a disk of its own.
TEST_F(XlaCache, DISABLED_FindsItsDiskFull) {
  constexpr size_t kPage = 4096;
  fs::create_directories(folder());
  if (!levin::test::mount_small_disk(folder().string(), kPage)) std::_Exit(levin::test::kSkipped);
  levin::test::put(folder() / "other", std::string(kPage, 'x'));
  ExecutableCache cache = start();
  expect_adds(cache.compile(device(), add_text(16)));
  cache.compile(device(), add_text(17));
  EXPECT_EQ(cache.misses(), 2);
  EXPECT_THAT(names_in(folder()), ElementsAre("other"));
  ::umount(folder().c_str());
}

TEST_F(XlaCache, CompilesWhereTheDiskIsFull) {
  const fs::path log = scratch_ / "log";
  const int code = levin::test::run_in_own_process("*DISABLED_FindsItsDiskFull", log);
  if (code == levin::test::kSkipped) GTEST_SKIP() << "a disk of its own is not permitted here";
  const std::string said = levin::test::get(log);
  EXPECT_EQ(code, 0) << said;
  EXPECT_THAT(said, HasSubstr("cannot store compiled programs: "));
}

TEST_F(XlaCache, IsWhereTheEnvironmentSays) {
  const Variable home("HOME", scratch_.str());
  const Variable cache("XDG_CACHE_HOME", "");
  const Variable own("LEVIN_XLA_CACHE", "");
  EXPECT_EQ(ExecutableCache().folder(), scratch_ / ".cache/levin/xla");
  const Variable cache2("XDG_CACHE_HOME", (scratch_ / "xdg").string());
  EXPECT_EQ(ExecutableCache().folder(), scratch_ / "xdg/levin/xla");
  const Variable own2("LEVIN_XLA_CACHE", (scratch_ / "own").string());
  EXPECT_EQ(ExecutableCache().folder(), scratch_ / "own");
  const Variable off("LEVIN_XLA_CACHE", "off");
  ExecutableCache none;
  EXPECT_EQ(none.folder(), "");
  expect_adds(none.compile(device(), add_text(16)));
  expect_adds(none.compile(device(), add_text(16)));
  EXPECT_EQ(none.misses(), 2);
  EXPECT_THAT(names_in(scratch_.path()), IsEmpty());
}

TEST_F(XlaCache, IsForItsUserAlone) {
  start().compile(device(), add_text(16));
  EXPECT_EQ(fs::status(folder()).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(only_entry()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  fs::permissions(folder(), fs::perms::all);
  start();
  EXPECT_EQ(fs::status(folder()).permissions(), fs::perms::owner_all);
}

TEST_F(XlaCache, RunsNoEntryThatOthersMayWriteNorALink) {
  start().compile(device(), add_text(16));
  const auto compiled_anew = [&](const char* why) {
    ExecutableCache cache = start();
    ::testing::internal::CaptureStderr();
    expect_adds(cache.compile(device(), add_text(16)));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(why));
    EXPECT_EQ(cache.misses(), 1);
  };
  fs::permissions(only_entry(), fs::perms::all);
  compiled_anew("the file may be written by other users");
  const fs::path entry = only_entry(), elsewhere = scratch_ / "elsewhere";
  fs::rename(entry, elsewhere);
  const std::string bytes = levin::test::get(elsewhere);
  fs::create_symlink(elsewhere, entry);
  compiled_anew("it is a link");
  EXPECT_EQ(levin::test::get(elsewhere), bytes);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(only_entry().c_str(), 65534, 65534), 0);
  compiled_anew("the file belongs to the user 65534");
}

TEST_F(XlaCache, IsNoFolderOfOthers) {
  const auto error = [&] { return levin::test::error_of([&] { start(); }); };
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  fs::create_directories(folder());
  ASSERT_EQ(::chown(folder().c_str(), 65534, 65534), 0);
  EXPECT_THAT(error(), AllOf(HasSubstr("xla.cache: compiled programs are not loaded from "),
                             HasSubstr("set LEVIN_XLA_CACHE to a folder of your own, or to off")));
  const int code = levin::test::run_child([&]() -> int {
    if (::setuid(65534) != 0) return 1;
    const auto doubt = levin::test::error_of(
        [] { ExecutableCache({.folder = "/tmp"}); });  // root's, and everybody's
    return doubt.starts_with("xla.cache: ") ? 0 : 2;
  });
  EXPECT_EQ(code, 0);
}

TEST_F(XlaCache, RemovesWhatADeadProcessLeft) {
  const int code = levin::test::run_child([&]() -> int {
    const levin::files::StagedDirectory half(folder() / "entry.pjrt");
    levin::test::put(half.path() / "half", "of an entry");
    ::_exit(5);
  });
  ASSERT_EQ(code, 5);
  EXPECT_EQ(names_in(folder()).size(), 1U);
  start();
  EXPECT_THAT(names_in(folder()), IsEmpty());
}

}  // namespace
