#include "levin/launch/rendezvous/messages.h"

#include <nlohmann/json.hpp>

#include <limits>

#include "levin/base/check.h"
#include "levin/base/json.h"

namespace levin::launch {
namespace {

using nlohmann::json;

// A line of a rank's stderr may hold bytes that are no UTF-8.
std::string text_of(const json& message) {
  return message.dump(-1, ' ', false, json::error_handler_t::replace);
}

template <class Read>
void read_message(std::string_view text, const Read& read) {
  try {
    read(json::parse(levin::detail::shallow_json(text)));
  } catch (const json::exception& error) {
    LEVIN_FAIL("launch.rendezvous",
               "cannot read another launcher's message ({}); run the same version of levin on all "
               "nodes",
               error.what());
  }
}

// More than any job has: what lies beyond was not written by a launcher.
constexpr int64_t kMostAgents = 1 << 20;
constexpr int64_t kMostRanks = 1 << 16;
constexpr int64_t kMostStarts = 1 << 30;
constexpr int64_t kLastSignal = 64;
constexpr size_t kMostLines = 1000;
constexpr int64_t kMostProcesses = int64_t{1} << 31;
constexpr size_t kShown = 60;  // bytes of what came, in an error

int64_t number_in(const json& message, const char* name, int64_t least, int64_t most) {
  const json& number = message.at(name);
  LEVIN_CHECK(number.is_number_integer(), "launch.rendezvous",
              "another launcher's message holds {} = {}, wanted an integer; run the same version "
              "of levin on all nodes",
              name, number.dump().substr(0, kShown));
  const auto value = number.get<int64_t>();
  LEVIN_CHECK(value >= least && value <= most, "launch.rendezvous",
              "another launcher's message holds {} = {}, wanted {} to {}; run the same version of "
              "levin on all nodes",
              name, value, least, most);
  return value;
}

json json_of(const RankFailure& failure) {
  return {{"rank", failure.rank},     {"host", failure.host},
          {"pid", failure.pid},       {"exit_code", failure.exit_code},
          {"signal", failure.signal}, {"last_lines", failure.last_lines},
          {"text", failure.text},     {"worth_a_restart", failure.worth_a_restart}};
}

RankFailure failure_in(const json& message) {
  RankFailure failure;
  failure.rank = number_in(message, "rank", -1, kMostAgents * kMostRanks);
  message.at("host").get_to(failure.host);
  failure.pid = number_in(message, "pid", 0, kMostProcesses);
  failure.exit_code = number_in(message, "exit_code", 0, 255);
  failure.signal = number_in(message, "signal", 0, kLastSignal);
  message.at("last_lines").get_to(failure.last_lines);
  if (failure.last_lines.size() > kMostLines) failure.last_lines.resize(kMostLines);
  message.at("text").get_to(failure.text);
  message.at("worth_a_restart").get_to(failure.worth_a_restart);
  return failure;
}

}  // namespace

std::string encode(const NodeInfo& info) {
  return text_of({{"host", info.host},
                  {"num_ranks", info.num_ranks},
                  {"node_rank", info.node_rank},
                  {"addresses", info.addresses}});
}

std::string encode(const Report& report) {
  json message = {{"signal", report.signal}};
  if (report.failure) message["failure"] = json_of(*report.failure);
  return text_of(message);
}

std::string encode(const GroupPlan& plan) {
  json nodes = json::array();
  for (const auto& node : plan.nodes) {
    nodes.push_back({{"agent", node.agent}, {"num_ranks", node.num_ranks}});
  }
  return text_of(
      {{"attempt", plan.attempt}, {"max_restarts", plan.max_restarts}, {"nodes", nodes}});
}

std::string encode(const StopNotice& notice) {
  return text_of({{"gently", notice.gently}, {"why", notice.why}});
}

std::string encode(const EndNotice& notice) {
  return text_of({{"exit_code", notice.exit_code}, {"why", notice.why}});
}

void decode(std::string_view text, NodeInfo& info) {
  read_message(text, [&](const json& message) {
    message.at("host").get_to(info.host);
    info.num_ranks = number_in(message, "num_ranks", 1, kMostRanks);
    info.node_rank = number_in(message, "node_rank", -1, kMostAgents);
    message.at("addresses").get_to(info.addresses);
  });
}

void decode(std::string_view text, Report& report) {
  read_message(text, [&](const json& message) {
    report.signal = number_in(message, "signal", 0, kLastSignal);
    if (message.contains("failure")) report.failure = failure_in(message["failure"]);
  });
}

void decode(std::string_view text, GroupPlan& plan) {
  read_message(text, [&](const json& message) {
    plan.attempt = number_in(message, "attempt", 0, kMostStarts);
    plan.max_restarts = number_in(message, "max_restarts", 0, std::numeric_limits<int64_t>::max());
    plan.nodes.clear();
    for (const json& node : message.at("nodes")) {
      plan.nodes.push_back(
          {number_in(node, "agent", 0, kMostAgents), number_in(node, "num_ranks", 1, kMostRanks)});
    }
  });
}

void decode(std::string_view text, StopNotice& notice) {
  read_message(text, [&](const json& message) {
    message.at("gently").get_to(notice.gently);
    message.at("why").get_to(notice.why);
  });
}

void decode(std::string_view text, EndNotice& notice) {
  read_message(text, [&](const json& message) {
    notice.exit_code = number_in(message, "exit_code", 0, 255);
    message.at("why").get_to(notice.why);
  });
}

}  // namespace levin::launch
