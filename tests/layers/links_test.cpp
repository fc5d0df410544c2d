// The links of the guides lead to files that exist, and to headings that their guides have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/layers/guides.h"
#include "tests/support/places.h"
#include "tests/support/scratch.h"

namespace links {
namespace {

namespace fs = std::filesystem;
using levin::test::GuideLine;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The anchor that GitHub gives a heading: "## `levin run`: ranks, nodes" has "levin-run-ranks-nodes".
std::string slug(const std::string& heading) {
  static const std::regex link(R"(\[([^\]]*)\]\([^)]*\))");
  std::string anchor;
  for (const char letter : std::regex_replace(heading, link, "$1")) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == ' ') {
      anchor += '-';
    } else if (std::isalnum(code) != 0 || letter == '-' || letter == '_' || code >= 0x80) {
      anchor += static_cast<char>(std::tolower(code));
    }
  }
  return anchor;
}

/// Anchors of the headings and of <a id="..."> and <a name="...">.
std::set<std::string> anchors_of(const fs::path& guide) {
  static const std::regex heading("#{1,6} +(.*?) *#*");
  static const std::regex named("<a (?:id|name)=\"([^\"]*)\"");
  std::set<std::string> anchors;
  std::map<std::string, int> repeats;
  for (const GuideLine& line : levin::test::lines_of(guide)) {
    if (line.is_code) continue;
    std::smatch found;
    if (std::regex_match(line.text, found, heading)) {
      const std::string anchor = slug(found[1]);
      const int before = repeats[anchor]++;
      anchors.insert(before == 0 ? anchor : anchor + "-" + std::to_string(before));
    }
    if (std::regex_search(line.text, found, named)) anchors.insert(found[1]);
  }
  return anchors;
}

/// Targets of the links in this line, [text](target): no URLs.
std::vector<std::string> links_in(const std::string& line) {
  static const std::regex code("`[^`]*`");
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  const std::string plain = std::regex_replace(line, code, "");
  std::vector<std::string> targets;
  for (std::sregex_iterator i(plain.begin(), plain.end(), link), end; i != end; ++i) {
    const std::string target = (*i)[1];
    if (target.find(':') == std::string::npos) targets.push_back(target);
  }
  return targets;
}

/// "docs/data.md:12: the link loader.md leads nowhere", for each such link.
std::vector<std::string> dead_links(const fs::path& root) {
  std::vector<std::string> dead;
  for (const fs::path& guide : levin::test::guides(root)) {
    for (const GuideLine& line : levin::test::lines_of(guide)) {
      if (line.is_code) continue;
      for (const std::string& link : links_in(line.text)) {
        const std::string place =
            fs::relative(guide, root).generic_string() + ":" + std::to_string(line.number);
        const size_t hash = link.find('#');
        const fs::path file = hash == 0 ? guide : guide.parent_path() / link.substr(0, hash);
        if (!fs::exists(file)) {
          dead.push_back(place + ": the link " + link + " leads nowhere");
        } else if (hash != std::string::npos && !anchors_of(file).contains(link.substr(hash + 1))) {
          dead.push_back(place + ": the link " + link + " leads to no heading");
        }
      }
    }
  }
  return dead;
}

TEST(Links, LeadSomewhere) {
  EXPECT_GT(levin::test::guides(levin::test::source_dir()).size(), 10U);
  EXPECT_THAT(dead_links(levin::test::source_dir()), IsEmpty());
}

TEST(Links, AnchorsAreThoseOfGitHub) {
  EXPECT_EQ(slug("Meta device: deferred initialization"), "meta-device-deferred-initialization");
  EXPECT_EQ(slug("`levin ckpt`, [Python](python.md) & snake_case"),
            "levin-ckpt-python--snake_case");
}

TEST(Links, DeadOnesAreSeen) {
  const levin::test::Scratch root;
  fs::create_directories(root / "docs/api");
  levin::test::put(root / "README.md",
                   "# One\n[a](docs/a.md#two-1) [b](docs/a.md#three)\n[c](#one) [d](#two)\n"
                   "[e](docs/b.md) [f](https://x.org/y.md#z) [`g`](docs/a.md#four)\n");
  levin::test::put(root / "docs/a.md",
                   "## Two\n## Two ##\n<a id=\"four\"></a>\n`[h](b.md)`\n"
                   "```sh\n# Three\nprint [i](b.md)\n```\n[j](../README.md#One)\n");
  levin::test::put(root / "docs/api/made.md", "[k](b.md)\n");
  EXPECT_THAT(dead_links(root.path()),
              ElementsAre("README.md:2: the link docs/a.md#three leads to no heading",
                          "README.md:3: the link #two leads to no heading",
                          "README.md:4: the link docs/b.md leads nowhere",
                          "docs/a.md:9: the link ../README.md#One leads to no heading"));
}

}  // namespace
}  // namespace links
