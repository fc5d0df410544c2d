// No text for users has a word of deny_list.txt: README and the guides, comments of the public headers,
// and the string literals of levin/, tools/ and examples/, which are errors, warnings and --help.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/layers/guides.h"
#include "tests/layers/passages.h"
#include "tests/support/places.h"
#include "tests/support/scratch.h"

namespace words {
namespace {

namespace fs = std::filesystem;
using levin::test::is_of_a_word;
using levin::test::Passage;
using levin::test::Passages;

struct Entry {
  std::regex pattern;
  std::string better;
};

std::vector<Entry> deny_list(const fs::path& root) {
  std::vector<Entry> entries;
  std::ifstream in(root / "tests/layers/deny_list.txt");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) continue;
    const size_t bar = line.find(" | ");
    EXPECT_NE(bar, std::string::npos) << "got '" << line << "', wanted: words | better words";
    if (bar == std::string::npos) continue;
    entries.push_back({std::regex(line.substr(0, bar)), line.substr(bar + 3)});
  }
  return entries;
}

/// Found not as a part of a longer word.
bool is_of_whole_words(const std::smatch& found) {
  const auto [begin, end] = std::pair(found[0].first, found[0].second);
  const auto joins = [](auto place) {
    return is_of_a_word(*std::prev(place)) && is_of_a_word(*place);
  };
  return !(found.prefix().matched && joins(begin)) && !(found.suffix().matched && joins(end));
}

/// The headers that levin/levin.h includes.
std::set<std::string> public_headers(const fs::path& root) {
  static const std::regex include("#include \"(levin/[^\"]*)\"");
  const std::string text = levin::test::get(root / "levin/levin.h");
  std::set<std::string> headers = {"levin/levin.h"};
  for (std::sregex_iterator i(text.begin(), text.end(), include), end; i != end; ++i) {
    headers.insert((*i)[1]);
  }
  return headers;
}

class Search {
 public:
  explicit Search(fs::path root) : root_(std::move(root)), entries_(deny_list(root_)) {}

  /// A line "docs/data.md:12: got 'in place of', wanted: instead of" for each denied word.
  std::string denied() {
    for (const fs::path& guide : levin::test::guides(root_)) {
      look_at(guide, levin::test::passages_of_guide(guide));
    }
    const std::set<std::string> headers = public_headers(root_);
    for (const char* part : {"levin", "tools", "examples"}) {
      for (const auto& entry : fs::recursive_directory_iterator(root_ / part)) {
        const fs::path extension = entry.path().extension();
        if (extension != ".h" && extension != ".cpp") continue;
        const levin::test::SourceWords words = levin::test::words_of_source(entry.path());
        look_at(entry.path(), words.literals);
        if (headers.contains(name_of(entry.path()))) look_at(entry.path(), words.comments);
      }
    }
    std::ranges::sort(denied_);
    std::string lines;
    for (const std::string& line : denied_) lines += line + "\n";
    return lines;
  }

 private:
  std::string name_of(const fs::path& file) const {
    return fs::relative(file, root_).generic_string();
  }

  void look_at(const fs::path& file, const Passages& passages) {
    for (const Passage& passage : passages) {
      const std::string& text = passage.text();
      if (text.find(' ') == std::string::npos) continue;  // an id, a flag, an #include
      for (const Entry& entry : entries_) {
        for (std::sregex_iterator i(text.begin(), text.end(), entry.pattern), end; i != end; ++i) {
          if (!is_of_whole_words(*i)) continue;
          const size_t line = passage.line_at(static_cast<size_t>(i->position()));
          denied_.push_back(name_of(file) + ":" + std::to_string(line) + ": got '" + i->str() +
                            "', wanted: " + entry.better);
        }
      }
    }
  }

  fs::path root_;
  std::vector<Entry> entries_;
  std::vector<std::string> denied_;
};

TEST(Words, OfTheDenyListAreNowhere) {
  EXPECT_GT(deny_list(levin::test::source_dir()).size(), 10U);
  const std::string denied = Search(levin::test::source_dir()).denied();
  EXPECT_TRUE(denied.empty()) << denied << "tests/layers/deny_list.txt has these";
}

TEST(Words, AreSeenWhereUsersReadThem) {
  const levin::test::Scratch root;
  for (const char* folder : {"docs", "levin/data", "tools", "examples", "tests/layers"}) {
    fs::create_directories(root / folder);
  }
  levin::test::put(root / "tests/layers/deny_list.txt",
                   "# bears | of a comment\nin place of | instead of\nbears | allows\n"
                   "What [^?.]*[.] | a subject\n");
  levin::test::put(root / "README.md",
                   "# What bears\nTrains in place\nof a loop. What it\nsaves is kept. It is\n"
                   "- in place\n- of; bearskin\n| What is it? | Bears. bears |\n");
  levin::test::put(root / "docs/a.md",
                   "```cpp\nint a = 0;  // it bears\nf();  // in place\n// of\n```\n");
  levin::test::put(root / "levin/levin.h", "#include \"levin/data/a.h\"\n");
  levin::test::put(
      root / "levin/data/a.h",
      "/// The tensor in place\n/// of a list, in place\n///\n/// of\nint a;  ///< in place\n"
      "        ///< of 0\nint bears;\n");
  levin::test::put(root / "levin/data/inside.h", "// It bears\nint a;\n");
  levin::test::put(
      root / "tools/a.cpp",
      "auto a = \"got in \"  // why\n\n    \"place\\nof it\";\n"
      "int b = 1'000 + '\"';\nf(\"in place \", \"of \\\"it\\\" \" + bears + \"bears \");\n"
      "auto c = R\"x(\n  # It bears\n\"It\"\nbears)x\";\n// It bears\n");
  levin::test::put(root / "examples/a.cpp", "auto a = \"bears\", b = \"it bears\";\n");
  EXPECT_EQ(Search(root.path()).denied(),
            "README.md:1: got 'bears', wanted: allows\n"
            "README.md:2: got 'in place of', wanted: instead of\n"
            "README.md:3: got 'What it saves is kept.', wanted: a subject\n"
            "README.md:7: got 'bears', wanted: allows\n"
            "docs/a.md:2: got 'bears', wanted: allows\n"
            "examples/a.cpp:1: got 'bears', wanted: allows\n"
            "levin/data/a.h:1: got 'in place of', wanted: instead of\n"
            "levin/data/a.h:5: got 'in place of', wanted: instead of\n"
            "tools/a.cpp:1: got 'in place of', wanted: instead of\n"
            "tools/a.cpp:5: got 'bears', wanted: allows\n"
            "tools/a.cpp:9: got 'bears', wanted: allows\n");
}

}  // namespace
}  // namespace words
