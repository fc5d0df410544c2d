#pragma once
// A setting of lightning_settings.py, trained with levin; the peer of lightning_grid.py.

#include <nlohmann/json.hpp>

#include <filesystem>

namespace lightning_grid {

/// What each command of the setting did, as lightning_grid.py records it.
nlohmann::json run(const nlohmann::json& setting, const std::filesystem::path& folder);

}  // namespace lightning_grid
