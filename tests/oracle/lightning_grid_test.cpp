// levin beside PyTorch Lightning: over some hundred settings the same hooks, counts, rates, rows,
// validations, checkpoints and weights, but for what docs/lightning.md lists.

#include "tests/oracle/lightning_grid.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "levin/base/error.h"
#include "tests/support/places.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const json& golden() {
  static const json all = [] {
    std::ifstream file(fs::path(levin::test::source_dir()) / "tests/oracle/golden/lightning.json");
    return json::parse(file);
  }();
  return all;
}

/// (abc)3 is abcabcabc.
std::string expanded(const std::string& text) {
  std::string all;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '(') {
      all += text[at++];
      continue;
    }
    const size_t close = text.find(')', at);
    const std::string unit = text.substr(at + 1, close - at - 1);
    size_t digits = 0;
    const int times = std::stoi(text.substr(close + 1), &digits);
    for (int i = 0; i < times; ++i) all += unit;
    at = close + 1 + digits;
  }
  return all;
}

/// Numbers are kept with 7 digits.
bool same(const json& ours, const json& theirs) {
  if (ours.is_number() && theirs.is_number()) {
    const double a = ours.get<double>(), b = theirs.get<double>();
    return std::abs(a - b) <= 1e-7 + 2e-6 * std::abs(b);
  }
  if (ours.type() != theirs.type() || ours.size() != theirs.size()) return false;
  if (ours.is_object()) {
    for (const auto& [name, value] : ours.items()) {
      if (!theirs.contains(name) || !same(value, theirs[name])) return false;
    }
    return true;
  }
  if (!ours.is_array()) return ours == theirs;
  for (size_t i = 0; i < ours.size(); ++i) {
    if (!same(ours[i], theirs[i])) return false;
  }
  return true;
}

/// The first difference of two fields, told with its place.
std::string difference(const json& ours, const json& theirs) {
  if (ours.is_string() && theirs.is_string()) {
    const std::string a = ours, b = theirs;
    const auto split = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    const auto place = static_cast<size_t>(split.first - a.begin());
    const size_t from = place > 40 ? place - 40 : 0;
    return fmt::format("after {} characters\n      levin     ...{}|{}\n      Lightning ...{}|{}",
                       place, a.substr(from, place - from), a.substr(place, 60),
                       b.substr(from, place - from), b.substr(place, 60));
  }
  if (ours.is_array() && theirs.is_array()) {
    for (size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
      const json a = i < ours.size() ? ours[i] : json("nothing");
      const json b = i < theirs.size() ? theirs[i] : json("nothing");
      if (!same(a, b)) {
        return fmt::format("at {}: levin {}, Lightning {}", i, a.dump(), b.dump());
      }
    }
  }
  return fmt::format("levin {}, Lightning {}", ours.dump(), theirs.dump());
}

std::string differences(const json& ours, const json& theirs) {
  std::string all;
  if (ours.size() != theirs.size()) return "another number of commands\n";
  for (size_t i = 0; i < ours.size(); ++i) {
    json wanted = theirs[i];
    for (const char* story : {"module", "callback"}) {
      if (wanted.contains(story)) wanted[story] = expanded(wanted[story]);
    }
    json got = ours[i];
    for (const auto& [field, value] : wanted.items()) {
      const json mine = got.contains(field) ? got[field] : json();
      if (!same(mine, value)) {
        all += fmt::format("  {}.{} {}\n", i, field, difference(mine, value));
      }
    }
  }
  return all;
}

std::vector<std::string> names(int64_t ranks) {
  std::vector<std::string> all;
  for (const auto& [name, one] : golden().items()) {
    if (one["setting"].value("ranks", 1) == ranks) all.push_back(name);
  }
  return all;
}

/// "" where levin does in the setting, on this rank, what Lightning does.
std::string compare(const json& one, const fs::path& folder, int64_t rank = 0) {
  const json& wanted = rank == 0 ? one["wanted"] : one["others"][static_cast<size_t>(rank - 1)];
  const bool refused = one["wanted"] == "refused";
  try {
    const json ours = lightning_grid::run(one["setting"], folder);
    return refused ? "  ran, and Lightning refuses it\n" : differences(ours, wanted);
  } catch (const levin::Error& error) {
    return refused ? "" : fmt::format("  threw {}\n", error.what());
  }
}

class LightningGrid : public ::testing::TestWithParam<std::string> {};

TEST_P(LightningGrid, DoesAsLightning) {
  at::set_num_threads(1);
  const json& one = golden()[GetParam()];
  const levin::test::Scratch scratch;
  const std::string found = compare(one, scratch.path());
  if (!found.empty()) ADD_FAILURE() << one["setting"].dump() << '\n' << found;
}

INSTANTIATE_TEST_SUITE_P(Alone, LightningGrid, ::testing::ValuesIn(names(1)),
                         [](const auto& info) { return info.param; });

class LightningGridOnRanks : public ::testing::TestWithParam<std::string> {};

TEST_P(LightningGridOnRanks, DoesAsLightning) {
  const json& one = golden()[GetParam()];
  const std::vector<std::string> found = levin::test::run_world(
      2, [&](int64_t rank, const fs::path& folder) { return compare(one, folder / "run", rank); });
  for (size_t rank = 0; rank < found.size(); ++rank) {
    if (found[rank].empty()) continue;
    ADD_FAILURE() << one["setting"].dump() << "\n  rank " << rank << "\n" << found[rank];
  }
}

INSTANTIATE_TEST_SUITE_P(Two, LightningGridOnRanks, ::testing::ValuesIn(names(2)),
                         [](const auto& info) { return info.param; });

/// The first column of the table in the docs that begins with "| id |".
std::set<std::string> ids_in_docs() {
  std::ifstream file(fs::path(levin::test::source_dir()) / "docs/lightning.md");
  std::set<std::string> ids;
  std::string line;
  while (std::getline(file, line) && !line.starts_with("| id |")) {
  }
  while (std::getline(file, line) && line.starts_with("|")) {
    if (line.starts_with("| `")) ids.insert(line.substr(3, line.find('`', 3) - 3));
  }
  return ids;
}

TEST(LightningGridTable, NamesWhatShowsInTheGridAndNothingElse) {
  std::set<std::string> shown;
  for (const auto& [name, one] : golden().items()) {
    for (const json& id : one["meant"]) shown.insert(id);
  }
  EXPECT_EQ(shown, ids_in_docs());
}

TEST(LightningGridTable, HoldsSomeHundredSettings) {
  EXPECT_GE(names(1).size(), 300U);
  const std::vector<std::string> of_two = names(2);
  EXPECT_GE(of_two.size(), 40U);
  EXPECT_GE(std::ranges::count_if(
                of_two, [](const auto& name) { return name.starts_with("ranks_resume"); }),
            7);
}

}  // namespace
