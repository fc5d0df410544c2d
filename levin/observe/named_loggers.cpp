#include "levin/observe/named_loggers.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "levin/base/check.h"
#include "levin/observe/run_directory_impl.h"

namespace levin::detail {
namespace {

struct NamedLogger {
  std::string_view name;
  std::shared_ptr<Logger> (*make)(std::shared_ptr<RunDirectory> directory);
};

// A further logger is one more row.
constexpr std::array kNamedLoggers = {
    NamedLogger{"csv", csv_logger_in},
    NamedLogger{"jsonl", jsonl_logger_in},
    NamedLogger{"tensorboard",
                [](std::shared_ptr<RunDirectory> directory) {
                  return tensorboard_logger_in(std::move(directory), {});
                }},
};

}  // namespace

std::vector<std::string> logger_names() {
  std::vector<std::string> names;
  for (const NamedLogger& logger : kNamedLoggers) names.emplace_back(logger.name);
  return names;
}

void check_logger_names(const std::vector<std::string>& names) {
  const std::vector<std::string> known = logger_names();
  LEVIN_CHECK(!names.empty(), "base.text", "got '', wanted true, false or names of {}",
              to_text(known));
  for (const std::string& name : names) {
    LEVIN_CHECK(std::ranges::count(known, name) > 0, "base.text",
                "got '{}', wanted true, false or names of {}", printable(name), to_text(known));
    LEVIN_CHECK(std::ranges::count(names, name) == 1, "base.text",
                "got '{}' twice; name each logger once", name);
  }
}

std::vector<std::shared_ptr<Logger>> loggers_named(const std::vector<std::string>& names,
                                                   LoggerOptions options) {
  check_logger_names(names);
  const auto directory = std::make_shared<RunDirectory>(std::move(options));
  std::vector<std::shared_ptr<Logger>> loggers;
  for (const std::string& name : names) {
    loggers.push_back(std::ranges::find(kNamedLoggers, name, &NamedLogger::name)->make(directory));
  }
  return loggers;
}

}  // namespace levin::detail
