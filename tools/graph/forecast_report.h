#pragma once
// forecast_report: forecasts of a training step as text and as JSON. What `levin plan --strategy`,
// `--compare` and `--fits` print.
//
//   std::cout << to_text(forecast, cluster);
//   std::cout << table_of(forecasts, choice);

#include <string>
#include <vector>

#include "levin/strategy/forecast/forecast.h"

namespace levin::tools {

/// The memory of a rank by kind, each collective of a step and the times. At most `num_listed`
/// collectives are listed by name.
std::string to_text(const forecast::Forecast& forecast, const forecast::Description& description,
                    const forecast::Cluster& cluster, size_t num_listed);
/// A row for each forecast, and below them the choice, if there is one.
std::string table_of(const std::vector<forecast::Forecast>& forecasts,
                     const forecast::Description& description, const forecast::Cluster& cluster,
                     const forecast::Choice* choice);
/// Numbers in bytes and seconds.
std::string to_json(const std::vector<forecast::Forecast>& forecasts,
                    const forecast::Description& description, const forecast::Cluster& cluster,
                    const forecast::Choice* choice);

/// Reads "80GB", "512 MB" or "24GiB" as bytes. Throws Error "tools.plan".
double bytes_of_text(std::string_view text);

}  // namespace levin::tools
