// Whole programs whose ranks cannot find each other: a clear error, and soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>

#include "levin/comm/environment/port.h"
#include "tests/hosts/examples.h"

namespace {

using namespace levin::test;  // NOLINT
using ::testing::HasSubstr;

Words trainer() {
  Words words = classifier().words;
  words.insert(words.end(), {"--comm-connect-timeout-s", "2", "--comm-timeout-s", "2"});
  return words;
}

Words launched(Words words) {
  words.insert(words.begin(), {levin_command(), "run"});
  const Words program = trainer();
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

Settings rank_of_two(const std::string& rank, const std::string& host, int64_t port) {
  return {{"RANK", rank},        {"WORLD_SIZE", "2"},
          {"MASTER_ADDR", host}, {"MASTER_PORT", std::to_string(port)},
          {"LOCAL_RANK", rank},  {"LOCAL_WORLD_SIZE", "2"}};
}

struct Case {
  Words words;
  Settings settings;
  std::string error;
};

// All at once: each of them waits most of its time.
TEST(Failures, AreClearErrors) {
  const Scratch scratch;
  const auto taken = levin::comm::listen_on(0, "");
  const auto number = [](int64_t port) { return std::to_string(port); };
  const int64_t a = levin::comm::listen_on(0, "").port(), b = levin::comm::listen_on(0, "").port();
  const std::vector<Case> cases = {
      {trainer(), rank_of_two("0", "127.0.0.1", taken.port()),
       "comm.environment.port: rank 0 cannot serve the store on port " + number(taken.port())},
      {trainer(), rank_of_two("0", "127.0.0.1", a),
       "comm.connect: rank 1 of 2 did not connect within 2 s"},
      {trainer(), rank_of_two("1", "127.0.0.1", b),
       "comm.store: no store answers on 127.0.0.1:" + number(b) + " after 2 s"},
      {trainer(), rank_of_two("1", "192.0.2.1", b),
       "comm.store: no store answers on 192.0.2.1:" + number(b) + " after 2 s"},
      {trainer(), rank_of_two("1", "no-such-host.invalid", b),
       "comm.environment.name: the master's name 'no-such-host.invalid' did not resolve"},
      {trainer(), rank_of_two("1", "127.0.0.1", taken.port()),
       "comm.store: the program that listens on 127.0.0.1:" + number(taken.port()) +
           " did not answer"},
      {launched({"-n", "2", "--master-port", number(taken.port())}),
       {},
       "comm.environment.port: port " + number(taken.port())},
      {launched({"--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "--master-port",
                 number(levin::comm::listen_on(0, "").port()), "--rdzv-conf", "join_timeout=2"}),
       {},
       "launch.rendezvous: 1 of at least 2 nodes joined within 2 s"},
      {launched({"--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port",
                 number(b), "--rdzv-conf", "join_timeout=2"}),
       {},
       "launch.rendezvous: no launcher serves the rendezvous at 127.0.0.1:" + number(b)}};
  std::deque<Program> programs;
  for (const Case& one : cases) programs.emplace_back(scratch, one.words, one.settings);
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE(cases[i].error);
    const int code = programs[i].wait();
    EXPECT_NE(code, 0) << programs[i].err();
    EXPECT_NE(code, -1000) << "it did not end";
    EXPECT_THAT(programs[i].err(), HasSubstr(cases[i].error));
    EXPECT_TRUE(soon([&] { return programs[i].alive().empty(); }));
  }
}

}  // namespace
