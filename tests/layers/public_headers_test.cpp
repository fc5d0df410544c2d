// The public headers are those that levin/levin.h includes: few, reaching no others, and all that users write.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/places.h"

namespace public_headers {
namespace {

namespace fs = std::filesystem;
using ::testing::IsEmpty;

constexpr size_t kMostHeaders = 60;

/// Without the listings of a guide that show levin's own sources.
std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  constexpr std::string_view kSource = "<!-- source: levin/", kFence = "\n```";
  for (size_t begin = text.find(kSource); begin != std::string::npos; begin = text.find(kSource)) {
    const size_t end = text.find(kFence, text.find(kFence, begin) + kFence.size());
    text.erase(begin, end - begin);
  }
  return text;
}

/// "levin/..." between quotes or brackets.
std::vector<std::string> includes_of(const std::string& text) {
  static const std::regex include("#include [\"<](levin/[^\">]*)[\">]");
  std::vector<std::string> found;
  for (std::sregex_iterator i(text.begin(), text.end(), include), end; i != end; ++i) {
    found.push_back((*i)[1]);
  }
  return found;
}

std::set<std::string> public_headers() {
  const std::vector<std::string> names =
      includes_of(text_of(fs::path(levin::test::source_dir()) / "levin/levin.h"));
  std::set<std::string> all(names.begin(), names.end());
  all.insert("levin/levin.h");
  return all;
}

/// "FILE includes HEADER", for each header that is not public.
std::vector<std::string> others_in(const fs::path& file) {
  static const std::set<std::string> known = public_headers();
  std::vector<std::string> others;
  for (const std::string& include : includes_of(text_of(file))) {
    if (known.contains(include)) continue;
    others.push_back(fs::relative(file, levin::test::source_dir()).string() + " includes " +
                     include);
  }
  return others;
}

std::vector<std::string> others_below(const char* folder, const std::string& extension) {
  std::vector<std::string> all;
  const fs::path root = fs::path(levin::test::source_dir()) / folder;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() != extension) continue;
    for (std::string& other : others_in(entry.path())) all.push_back(std::move(other));
  }
  return all;
}

TEST(PublicHeaders, AreFew) {
  EXPECT_GT(public_headers().size(), kMostHeaders / 2);
  EXPECT_LE(public_headers().size(), kMostHeaders + 1) << "with levin.h; merge some, or hide some";
}

TEST(PublicHeaders, IncludeNoOthers) {
  std::vector<std::string> others;
  for (const std::string& header : public_headers()) {
    EXPECT_FALSE(header.ends_with("_impl.h")) << header;
    for (std::string& other : others_in(fs::path(levin::test::source_dir()) / header)) {
      others.push_back(std::move(other));
    }
  }
  EXPECT_THAT(others, IsEmpty()) << "add them to levin/levin.h, or declare what is needed of them";
}

TEST(PublicHeaders, AreAllThatExamplesAndGuidesInclude) {
  EXPECT_THAT(others_below("examples", ".cpp"), IsEmpty());
  EXPECT_THAT(others_in(fs::path(levin::test::source_dir()) / "README.md"), IsEmpty());
  EXPECT_THAT(others_below("docs", ".md"), IsEmpty());
  EXPECT_THAT(others_below("tests/docs/frames", ".cpp"), IsEmpty());
  EXPECT_THAT(others_below("tests/package", ".cpp"), IsEmpty());
}

}  // namespace
}  // namespace public_headers
