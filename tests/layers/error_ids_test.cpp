// Every error id that the sources throw stands in docs/errors.md and in a test that triggers it,
// and every environment variable of levin's own in docs/environment.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "tests/support/places.h"

namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

template <class Visit>
void for_each_file(const std::vector<std::string>& folders, const Visit& visit) {
  const fs::path root = levin::test::source_dir();
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const fs::path extension = entry.path().extension();
      if (extension != ".h" && extension != ".cpp" && extension != ".txt" && extension != ".cmake")
        continue;
      visit(fs::relative(entry.path(), root).generic_string(), text_of(entry.path()));
    }
  }
}

/// Ids by the files that throw them: the first literal with a dot after LEVIN_CHECK, LEVIN_FAIL,
/// Error and what throws for the tools' command lines.
std::map<std::string, std::set<std::string>> thrown_ids() {
  std::map<std::string, std::set<std::string>> ids;
  const std::regex id("\"([a-z][a-z0-9_]*(?:\\.[a-z0-9_]+)+)\"");
  for_each_file({"levin", "tools"}, [&](const std::string& path, const std::string& text) {
    for (const char* opening : {"LEVIN_CHECK(", "LEVIN_FAIL(", " Error(", "parse_arguments("}) {
      for (size_t at = text.find(opening); at != std::string::npos;
           at = text.find(opening, at + 1)) {
        const std::string statement = text.substr(at, text.find(';', at) - at);
        std::smatch found;
        if (std::regex_search(statement, found, id)) ids[found[1]].insert(path);
      }
    }
  });
  return ids;
}

/// Ids of the table in docs/errors.md whose row says when it comes and what to do.
std::set<std::string> documented_ids() {
  std::set<std::string> ids;
  std::ifstream in(fs::path(levin::test::source_dir()) / "docs/errors.md");
  const std::regex row("\\| `([a-z0-9_.]+)` \\| [^|]{5,} \\| [^|]{5,} \\|");
  for (std::string line; std::getline(in, line);) {
    std::smatch found;
    if (std::regex_match(line, found, row)) ids.insert(found[1]);
  }
  return ids;
}

TEST(ErrorIds, DocsSayOfEachWhenItComesAndWhatToDo) {
  const auto thrown = thrown_ids();
  EXPECT_GT(thrown.size(), 90U);
  std::set<std::string> documented = documented_ids();
  std::string missing;
  for (const auto& [id, paths] : thrown) {
    if (documented.erase(id) == 0) missing += id + ", of " + *paths.begin() + "\n";
  }
  EXPECT_EQ(missing, "") << "wanted a row | `id` | when | what to do | in docs/errors.md";
  EXPECT_THAT(documented, IsEmpty()) << "rows to take out of docs/errors.md";
}

TEST(ErrorIds, EachStandsInATest) {
  std::string tests;
  for_each_file({"tests"}, [&](const std::string&, const std::string& text) { tests += text; });
  std::vector<std::string> untested;
  for (const auto& [id, paths] : thrown_ids()) {
    const std::string in_pattern = std::regex_replace(id, std::regex("\\."), "\\\\.");
    const bool found =
        tests.find(id) != std::string::npos || tests.find(in_pattern) != std::string::npos;
    if (!found) untested.push_back(id);
  }
  EXPECT_THAT(untested, IsEmpty());
}

TEST(EnvironmentVariables, AreDocumented) {
  const std::string documented =
      text_of(fs::path(levin::test::source_dir()) / "docs/environment.md");
  const std::regex variable("(?:getenv|variable)[a-z_]*\\(\"(LEVIN_[A-Z0-9_]+)\"");
  std::set<std::string> missing;
  for_each_file({"levin", "tools"}, [&](const std::string&, const std::string& text) {
    for (std::sregex_iterator found(text.begin(), text.end(), variable), end; found != end;
         ++found) {
      const std::string name = (*found)[1];
      if (documented.find("`" + name + "`") == std::string::npos) missing.insert(name);
    }
  });
  EXPECT_THAT(missing, IsEmpty()) << "rows to add to docs/environment.md";
}

}  // namespace
