#include "levin/launch/messages.h"

#include <nlohmann/json.hpp>

#include "levin/base/check.h"

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
    read(json::parse(text));
  } catch (const json::exception& error) {
    LEVIN_FAIL("launch.rendezvous",
               "cannot read another launcher's message ({}); run the same version of levin on all "
               "nodes",
               error.what());
  }
}

json json_of(const Failure& failure) {
  return {{"rank", failure.rank},     {"host", failure.host},
          {"pid", failure.pid},       {"exit_code", failure.exit_code},
          {"signal", failure.signal}, {"last_lines", failure.last_lines},
          {"text", failure.text},     {"worth_a_restart", failure.worth_a_restart}};
}

Failure failure_in(const json& message) {
  Failure failure;
  message.at("rank").get_to(failure.rank);
  message.at("host").get_to(failure.host);
  message.at("pid").get_to(failure.pid);
  message.at("exit_code").get_to(failure.exit_code);
  message.at("signal").get_to(failure.signal);
  message.at("last_lines").get_to(failure.last_lines);
  message.at("text").get_to(failure.text);
  message.at("worth_a_restart").get_to(failure.worth_a_restart);
  return failure;
}

}  // namespace

std::string encode(const NodeInfo& info) {
  return text_of(
      {{"host", info.host}, {"num_ranks", info.num_ranks}, {"node_rank", info.node_rank}});
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
    message.at("num_ranks").get_to(info.num_ranks);
    message.at("node_rank").get_to(info.node_rank);
  });
}

void decode(std::string_view text, Report& report) {
  read_message(text, [&](const json& message) {
    message.at("signal").get_to(report.signal);
    if (message.contains("failure")) report.failure = failure_in(message["failure"]);
  });
}

void decode(std::string_view text, GroupPlan& plan) {
  read_message(text, [&](const json& message) {
    message.at("attempt").get_to(plan.attempt);
    message.at("max_restarts").get_to(plan.max_restarts);
    plan.nodes.clear();
    for (const json& node : message.at("nodes")) {
      plan.nodes.push_back({node.at("agent").get<int64_t>(), node.at("num_ranks").get<int64_t>()});
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
    message.at("exit_code").get_to(notice.exit_code);
    message.at("why").get_to(notice.why);
  });
}

}  // namespace levin::launch
