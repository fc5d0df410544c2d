#include "levin/launch/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "levin/launch/command_line.h"
#include "levin/launch/rendezvous/messages.h"
#include "tests/support/error_of.h"

namespace levin::launch {
namespace {

using test::error_id;
using test::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(LaunchOptions, NodesAreANumberOrARange) {
  NodeRange range;
  from_text("3", range);
  EXPECT_EQ(range.least, 3);
  EXPECT_EQ(range.most, 3);
  EXPECT_EQ(to_text(range), "3");
  from_text("1:4", range);
  EXPECT_EQ(range.least, 1);
  EXPECT_EQ(range.most, 4);
  EXPECT_EQ(to_text(range), "1:4");
  for (const char* text : {"", "0", "4:1", "a", "1:", "1:2:3"}) {
    EXPECT_EQ(error_id([&] { from_text(text, range); }), "launch.options") << text;
  }
}

TEST(LaunchOptions, StreamsAreForAllRanksOrEach) {
  EXPECT_TRUE(parse_streams("3", 7).out);
  EXPECT_TRUE(parse_streams("2", 7).err);
  EXPECT_FALSE(parse_streams("2", 7).out);
  EXPECT_TRUE(parse_streams("0:1,7:3", 7).err);
  EXPECT_FALSE(parse_streams("0:1,7:3", 5).out);
  for (const char* text : {"4", "x", "7:9", "7:1,2"}) {
    EXPECT_EQ(error_id([&] { parse_streams(text, 7); }), "launch.options") << text;
  }
}

TEST(LaunchOptions, EndpointsHaveAHostAndAPort) {
  EXPECT_EQ(parse_endpoint("n0:12", 29400).host, "n0");
  EXPECT_EQ(parse_endpoint("n0:12", 29400).port, 12);
  EXPECT_EQ(parse_endpoint("n0", 29400).port, 29400);
  EXPECT_EQ(parse_endpoint("[::1]:12", 29400).host, "::1");
  EXPECT_EQ(parse_endpoint("[::1]:12", 29400).port, 12);
  EXPECT_EQ(parse_endpoint("::1", 29400).host, "::1");
  for (const char* text : {"", ":12", "n0:x", "n0:70000"}) {
    EXPECT_EQ(error_id([&] { parse_endpoint(text, 1); }), "launch.options") << text;
  }
}

TEST(LaunchOptions, TimeoutsOfTheRendezvousAreNamed) {
  RendezvousTimeouts timeouts;
  from_text("join_timeout=60,node_timeout=2.5", timeouts);
  EXPECT_EQ(timeouts.join_s, 60);
  EXPECT_EQ(timeouts.last_call_s, 30);
  EXPECT_EQ(timeouts.node_s, 2.5);
  EXPECT_THAT(error_of([&] { from_text("etcd=1", timeouts); }),
              HasSubstr("launch.options: --rdzv-conf: got 'etcd=1', wanted join_timeout=S"));
}

TEST(LaunchOptions, RefusesWhatDoesNotGoTogether) {
  const std::vector<std::pair<LaunchOptions, std::string>> cases = {
      {{}, "no program to run"},
      {{.nproc_per_node = 0, .command = {"x"}}, "--nproc-per-node: got 0"},
      {{.max_restarts = -1, .command = {"x"}}, "--max-restarts: got -1"},
      {{.nnodes = {2, 2}, .command = {"x"}}, "2 nodes need a rendezvous endpoint"},
      {{.nnodes = {2, 2}, .rdzv_endpoint = "a:1", .master_addr = "b", .command = {"x"}},
       "--rdzv-endpoint and --master-addr both name"},
      {{.nnodes = {2, 2}, .node_rank = 2, .master_addr = "b", .command = {"x"}},
       "--node-rank: got 2 of 2 nodes"},
      {{.tee = "3", .command = {"x"}}, "name their folder with --log-dir"},
      {{.numa_binding = "core", .command = {"x"}}, "--numa-binding: got 'core'"},
  };
  for (const auto& [options, expected] : cases) {
    EXPECT_THAT(error_of([&] { check_options(options); }), HasSubstr("launch.options: "));
    EXPECT_THAT(error_of([&] { check_options(options); }), HasSubstr(expected));
  }
}

TEST(CommandLine, HoldsWhatDiffersFromTheDefaults) {
  EXPECT_THAT(flags_of({}), IsEmpty());
  EXPECT_EQ(
      shell_line(flags_of({.timeouts = {.join_s = 9}, .max_restarts = 2, .log_dir = "my logs"})),
      "--max-restarts 2 --rdzv-conf join_timeout=9,last_call_timeout=30,node_timeout=5 "
      "--log-dir 'my logs'");
}

TEST(CommandLine, WordsReachTheShellAsTheyAre) {
  EXPECT_EQ(shell_word("plain-1.0"), "plain-1.0");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("it's $x"), "'it'\\''s $x'");
}

TEST(Messages, OfAnotherVersionAreAClearError) {
  GroupPlan plan;
  EXPECT_THAT(error_of([&] { decode("{\"attempt\": 1}", plan); }),
              HasSubstr("launch.rendezvous: cannot read another launcher's message"));
  EXPECT_EQ(error_id([&] { decode("no json", plan); }), "launch.rendezvous");
}

TEST(Messages, HoldWholeNumbersThatThereCanBe) {
  Report report;
  for (const char* number :
       {"7.5e80", "1.5", "-1e300", "true", "\"7\"", "null", "-1", "4294967296"}) {
    const std::string failure =
        R"({"rank":3,"host":"a","pid":NUMBER,"exit_code":1,"signal":0,"last_lines":[],"text":"","worth_a_restart":true})";
    std::string text = R"({"signal":0,"failure":)" + failure + "}";
    EXPECT_NO_THROW(decode(std::string(text).replace(text.find("NUMBER"), 6, "77"), report));
    EXPECT_EQ(error_id([&] { decode(text.replace(text.find("NUMBER"), 6, number), report); }),
              "launch.rendezvous")
        << number;
  }
}

TEST(Messages, CarryLinesThatAreNoText) {
  const Report report{.failure = RankFailure{.rank = 3, .signal = 9, .last_lines = {"a", "\xff"}}};
  Report back;
  decode(encode(report), back);
  ASSERT_TRUE(back.failure);
  EXPECT_EQ(back.failure->rank, 3);
  EXPECT_EQ(back.failure->last_lines.size(), 2U);
  EXPECT_EQ(exit_code_of(*back.failure), 137);
}

}  // namespace
}  // namespace levin::launch
