#pragma once
// Runs a row of the table, and tells two runs of it apart.

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/replay/cases.h"

namespace levin::test {

/// Options as text, by their names: {{"compile", "replay"}, {"compile_check", "every"}}.
using Settings = std::map<std::string, std::string>;

/// Whether a run can be told this.
bool has_option(const std::string& name);

struct Outcome {
  std::vector<std::pair<std::string, at::Tensor>> values;  ///< of the steps, then of the end
  std::vector<std::string> logged;
  graph::CompiledReport report;
  std::string error;  ///< that ended the run

  void add(const std::string& name, const at::Tensor& value);  ///< a copy on the CPU
};

Outcome run(const StepCase& row, const Settings& settings);
Outcome run(const FunctionCase& row, const Settings& settings);

/// In words, the first difference; "" where there is none. tolerance 0: bit for bit.
std::string difference(const Outcome& wanted, const Outcome& got, double tolerance = 0.0);

/// How the report is not what the row asks for; "" where it is. A row may be replayed, checked or
/// refused, and nothing else; one that is refused says why, and in which function of the user's.
std::string unwanted(Wanted wanted, const std::string& word, const std::string& function,
                     const graph::CompiledReport& report);
template <class Case>
std::string unwanted(const Case& row, const graph::CompiledReport& report) {
  return unwanted(row.wanted, row.word, row.function, report);
}

/// Of a test with the row as its parameter.
inline constexpr auto row_name = [](const auto& info) { return info.param.name; };

}  // namespace levin::test
