// levin help: a feature is found by the word that somebody knows it by, in docs/glossary.md and in the guides.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/places.h"
#include "tools/command.h"
#include "tools/glossary/glossary.h"
#include "tools/subcommands.h"

namespace {

namespace fs = std::filesystem;
using levin::test::source_dir;
using levin::tools::find_rows;
using levin::tools::FoundRows;
using levin::tools::GlossaryRow;
using levin::tools::parse_glossary;
using levin::tools::suggestions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

using Words = std::vector<std::string>;

struct Answer {
  int code = 0;
  std::string out;
  std::string errors;
};

Answer ask(Words words) {
  words.insert(words.begin(), "help");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Answer answer;
  answer.code = levin::tools::help(static_cast<int>(words.size()), arguments.data());
  answer.out = ::testing::internal::GetCapturedStdout();
  answer.errors = ::testing::internal::GetCapturedStderr();
  return answer;
}

std::string read(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

Words split(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

const std::vector<GlossaryRow>& rows() {
  static const std::vector<GlossaryRow> all = parse_glossary(levin::tools::glossary_text());
  return all;
}

constexpr const char* kPage = R"(# A page

| what | is | no | glossary |
|---|---|---|---|
| a | b | c | d |

| levin | PyTorch | others | what | flag | page |
|---|---|---|---|---|---|
| `Red thing` | AutoBlue, `no_green` | yellow\|amber | It **shines** in the dark. | `--white-light 3` | [Black page](black.md) |
| second | | | Red is elsewhere. | `--no`, `green` | [README](../README.md#features) |
)";

TEST(Glossary, ATablesRowsAreCellsWithoutMarkdown) {
  const auto page = parse_glossary(kPage);
  ASSERT_EQ(page.size(), 2U);
  EXPECT_EQ(page[0].term, "Red thing");
  EXPECT_EQ(page[0].pytorch, "AutoBlue, no_green");
  EXPECT_EQ(page[0].others, "yellow|amber");
  EXPECT_EQ(page[0].sentence, "It shines in the dark.");
  EXPECT_EQ(page[0].use, "--white-light 3");
  EXPECT_EQ(page[0].page, "docs/black.md");
  EXPECT_EQ(page[1].pytorch, "");
  EXPECT_EQ(page[1].page, "README.md#features");
}

TEST(Glossary, ARowIsFoundByAWordOfEachColumn) {
  const auto page = parse_glossary(kPage);
  for (const char* word :
       {"thing", "autob", "AMBER", "shin", "--white-light", "white-li", "black"}) {
    const FoundRows found = find_rows(page, {word});
    EXPECT_THAT(found.rows, ElementsAre(&page[0])) << word;
  }
  EXPECT_THAT(find_rows(page, {"ark"}).rows, IsEmpty()) << "a word's beginning, not its end";
}

TEST(Glossary, ARowHasToHaveAllWords) {
  const auto page = parse_glossary(kPage);
  EXPECT_THAT(find_rows(page, {"red", "amber"}).rows, ElementsAre(&page[0]));
  EXPECT_THAT(find_rows(page, {"how", "to", "do", "amber"}).rows, ElementsAre(&page[0]));
  EXPECT_THAT(find_rows(page, {"amber", "elsewhere"}).rows, IsEmpty());
  EXPECT_THAT(find_rows(page, {"--"}).rows, IsEmpty());
}

TEST(Glossary, PartsOfOneWordStandTogether) {
  const auto page = parse_glossary(kPage);
  EXPECT_THAT(find_rows(page, {"no_green"}).rows, ElementsAre(&page[0], &page[1]));
  EXPECT_THAT(find_rows(page, {"no_gr"}).rows, ElementsAre(&page[0], &page[1]));
  EXPECT_THAT(find_rows(page, {"blue_green"}).rows, IsEmpty());
  EXPECT_THAT(find_rows(page, {"ambers"}).rows, ElementsAre(&page[0])) << "a plural";
}

TEST(Glossary, ARowOfThatNameComesBeforeOneThatMentionsIt) {
  const auto page = parse_glossary(kPage);
  const FoundRows found = find_rows(page, {"red"});
  EXPECT_THAT(found.rows, ElementsAre(&page[0], &page[1]));
  EXPECT_EQ(found.num_named, 1U);
}

TEST(Glossary, AMisspeltWordBecomesTheNearestThatARowHas) {
  const auto page = parse_glossary(kPage);
  EXPECT_THAT(suggestions(page, {"yelow"}), ElementsAre("yellow"));
  EXPECT_THAT(suggestions(page, {"red", "yelow"}), ElementsAre("red yellow"));
  EXPECT_THAT(suggestions(page, {"amber", "elsewhere"}), ElementsAre("amber", "elsewhere"));
  EXPECT_THAT(suggestions(page, {"xqzxqzxqz"}), IsEmpty());
}

TEST(Glossary, IsThatOfTheDocsAndKnowsManyWords) {
  EXPECT_EQ(levin::tools::glossary_text(), read(fs::path(source_dir()) / "docs/glossary.md"));
  EXPECT_GE(rows().size(), 70U);
  std::set<std::string> terms;
  for (const GlossaryRow& row : rows()) {
    EXPECT_TRUE(terms.insert(row.term).second) << row.term << " has two rows";
    EXPECT_FALSE(row.sentence.empty()) << row.term;
    const std::string page = row.page.substr(0, row.page.find('#'));
    EXPECT_TRUE(fs::is_regular_file(fs::path(source_dir()) / page)) << row.term << ": " << page;
  }
}

TEST(Help, PrintsTermSentenceFlagAndPage) {
  const Answer answer = ask({"zero", "stage", "3"});
  EXPECT_EQ(answer.code, 0);
  EXPECT_THAT(answer.out, StartsWith("ZeRO stage 1"));
  EXPECT_THAT(answer.out, HasSubstr("\n    is      "));
  EXPECT_THAT(answer.out, HasSubstr("\n    use     --strategy zero --zero-stage 3\n"));
  EXPECT_THAT(answer.out, HasSubstr("\n    page    docs/fsdp.md\n"));
  for (size_t begin = 0; begin < answer.out.size();) {
    const size_t end = answer.out.find('\n', begin);
    EXPECT_LE(end - begin, 96U) << answer.out.substr(begin, end - begin);
    begin = end + 1;
  }
}

TEST(Help, ListsRowsThatMentionAWordBehindThoseOfThatName) {
  const Answer answer = ask({"checkpoint"});
  EXPECT_THAT(answer.out, HasSubstr("\nalso mentioned by:\n    "));
}

TEST(Help, SaysWhatASubcommandOfThatNameIs) {
  const Answer answer = ask({"plan"});
  EXPECT_THAT(answer.out, StartsWith("levin plan: "));
  EXPECT_THAT(answer.out, HasSubstr("levin plan --help lists its options"));
}

TEST(Help, AnUnknownWordFailsAndSaysWhatToTry) {
  const Answer answer = ask({"gradient", "acumulation"});
  EXPECT_EQ(answer.code, 1);
  EXPECT_THAT(answer.out, IsEmpty());
  EXPECT_EQ(answer.errors,
            "levin help: no row of the glossary has 'gradient acumulation'\n"
            "  try: levin help gradient accumulation\n");
  const Answer nothing = ask({"xqzxqzxqz\x1b[2J"});
  EXPECT_EQ(nothing.code, 1);
  EXPECT_THAT(nothing.errors, HasSubstr("try: another word for it, or docs/glossary.md"));
  EXPECT_THAT(nothing.errors, Not(HasSubstr("\x1b")));
}

TEST(Help, WithoutAWordSaysHowToUseItAndListsTheSubcommands) {
  for (const Words& words : {Words{}, Words{"--help"}, Words{"-h"}}) {
    const Answer answer = ask(words);
    EXPECT_EQ(answer.code, 0);
    EXPECT_THAT(answer.out, StartsWith("usage: levin help WORD..."));
    for (const auto& subcommand : levin::tools::subcommands()) {
      EXPECT_THAT(answer.out, HasSubstr("\n  " + std::string(subcommand.name) + " "));
    }
  }
}

struct Search {
  const char* words;
  const char* page;  ///< where it is explained
};

/// Words that somebody types who comes from Lightning, Accelerate, DeepSpeed or JAX.
constexpr std::array kSearches = {
    Search{"kv cache", "docs/generate.md"},
    Search{"zero stage 3", "docs/fsdp.md"},
    Search{"gradient checkpointing", "docs/precision.md"},
    Search{"amp", "docs/precision.md"},
    Search{"lr finder", "docs/training.md"},
    Search{"export onnx", "docs/python.md"},
    Search{"deferred init", "docs/training.md"},
    Search{"dtensor reshard", "docs/sharded_tensors.md"},
    Search{"tpu pod", "docs/kubernetes.md"},
    Search{"checkpoint resume other world size", "docs/checkpoints.md"},
    Search{"early stopping", "docs/training.md"},
    Search{"mixed precision", "docs/precision.md"},
    Search{"streaming", "docs/generate.md"},
    Search{"lora", "docs/models.md"},
    Search{"elastic", "docs/distributed.md"},
    Search{"gradient accumulation", "docs/training.md"},
    Search{"no_sync", "docs/accelerate.md"},
    Search{"torch.compile", "docs/compile.md"},
    Search{"safetensors", "docs/checkpoints.md"},
    Search{"offload", "docs/offload.md"},
};

/// A guide's paragraphs, and the rows of its tables, in lower case.
std::vector<std::string> paragraphs_of(const std::string& text) {
  std::vector<std::string> paragraphs(1);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.starts_with('|')) paragraphs.emplace_back();
    paragraphs.back() += lower(line) + "\n";
  }
  return paragraphs;
}

/// What a grep over README and the guides finds: paragraphs with all words, in that page or with a link to
/// it. The glossary is left out: it is the other way to find things.
bool grep_finds(const Search& search) {
  std::vector<fs::path> guides = {fs::path(source_dir()) / "README.md"};
  for (const auto& entry : fs::directory_iterator(fs::path(source_dir()) / "docs")) {
    if (entry.path().extension() == ".md" && entry.path().filename() != "glossary.md") {
      guides.push_back(entry.path());
    }
  }
  const Words words = split(search.words);
  const std::string name = fs::path(search.page).filename().string();
  return std::ranges::any_of(guides, [&](const fs::path& guide) {
    return std::ranges::any_of(paragraphs_of(read(guide)), [&](const std::string& paragraph) {
      const bool has_all = std::ranges::all_of(words, [&](const std::string& word) {
        return paragraph.find(word) != std::string::npos;
      });
      return has_all && (guide.filename() == name || paragraph.find(name) != std::string::npos);
    });
  });
}

TEST(Help, TwentySearchesFindTheirPage) {
  for (const Search& search : kSearches) {
    const Answer answer = ask(split(search.words));
    EXPECT_EQ(answer.code, 0) << search.words;
    EXPECT_THAT(answer.out, HasSubstr(std::string("    page    ") + search.page)) << search.words;
    EXPECT_TRUE(grep_finds(search)) << search.words << ": no paragraph leads to " << search.page;
  }
}

}  // namespace
