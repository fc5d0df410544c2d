#include "levin/base/options/environment_options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include "levin/base/log.h"
#include "levin/base/options.h"

namespace levin::detail {
namespace {

constexpr std::string_view kPrefix = "LEVIN_";

/// Settings of a machine and of the build (docs/environment.md), which are no options.
constexpr std::array<std::string_view, 34> kSettings = {"APT",
                                                        "CMAKE",
                                                        "EXPORT_CKPT",
                                                        "EXPORT_DYNAMIC",
                                                        "EXPORT_TO",
                                                        "EXPORT_TRAINING",
                                                        "FLIGHT_DIR",
                                                        "FRAMES",
                                                        "GOOGLETEST",
                                                        "GPU_BIN",
                                                        "GPU_JSON",
                                                        "GPU_PYTHON",
                                                        "GPU_SCRATCH",
                                                        "GRAPH_TO",
                                                        "JOB_STORE",
                                                        "JOB_TOKEN",
                                                        "LIBTORCH",
                                                        "LIBTPU",
                                                        "LOG",
                                                        "LOGS_TO",
                                                        "MPI_MODULE",
                                                        "PJRT",
                                                        "SOAK",
                                                        "LOG_ALL_RANKS",
                                                        "PJRT_PLUGIN",
                                                        "ROWS_CACHE",
                                                        "TORCH_BUILD",
                                                        "TORCH_SHA256",
                                                        "XLA_CACHE",
                                                        "GRAPH_FOR_XLA",
                                                        "GRAPH_PRECISION",
                                                        "GRAPH_WITHOUT_MEMORY",
                                                        "PLAN_TO",
                                                        "GPU_TESTS_DEVICE"};

bool is_setting(std::string_view variable) {
  return variable.starts_with(kPrefix) &&
         std::ranges::count(kSettings, variable.substr(kPrefix.size())) > 0;
}

}  // namespace

std::string variable_of(const std::string& name) {
  std::string variable(kPrefix);
  for (const char c : name) {
    if (c == '.') variable += '_';
    variable += c == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return variable;
}

std::optional<std::string> from_environment(const std::string& name) {
  const std::string variable = variable_of(name);
  const char* value = is_setting(variable) ? nullptr : std::getenv(variable.c_str());
  if (value == nullptr || *value == 0) return std::nullopt;
  return value;
}

void warn_of_misspelt_variables(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const std::string& name : names) known.push_back(variable_of(name));
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string variable(text.substr(0, text.find('=')));
    const bool is_known = is_setting(variable) || std::ranges::count(known, variable) > 0;
    if (!variable.starts_with(kPrefix) || is_known) continue;
    const auto close = nearest(variable, known);
    if (!close) continue;
    log::warn("{} is no option of this program, so it has no effect; did you mean {}?",
              printable(variable), *close);
  }
}

}  // namespace levin::detail
