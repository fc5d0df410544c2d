#include "tools/graph/forecast_report.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "tools/graph/node_text.h"

namespace levin::tools {
namespace {

using forecast::Cluster;
using forecast::Description;
using forecast::Forecast;
using forecast::Kind;
using forecast::PlannedCollective;
using Json = nlohmann::ordered_json;

std::string bytes(int64_t count) { return in_units(static_cast<double>(count), "B"); }
std::string seconds(double count) { return in_units(count, "s"); }

int64_t num_parameters(const Description& description) {
  int64_t count = 0;
  for (const auto& parameter : description.parameters) count += parameter.numel();
  return count;
}

std::string heading(const Description& description, const Cluster& cluster) {
  const std::string batches =
      description.batches > 1 ? fmt::format(" in each of {} batches", description.batches) : "";
  return fmt::format("a step of {} parameters, {} samples{} a rank, {}, on {}\n",
                     in_units(static_cast<double>(num_parameters(description)), ""),
                     description.samples, batches, description.precision, cluster.name);
}

std::string notes(const Description& description) {
  std::string text;
  for (const auto& [read, count] : description.reads) {
    text +=
        fmt::format("assumed: {} read {} time{}, each value taken as 1 (a truth value as false)\n",
                    read, count, count == 1 ? "" : "s");
  }
  return text;
}

std::string memory_table(const Forecast& forecast) {
  const int64_t total = forecast.memory_bytes();
  std::string text = fmt::format("memory of a rank at the peak: {}\n", bytes(total));
  for (size_t kind = 0; kind < forecast.memory.size(); ++kind) {
    if (forecast.memory[kind] == 0) continue;
    text += fmt::format("  {:<18}{:>10}{:>7.1f} %\n", name_of(static_cast<Kind>(kind)),
                        bytes(forecast.memory[kind]),
                        100.0 * static_cast<double>(forecast.memory[kind]) /
                            static_cast<double>(std::max<int64_t>(total, 1)));
  }
  return text;
}

std::string collectives_table(const Forecast& forecast, size_t num_listed) {
  if (forecast.collectives.empty()) return "";
  std::string text =
      fmt::format("collectives of a step: {}, {} ({} hidden)\n", bytes(forecast.collective_bytes()),
                  seconds(forecast.collective_s()), seconds(forecast.hidden_s()));
  for (const char* name : {"all_gather", "reduce_scatter", "all_reduce"}) {
    const auto count = std::ranges::count(forecast.collectives, name, &PlannedCollective::name);
    if (count == 0) continue;
    double all = 0.0;
    for (const PlannedCollective& each : forecast.collectives) {
      if (each.name == name) all += each.seconds;
    }
    text += fmt::format("  {:<16}{:>5} calls{:>12}{:>12}\n", name, count,
                        bytes(forecast.collective_bytes(name)), seconds(all));
  }
  const size_t listed = std::min(num_listed, forecast.collectives.size());
  for (size_t i = 0; i < listed; ++i) {
    const PlannedCollective& each = forecast.collectives[i];
    text +=
        fmt::format("    {:<16}{:<28}{:>4} ranks{:>12}{:>12}{:>12} hidden\n", each.name, each.of,
                    each.ranks, bytes(each.bytes), seconds(each.seconds), seconds(each.hidden_s));
  }
  return text;
}

std::string rates(const Forecast& forecast) {
  std::string text = fmt::format("{:.4g} samples/s", forecast.samples_per_s);
  if (forecast.tokens_per_s > 0) {
    text += fmt::format(", {:.4g} tokens/s ({:.4g} a rank)", forecast.tokens_per_s,
                        forecast.tokens_per_s / static_cast<double>(std::max<int64_t>(
                                                    forecast.setting.mesh.size(), 1)));
  }
  return text;
}

Json json_of(const Forecast& forecast) {
  Json json = {{"strategy", forecast.setting.name()},
               {"mesh", to_text(forecast.setting.mesh)},
               {"ranks", forecast.setting.mesh.size()},
               {"memory_bytes", forecast.memory_bytes()}};
  for (size_t kind = 0; kind < forecast.memory.size(); ++kind) {
    json["memory"][std::string(name_of(static_cast<Kind>(kind)))] = forecast.memory[kind];
  }
  json["collectives"] = Json::array();
  for (const PlannedCollective& each : forecast.collectives) {
    json["collectives"].push_back({{"name", each.name},
                                   {"of", each.of},
                                   {"ranks", each.ranks},
                                   {"bytes", each.bytes},
                                   {"seconds", each.seconds},
                                   {"hidden_s", each.hidden_s}});
  }
  json["compute_s"] = forecast.compute_s;
  json["step_s"] = forecast.step_s;
  json["flops"] = forecast.flops;
  json["samples_per_s"] = forecast.samples_per_s;
  json["tokens_per_s"] = forecast.tokens_per_s;
  return json;
}

}  // namespace

std::string to_text(const Forecast& forecast, const Description& description,
                    const Cluster& cluster, size_t num_listed) {
  return fmt::format("{}{} on {}: {} ranks\n\n{}\n{}{}step: {} (operators: {})\n{}\n{}",
                     heading(description, cluster), forecast.setting.name(),
                     to_text(forecast.setting.mesh), forecast.setting.mesh.size(),
                     memory_table(forecast), collectives_table(forecast, num_listed),
                     forecast.collectives.empty() ? "" : "\n", seconds(forecast.step_s),
                     seconds(forecast.compute_s), rates(forecast), notes(description));
}

std::string table_of(const std::vector<Forecast>& forecasts, const Description& description,
                     const Cluster& cluster, const forecast::Choice* choice) {
  std::string text = heading(description, cluster);
  text += fmt::format("{:<10}{:<18}{:>12}{:>14}{:>10}{:>10}{:>14}\n", "strategy", "mesh", "memory",
                      "collectives", "hidden", "step", "samples/s");
  for (const Forecast& each : forecasts) {
    text += fmt::format("{:<10}{:<18}{:>12}{:>14}{:>10}{:>10}{:>14.4g}\n", each.setting.name(),
                        to_text(each.setting.mesh), bytes(each.memory_bytes()),
                        bytes(each.collective_bytes()), seconds(each.hidden_s()),
                        seconds(each.step_s), each.samples_per_s);
  }
  text += notes(description);
  if (choice != nullptr) text += choice->reason + "\n";
  return text;
}

std::string to_json(const std::vector<Forecast>& forecasts, const Description& description,
                    const Cluster& cluster, const forecast::Choice* choice) {
  Json json = {{"cluster", cluster.name},
               {"parameters", num_parameters(description)},
               {"samples", description.samples},
               {"batches", description.batches},
               {"precision", description.precision},
               {"assumed_reads", description.reads},
               {"forecasts", Json::array()}};
  for (const Forecast& each : forecasts) json["forecasts"].push_back(json_of(each));
  if (choice != nullptr) {
    json["choice"] = choice->best ? Json(*choice->best) : Json();
    json["reason"] = choice->reason;
  }
  return json.dump(2) + "\n";
}

double bytes_of_text(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 9> kUnits = {{{"TiB", 1099511627776.0},
                                                                          {"GiB", 1073741824.0},
                                                                          {"MiB", 1048576.0},
                                                                          {"KiB", 1024.0},
                                                                          {"TB", 1e12},
                                                                          {"GB", 1e9},
                                                                          {"MB", 1e6},
                                                                          {"kB", 1e3},
                                                                          {"B", 1.0}}};
  for (const auto& [unit, factor] : kUnits) {
    if (!text.ends_with(unit)) continue;
    std::string_view number = text.substr(0, text.size() - unit.size());
    while (number.ends_with(" ")) number.remove_suffix(1);
    double value = 0.0;
    try {
      from_text(number, value);
    } catch (const Error&) {
      break;
    }
    if (value > 0) return value * factor;
    break;
  }
  LEVIN_FAIL("tools.plan", "got the memory '{}', wanted a number above 0 with a unit, as 80GB",
             std::string(text));
}

}  // namespace levin::tools
