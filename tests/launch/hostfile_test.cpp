#include "levin/launch/hostfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/launch/launcher.h"
#include "tests/support/error_of.h"

namespace {

using namespace levin::test;  // NOLINT
using levin::launch::read_hostfile;
using ::testing::HasSubstr;

TEST(Hostfile, HoldsAHostALine) {
  const Scratch scratch;
  const auto hosts = read_hostfile(put(scratch / "hosts", "# all\na slots=4\n\n  b # no number\n"));
  ASSERT_EQ(hosts.size(), 2U);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_EQ(hosts[0].slots, 4);
  EXPECT_EQ(hosts[1].name, "b");
  EXPECT_EQ(hosts[1].slots, 0);
}

TEST(Hostfile, RefusesWhatItDoesNotKnow) {
  const Scratch scratch;
  for (const char* text :
       {"a slots=x", "a slots=0", "a gpus=4", "", "# none\n", "-oProxyCommand=x"}) {
    const auto file = put(scratch / "hosts", text);
    EXPECT_EQ(error_id([&] { read_hostfile(file); }), "launch.hostfile") << text;
  }
  EXPECT_THAT(error_of([&] { read_hostfile(put(scratch / "hosts", "a\nb gpus=4")); }),
              HasSubstr("hosts line 2: got 'gpus=4', wanted slots=NUMBER"));
  EXPECT_EQ(error_id([&] { read_hostfile(scratch / "none"); }), "launch.hostfile");
}

TEST(Hostfile, IsAFile) {
  const Scratch scratch;
  ASSERT_EQ(::mkfifo((scratch / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { read_hostfile(scratch / "pipe"); }),
              HasSubstr("launch.hostfile: cannot read the hostfile"));
  EXPECT_THAT(error_of([&] { read_hostfile(scratch / "pipe"); }), HasSubstr("it is a pipe"));
}

TEST(Hostfile, RefusesNamesThatSshOrATerminalWouldObey) {
  const Scratch scratch;
  for (const char* text : {"-oProxyCommand=reboot", "\x1b[2Ja", "\v", "a slots=9000000000000"}) {
    const auto file = put(scratch / "hosts", text);
    EXPECT_EQ(error_id([&] { read_hostfile(file); }), "launch.hostfile") << text;
  }
  EXPECT_EQ(read_hostfile(put(scratch / "hosts", "me@gpu-1.example:slots"))[0].name,
            "me@gpu-1.example:slots");
}

/// Loopback addresses as hosts, and an ssh that runs what it is told here.
class OverSsh : public ::testing::Test {
 protected:
  OverSsh() {
    put(scratch_ / "hosts", "127.0.0.1 slots=2\n127.0.0.2\n");
    script(scratch_, "ssh",
           "[ \"$3\" = -- ] || exit 9; echo \"$4\" >>ssh.log; echo \"$5\" >>lines.log; "
           "[ \"$4\" = 127.0.0.9 ] && { echo no route >&2; exit 255; }; exec sh -c \"$5\"");
  }

  Words words(const Words& more) const {
    Words all = {"--hostfile", "hosts", "--master-port", free_port()};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Settings settings() const { return {{"PATH", scratch_.str() + ":/usr/bin:/bin"}}; }

  Scratch scratch_;
};

TEST_F(OverSsh, StartsALauncherOnEachHost) {
  const auto program =
      script(scratch_, "rank.sh", "echo $RANK $GROUP_RANK $WORLD_SIZE \"$1\" >$RANK.txt; echo hi");
  Launcher launcher(scratch_, words({"-n", "1", program, "it's $HOME"}), settings());
  EXPECT_EQ(launcher.wait(), 0) << launcher.err();
  EXPECT_EQ(get(scratch_ / "0.txt"), "0 0 3 it's $HOME\n");
  EXPECT_EQ(get(scratch_ / "1.txt"), "1 0 3 it's $HOME\n");
  EXPECT_EQ(get(scratch_ / "2.txt"), "2 1 3 it's $HOME\n");
  EXPECT_THAT(get(scratch_ / "ssh.log"), HasSubstr("127.0.0.2\n"));
  EXPECT_THAT(launcher.out(), HasSubstr("[rank 2] hi\n"));
}

TEST_F(OverSsh, TheJobsTokenIsTheSameOnAllHostsAndInNoCommandLine) {
  const auto program = script(scratch_, "rank.sh", "echo $LEVIN_JOB_TOKEN >$RANK.txt");
  Settings given = settings();
  given["LEVIN_JOB_TOKEN"] = "not for everybody";
  for (const Settings& environment : {settings(), given}) {
    Launcher launcher(scratch_, words({"-n", "1", program}), environment);
    ASSERT_EQ(launcher.wait(), 0) << launcher.err();
    const std::string token = get(scratch_ / "0.txt");
    EXPECT_GT(token.size(), 16U);
    EXPECT_EQ(get(scratch_ / "1.txt"), token);
    EXPECT_EQ(get(scratch_ / "2.txt"), token);
    EXPECT_EQ(get(scratch_ / "lines.log").find(token.substr(0, token.size() - 1)),
              std::string::npos);
    EXPECT_EQ(launcher.err().find("share no secret"), std::string::npos);
  }
  EXPECT_EQ(get(scratch_ / "2.txt"), "not for everybody\n");
}

TEST_F(OverSsh, EndsWithTheCodeOfTheRankThatFailed) {
  const auto program = script(scratch_, "rank.sh", "[ $RANK = 2 ] && exit 6; sleep 60");
  Launcher launcher(scratch_, words({program}), settings());
  EXPECT_EQ(launcher.wait(), 6);
  EXPECT_THAT(launcher.err(), HasSubstr("rank 2 on "));
}

TEST_F(OverSsh, ASignalLetsAllRanksSave) {
  const auto program = script(scratch_, "rank.sh",
                              "trap 'sleep 0.2; touch $RANK.saved; exit 143' TERM INT; touch "
                              "$RANK.up; while :; do sleep 0.05; done");
  Launcher launcher(scratch_, words({program}), settings());
  ASSERT_TRUE(soon([&] {
    return std::filesystem::exists(scratch_ / "0.up") && std::filesystem::exists(scratch_ / "2.up");
  })) << launcher.err();
  launcher.signal(SIGTERM);
  EXPECT_EQ(launcher.wait(), 143) << launcher.err();
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "0.saved"));
  EXPECT_TRUE(std::filesystem::exists(scratch_ / "2.saved"));
}

TEST_F(OverSsh, NothingOutlivesAKilledLauncher) {
  const auto program = script(scratch_, "rank.sh", "echo $$ >>pids; exec sleep 300");
  Launcher launcher(scratch_, words({"--shutdown-timeout", "1", program}), settings());
  ASSERT_TRUE(soon([&] { return pids_in(scratch_ / "pids").size() == 3; })) << launcher.err();
  launcher.signal(SIGKILL);
  const auto pids = pids_in(scratch_ / "pids");
  EXPECT_TRUE(soon([&] { return !any_alive(pids); }));
}

TEST_F(OverSsh, NamesAHostThatCannotBeReached) {
  put(scratch_ / "hosts", "127.0.0.1\n127.0.0.9\n");
  Launcher launcher(scratch_, words({"/bin/sleep", "60"}), settings());
  EXPECT_EQ(launcher.wait(), 255);
  EXPECT_THAT(launcher.err(), HasSubstr("ssh to 127.0.0.9: "));
  EXPECT_THAT(launcher.err(), HasSubstr("  | no route"));
}

}  // namespace
