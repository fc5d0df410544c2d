// The output of `levin xla check`: a column for each topology.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>

#include "tools/graph/node_text.h"
#include "tools/xla/xla_check.h"

namespace levin::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kAdvice =
    "smaller batches, --precision bf16-mixed or bf16-true, and activation checkpointing "
    "(levin/module/activation_checkpoint.h) need less; more cores with the same batch size do not";

std::string in_bytes(int64_t bytes) { return in_units(static_cast<double>(bytes), "B"); }

class Table {
 public:
  explicit Table(std::span<const CheckedStep> checks) : checks_(checks) {
    for (const CheckedStep& checked : checks) {
      width_ = std::max({width_, checked.topology.size() + 2, checked.device_kind.size() + 2});
    }
  }

  /// A step that was refused has no cell, unless the row is about the device (`always`).
  template <class Cell>
  void add(std::string_view name, const Cell& cell, bool always = false) {
    text_ += fmt::format("{:<28}", name);
    for (const CheckedStep& checked : checks_) {
      const bool is_there = always || checked.refusal.empty();
      text_ += fmt::format("{:>{}}", is_there ? cell(checked) : std::string("-"), width_);
    }
    text_ += '\n';
  }

  const std::string& text() const { return text_; }

 private:
  std::span<const CheckedStep> checks_;
  size_t width_ = 14;
  std::string text_;
};

void add_devices(Table& table) {
  table.add("", [](const CheckedStep& one) { return one.topology; }, true);
  table.add("device", [](const CheckedStep& one) { return one.device_kind; }, true);
  table.add("cores", [](const CheckedStep& one) { return fmt::format("{}", one.num_cores); }, true);
  table.add(
      "memory of a core",
      [](const CheckedStep& one) {
        return one.hbm_bytes > 0.0 ? in_units(one.hbm_bytes, "B") : "not known";
      },
      true);
}

void add_memory(Table& table) {
  const auto row = [&](std::string_view name, int64_t xla::pjrt::ProgramMemory::* part) {
    table.add(name, [part](const CheckedStep& one) { return in_bytes(one.memory.*part); });
  };
  row("arguments", &xla::pjrt::ProgramMemory::arguments);
  row("results", &xla::pjrt::ProgramMemory::outputs);
  row("  aliased with arguments", &xla::pjrt::ProgramMemory::aliased);
  row("temporaries", &xla::pjrt::ProgramMemory::temporary);
  row("program", &xla::pjrt::ProgramMemory::code);
  table.add("in all", [](const CheckedStep& one) { return in_bytes(one.total_bytes()); });
  table.add("  of a core's memory", [](const CheckedStep& one) {
    if (one.hbm_bytes == 0.0) return std::string("not known");
    return fmt::format("{:.1f} %", 100.0 * static_cast<double>(one.total_bytes()) / one.hbm_bytes);
  });
}

void add_costs(Table& table, std::span<const CheckedStep> checks) {
  table.add("arithmetic of a core",
            [](const CheckedStep& one) { return in_units(one.flops, "FLOP"); });
  table.add("moved", [](const CheckedStep& one) { return in_units(one.bytes, "B"); });
  table.add("time, lower bound", [](const CheckedStep& one) {
    return one.seconds > 0.0 ? in_units(one.seconds, "s") : "not known";
  });
  std::set<std::string> kinds;
  for (const CheckedStep& checked : checks) {
    for (const Collective& collective : checked.collectives) kinds.insert(collective.kind);
  }
  for (const std::string& kind : kinds) {
    table.add(kind, [&](const CheckedStep& one) {
      const auto found = std::ranges::find(one.collectives, kind, &Collective::kind);
      if (found == one.collectives.end()) return std::string("none");
      return fmt::format("{}, {}", found->count, in_bytes(found->bytes));
    });
  }
}

std::string verdict(const CheckedStep& checked) {
  if (checked.fits()) return fmt::format("fits {}\n", checked.topology);
  return fmt::format("does not fit {}: {}\n", checked.topology,
                     checked.refusal.empty() ? fmt::format("it needs {} of a core's {}",
                                                           in_bytes(checked.total_bytes()),
                                                           in_units(checked.hbm_bytes, "B"))
                                             : checked.refusal);
}

Json json_of(const CheckedStep& checked) {
  Json json = {{"topology", checked.topology}, {"device", checked.device_kind},
               {"cores", checked.num_cores},   {"hbm_bytes", checked.hbm_bytes},
               {"fits", checked.fits()},       {"compile_seconds", checked.compile_s}};
  if (!checked.refusal.empty()) {
    json["refusal"] = checked.refusal;
    return json;
  }
  json["memory"] = {
      {"arguments", checked.memory.arguments}, {"results", checked.memory.outputs},
      {"in_place", checked.memory.aliased},    {"temporaries", checked.memory.temporary},
      {"program", checked.memory.code},        {"total", checked.total_bytes()}};
  json["flops"] = checked.flops;
  json["bytes"] = checked.bytes;
  json["seconds"] = checked.seconds;
  json["collectives"] = Json::array();
  for (const Collective& one : checked.collectives) {
    json["collectives"].push_back({{"kind", one.kind}, {"count", one.count}, {"bytes", one.bytes}});
  }
  return json;
}

}  // namespace

std::string to_text(std::span<const CheckedStep> checks, const Plan& plan) {
  std::string text = fmt::format("a step of {} parameters; each core runs it on its own batch\n\n",
                                 in_units(static_cast<double>(plan.num_parameters), ""));
  Table table(checks);
  add_devices(table);
  add_memory(table);
  add_costs(table, checks);
  table.add("compiled in", [](const CheckedStep& one) { return in_units(one.compile_s, "s"); });
  text += table.text() + '\n';
  for (const CheckedStep& checked : checks) text += verdict(checked);
  if (std::ranges::all_of(checks, &CheckedStep::fits)) return text;
  text +=
      fmt::format("\nlargest tensors of the recorded step at its memory peak, {} in all\n{}\n{}\n",
                  in_bytes(plan.peak_bytes), largest_text(plan), kAdvice);
  return text;
}

std::string to_json(std::span<const CheckedStep> checks, const Plan& plan) {
  Json json = {{"parameters", plan.num_parameters}, {"topologies", Json::array()}};
  for (const CheckedStep& checked : checks) json["topologies"].push_back(json_of(checked));
  json["largest"] = Json::array();
  for (const PlannedTensor& tensor : plan.largest) {
    json["largest"].push_back({{"bytes", tensor.bytes},
                               {"type", tensor.type},
                               {"name", tensor.name},
                               {"module", tensor.module}});
  }
  return json.dump(2) + "\n";
}

}  // namespace levin::tools
