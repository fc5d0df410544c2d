#pragma once
// What most sources need, compiled once. Kept small: every source pays for loading the whole of it,
// and with torch/torch.h in it a source took twice as long.
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>
