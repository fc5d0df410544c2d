#include <gmock/gmock.h>

#include "levin/xla/pjrt/plugin.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"
#include "tests/support/scratch.h"
#include "tests/xla/plugins.h"

namespace {

namespace fs = std::filesystem;
namespace pjrt = levin::xla::pjrt;
using levin::test::cpu_plugin;
using levin::test::error_of;
using levin::test::Scratch;
using levin::test::Variable;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class PjrtPlugin : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!pjrt::is_available()) GTEST_SKIP() << "levin was built without pjrt_c_api.h";
  }
  /// What loading the fake says that does this.
  static std::string loading(const std::string& mode) {
    const Variable does("LEVIN_FAKE_PJRT_DOES", mode);
    return error_of([] { pjrt::Plugin plugin(levin::test::fake_pjrt()); });
  }
};

/// No plugin but those that a test makes.
class FindPlugin : public PjrtPlugin {
 protected:
  static constexpr const char* kVariables[] = {
      "LEVIN_PJRT_PLUGIN",     "TPU_LIBRARY_PATH",       "PJRT_TPU_LIBRARY_PATH",
      "PJRT_CPU_LIBRARY_PATH", "PJRT_CUDA_LIBRARY_PATH", "PJRT_NAMES_AND_LIBRARY_PATHS",
      "VIRTUAL_ENV",           "CONDA_PREFIX",           "HOME"};
  FindPlugin() {
    for (const char* name : kVariables) unset_.push_back(std::make_unique<Variable>(name, ""));
  }
  std::string make(const std::string& name) {
    fs::create_directories((scratch_ / name).parent_path());
    return levin::test::put(scratch_ / name, "").string();
  }

  Scratch scratch_;
  std::vector<std::unique_ptr<Variable>> unset_;
};

TEST_F(FindPlugin, TakesNoneFromWhereOthersWriteUnlessItIsNamed) {
  const std::string file = make("lib/python3.12/site-packages/libtpu/libtpu.so");
  const Variable environment("VIRTUAL_ENV", scratch_.str());
  EXPECT_EQ(pjrt::find_plugin("tpu"), file);
  fs::permissions(file, fs::perms::all);
  EXPECT_THAT(error_of([] { pjrt::find_plugin("tpu"); }),
              AllOf(StartsWith("xla.plugin.trust: " + file), HasSubstr("LEVIN_PJRT_PLUGIN")));
  const Variable named("LEVIN_PJRT_PLUGIN", file);
  EXPECT_EQ(pjrt::find_plugin("tpu"), file);
}

TEST(PjrtAbsent, IsAClearError) {
  if (pjrt::is_available()) GTEST_SKIP() << "levin was built with pjrt_c_api.h";
  EXPECT_EQ(pjrt::api_version(), "");
  EXPECT_THAT(error_of([] { pjrt::find_plugin("cpu"); }),
              AllOf(StartsWith("xla.unavailable: "), HasSubstr("make xla")));
  EXPECT_THAT(error_of([] { pjrt::Plugin plugin("/some/plugin.so"); }),
              StartsWith("xla.unavailable: "));
}

TEST_F(FindPlugin, APathIsTakenAsItIs) {
  EXPECT_EQ(pjrt::find_plugin("./no/such.so"), "./no/such.so");
}

TEST_F(FindPlugin, OwnVariableComesFirst) {
  const std::string mine = make("my_plugin.so");
  const Variable own("LEVIN_PJRT_PLUGIN", mine);
  EXPECT_EQ(pjrt::find_plugin(), mine);
  EXPECT_EQ(pjrt::find_plugin("cpu"), mine);  // its name does not tell what it is for
}

TEST_F(FindPlugin, OwnVariableOfAnotherKindIsNotTaken) {
  const Variable own("LEVIN_PJRT_PLUGIN", make("libtpu.so"));
  const std::string cpu = make("cpu_plugin.so");
  const Variable named("PJRT_CPU_LIBRARY_PATH", cpu);
  EXPECT_EQ(pjrt::find_plugin("cpu"), cpu);
}

TEST_F(FindPlugin, ReadsTheVariablesOfJaxAndTorchXla) {
  const Variable tpu("TPU_LIBRARY_PATH", "/opt/libtpu.so");
  const Variable names("PJRT_NAMES_AND_LIBRARY_PATHS", "cuda:/opt/a.so,cpu:/opt/b.so");
  EXPECT_EQ(pjrt::find_plugin("tpu"), "/opt/libtpu.so");
  EXPECT_EQ(pjrt::find_plugin("cuda"), "/opt/a.so");
  const auto found = pjrt::found_plugins();
  EXPECT_TRUE(std::ranges::any_of(
      found, [](const auto& file) { return file.kind == "cpu" && file.path == "/opt/b.so"; }));
}

TEST_F(FindPlugin, LooksIntoPythonPackages) {
  const std::string tpu = make("lib/python3.11/site-packages/libtpu/libtpu.so");
  const std::string gpu =
      make("lib/python3.11/site-packages/jax_plugins/xla_cuda13/xla_cuda_plugin.so");
  const Variable environment("VIRTUAL_ENV", scratch_.str());
  EXPECT_EQ(pjrt::find_plugin("tpu"), tpu);
  EXPECT_EQ(pjrt::find_plugin("cuda"), gpu);
}

TEST_F(FindPlugin, FindsThePythonThatPathNames) {
  const std::string tpu = make("lib/python3.12/site-packages/libtpu/libtpu.so");
  make("bin/python3");
  const Variable path("PATH", "/nowhere:" + (scratch_ / "bin").string());
  EXPECT_EQ(pjrt::find_plugin("tpu"), tpu);
}

TEST_F(FindPlugin, WhatHasNoDeviceHereComesLast) {
  if (fs::exists("/dev/accel0") || fs::exists("/dev/vfio/0")) GTEST_SKIP() << "a TPU is here";
  const Variable tpu("TPU_LIBRARY_PATH", make("libtpu.so"));
  const Variable cpu("PJRT_CPU_LIBRARY_PATH", make("cpu_plugin.so"));
  EXPECT_NE(pjrt::find_plugin(), scratch_ / "libtpu.so");
  std::vector<std::string> kinds;
  for (const auto& file : pjrt::found_plugins()) kinds.push_back(file.kind);
  EXPECT_LT(std::ranges::find(kinds, "cpu"), std::ranges::find(kinds, "tpu"));
}

TEST_F(FindPlugin, AbsentSaysWhereItLookedAndWhatToInstall) {
  const Variable environment("VIRTUAL_ENV", scratch_.str());
  EXPECT_THAT(error_of([] { pjrt::find_plugin("abacus"); }),
              AllOf(StartsWith("xla.plugin.absent: found no PJRT plugin for abacus"),
                    HasSubstr(scratch_.str()), HasSubstr("PJRT_CPU_LIBRARY_PATH"),
                    HasSubstr("pip install libtpu")));
}

TEST_F(PjrtPlugin, NoSuchFile) {
  EXPECT_THAT(error_of([] { pjrt::Plugin plugin("/no/such/plugin.so"); }),
              AllOf(StartsWith("xla.plugin.load: /no/such/plugin.so cannot be loaded"),
                    HasSubstr("no such file")));
}

TEST_F(PjrtPlugin, AFileThatIsNoLibrary) {
  const Scratch scratch;
  const std::string text = levin::test::put(scratch / "plugin.so", "not ELF").string();
  EXPECT_THAT(error_of([&] { pjrt::Plugin plugin(text); }),
              AllOf(StartsWith("xla.plugin.load: "), HasSubstr("file too short")));
}

TEST_F(PjrtPlugin, ALibraryThatIsNoPlugin) {
  EXPECT_THAT(error_of([] { pjrt::Plugin plugin("libm.so.6"); }),
              AllOf(StartsWith("xla.plugin.load: "), HasSubstr("GetPjrtApi")));
}

TEST_F(PjrtPlugin, ThatGivesNothing) {
  EXPECT_THAT(loading("nothing"),
              AllOf(StartsWith("xla.plugin.load: "), HasSubstr("returned a null pointer")));
}

TEST_F(PjrtPlugin, ThatDoesNotStart) {
  EXPECT_THAT(loading("no start"),
              AllOf(StartsWith("xla.plugin.load: "), HasSubstr("the fake has no battery")));
}

TEST_F(PjrtPlugin, OfAnotherMajorVersion) {
  EXPECT_THAT(loading("major"),
              AllOf(StartsWith("xla.plugin.version: "), HasSubstr("interface 1."),
                    HasSubstr("wanted 0.81"), HasSubstr("install an older plugin")));
}

TEST_F(PjrtPlugin, OfAnOldMinorVersion) {
  EXPECT_THAT(loading("minor"),
              AllOf(StartsWith("xla.plugin.version: "), HasSubstr("interface 0.5,"),
                    HasSubstr("wanted 0.81"), HasSubstr("install a newer plugin")));
}

TEST_F(PjrtPlugin, WithAShortTable) {
  EXPECT_THAT(loading("short"),
              AllOf(StartsWith("xla.plugin.version: "), HasSubstr("200 bytes long")));
}

TEST_F(PjrtPlugin, ThatOnlyCompilesIsToldSoUnlessTheUserSaidOtherwise) {
  const Variable own("TPU_MIN_LOG_LEVEL", "0");
  const Variable quiet("TF_CPP_MIN_LOG_LEVEL", "");
  const Variable asks("TPU_SKIP_MDS_QUERY", "");
  ::unsetenv("TPU_SKIP_MDS_QUERY");
  ::unsetenv("TF_CPP_MIN_LOG_LEVEL");
  const pjrt::Plugin runs(levin::test::fake_pjrt());
  EXPECT_EQ(std::getenv("TPU_SKIP_MDS_QUERY"), nullptr);  // a real TPU is found by that query
  EXPECT_STREQ(std::getenv("TF_CPP_MIN_LOG_LEVEL"), "1");
  const pjrt::Plugin compiles(levin::test::fake_pjrt(), {.compile_only = true});
  EXPECT_STREQ(std::getenv("TPU_SKIP_MDS_QUERY"), "1");
  EXPECT_STREQ(std::getenv("TPU_MIN_LOG_LEVEL"), "0");
}

TEST_F(PjrtPlugin, SaysWhatItIs) {
  std::string why;
  const auto path = cpu_plugin(why);
  if (!path) GTEST_SKIP() << why;
  const pjrt::Plugin plugin(*path);
  EXPECT_EQ(plugin.path(), *path);
  EXPECT_THAT(plugin.api_version(), StartsWith("0."));
  EXPECT_THAT(plugin.attributes(), Contains(StartsWith("stablehlo_current_version=1.")));
  EXPECT_EQ(plugin.identity(), pjrt::Plugin(*path).identity());  // loaded again
  EXPECT_NE(plugin.identity(), pjrt::Plugin(levin::test::fake_pjrt()).identity());
}

}  // namespace
