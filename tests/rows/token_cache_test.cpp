// The file of tokens: when it is used again, when it is made anew, and what it is when somebody damages it or dies.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <random>
#include <thread>

#include "levin/rows/cache/token_file.h"
#include "levin/rows/rows.h"
#include "tests/rows/small_rows.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/killed_at.h"
#include "tests/support/variable.h"

namespace levin::text {
namespace {

namespace fs = std::filesystem;
using row::TokenFile;
using test::rows_of;
using test::RowsFiles;
using test::Table;

constexpr const char* kRows = "{\"text\": \"ab\"}\n{\"text\": \"c\"}\n";

struct TokenCache : ::testing::Test {
  std::vector<fs::path> cached() {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(files.scratch / "cache")) {
      if (entry.path().extension() == ".safetensors") found.push_back(entry.path());
    }
    return found;
  }
  bool from_cache(const Tokenizer& tokenizer, RowsOptions options = {},
                  const std::string& text = kRows) {
    return files.rows(text, tokenizer, std::move(options))->report().from_cache;
  }
  RowsFiles files;
};

TEST_F(TokenCache, IsUsedAgainForWhatDoesNotChangeTokens) {
  const auto tokenizer = files.tokenizer();
  EXPECT_FALSE(from_cache(tokenizer));
  EXPECT_TRUE(from_cache(tokenizer));
  EXPECT_TRUE(from_cache(tokenizer, {.batch_size = 3,
                                     .train_sampling_strategy = "sequential",
                                     .pad_to_multiple_of = 4,
                                     .seed = 5,
                                     .num_workers = 0}));
  EXPECT_TRUE(from_cache(files.tokenizer()));  // read once more
  EXPECT_EQ(cached().size(), 1U);
  const auto rows = files.rows(kRows, tokenizer);
  EXPECT_EQ(rows->report().rows, 2);
  EXPECT_EQ(rows->report().tokens, 5);
  EXPECT_EQ(rows_of(files.all(*rows)["input_ids"]), (Table{{1, 2, 28}, {3, 28, 27}}));
}

TEST_F(TokenCache, BelongsToTextTokenizerAndWhatChangesTokens) {
  const auto tokenizer = files.tokenizer();
  EXPECT_FALSE(from_cache(tokenizer));
  EXPECT_FALSE(from_cache(tokenizer, {}, "{\"text\": \"ab\"}\n{\"text\": \"d\"}\n"));
  EXPECT_FALSE(from_cache(files.tokenizer(/*around=*/true)));
  EXPECT_FALSE(from_cache(tokenizer, {.max_length = 2}));
  EXPECT_FALSE(from_cache(tokenizer, {.max_length = 2, .truncation_mode = "keep_end"}));
  EXPECT_FALSE(from_cache(tokenizer, {.eos_token = ""}));
  EXPECT_FALSE(from_cache(tokenizer, {.packing = true}));
  EXPECT_FALSE(from_cache(tokenizer, {.packing = true, .packing_strategy = "bfd_split"}));
  EXPECT_FALSE(from_cache(tokenizer, {.task = "mlm"}));
  auto more = files.tokenizer();
  more.add_tokens(std::vector<AddedToken>{{.content = "ab"}});
  EXPECT_FALSE(from_cache(more));
  const std::string chat = R"({"messages": [{"role": "user", "content": "a"}]})";
  EXPECT_FALSE(from_cache(tokenizer, {}, chat));
  EXPECT_FALSE(from_cache(tokenizer, {.chat_template = "ab"}, chat));
  const std::string labelled = "{\"text\": \"a\", \"label\": 1}\n";
  EXPECT_FALSE(from_cache(tokenizer, {}, labelled));
  EXPECT_FALSE(from_cache(tokenizer, {.problem_type = "regression"}, labelled));
  EXPECT_EQ(cached().size(), 14U);
}

TEST_F(TokenCache, LiesWhereTheEnvironmentSays) {
  const auto tokenizer = files.tokenizer();
  const test::Variable own("LEVIN_ROWS_CACHE", (files.scratch / "own").string());
  const test::Variable user("XDG_CACHE_HOME", (files.scratch / "user").string());
  const fs::path file = test::put(files.scratch / "a.jsonl", kRows);
  rows(file, tokenizer)->report();
  EXPECT_EQ(test::names_in(files.scratch / "own").size(), 2U);  // and its lock
  {
    const test::Variable none("LEVIN_ROWS_CACHE", "");
    rows(file, tokenizer)->report();
    EXPECT_EQ(test::names_in(files.scratch / "user/levin/rows").size(), 2U);
    const test::Variable nobody("XDG_CACHE_HOME", "");
    const test::Variable nowhere("HOME", "");
    EXPECT_EQ(test::error_id([&] { rows(file, tokenizer)->report(); }), "text.rows.options");
  }
}

/// All that a reader may ask of a file.
void read_all(const TokenFile& file) {
  int64_t sum = 0;
  for (int64_t i = 0; i < file.num_samples(); ++i) {
    for (const int64_t sequence : file.sequences_of(i)) {
      for (const int32_t token : file.tokens(sequence)) sum += token;
      if (file.has_second()) {
        for (const int32_t each : file.second(sequence)) sum += each;
      }
      if (file.has_classes()) sum += file.class_of(file.about().is_packed ? sequence : i);
    }
    if (file.has_numbers()) sum += static_cast<int64_t>(file.numbers_of(i)[0]);
  }
  static_cast<void>(sum);
}

/// "" where the file can be read.
std::string refusal(const fs::path& path, const std::string& fingerprint) {
  try {
    read_all(TokenFile(path, fingerprint));
    return "";
  } catch (const TokenFile::Refusal& refusal) {
    return refusal.what();
  }
}

std::string fingerprint_in(const fs::path& path) {
  return files::SafetensorsFile(path).metadata().at("fingerprint");
}

TEST_F(TokenCache, AnyBitThatIsAnotherIsFoundAndTheFileMadeAnew) {
  const auto tokenizer = files.tokenizer(/*around=*/true);
  const std::string text =
      "{\"text\": \"a\", \"text_pair\": \"b\", \"label\": \"x\"}\n"
      "{\"text\": \"c\", \"text_pair\": \"de\", \"label\": \"y\"}\n";
  EXPECT_FALSE(from_cache(tokenizer, {.packing = true}, text));
  const fs::path path = cached().at(0);
  const std::string whole = test::get(path);
  const std::string fingerprint = fingerprint_in(path);
  ASSERT_EQ(refusal(path, fingerprint), "");
  EXPECT_EQ(refusal(path, "another"),
            "it was made from other rows, or with another tokenizer or other options");
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    test::put(path, damaged);
    ASSERT_NE(refusal(path, fingerprint), "") << "byte " << i << " of " << whole.size();
  }
  for (size_t size = 0; size < whole.size(); size += 7) {
    test::put(path, whole.substr(0, size));
    ASSERT_NE(refusal(path, fingerprint), "") << size;
  }
  EXPECT_FALSE(from_cache(tokenizer, {.packing = true}, text));
  EXPECT_EQ(test::get(path), whole);
}

/// A file that somebody has made: lists of any contents, with the right checksum.
struct Forged {
  std::vector<int32_t> tokens = {1, 2, 3, 4};
  std::vector<int32_t> second = {};
  std::vector<int64_t> offsets = {0, 2, 4};
  std::vector<int64_t> labels = {};
  std::vector<float> numbers = {};
  std::vector<int64_t> row_offsets = {};
  std::vector<int64_t> row_sequences = {};
  row::About about = {.parts = 1, .is_packed = false, .labels = {}, .report = {.longest = 4}};

  std::string refused(const fs::path& path) const {
    std::vector<files::TensorEntry> entries;
    const auto add = [&](const char* name, const char* dtype, const auto& list) {
      if (list.empty()) return;
      entries.push_back({name, dtype, {std::ssize(list)}, std::as_bytes(std::span(list))});
    };
    add("tokens", "I32", tokens);
    add("second", "I32", second);
    add("offsets", "I64", offsets);
    add("labels", "I64", labels);
    add("labels", "F32", numbers);
    add("row_offsets", "I64", row_offsets);
    add("row_sequences", "I64", row_sequences);
    files::TensorMetadata metadata = {
        {"levin.rows", row::kRowsVersion}, {"fingerprint", "f"}, {"about", row::about_text(about)}};
    metadata["xxh3"] = row::checksum_of(entries, metadata);
    files::write_safetensors(path, entries, metadata);
    return refusal(path, "f");
  }
};

TEST_F(TokenCache, NoPlaceOfAForgedFileLiesOutside) {
  const fs::path path = files.scratch / "forged.safetensors";
  const auto refused = [&](auto change) {
    Forged file;
    change(file);
    return file.refused(path);
  };
  EXPECT_EQ(Forged().refused(path), "");
  EXPECT_NE(refused([](Forged& f) { f.offsets = {0, 2, 5}; }), "");
  EXPECT_NE(refused([](Forged& f) { f.offsets = {0, 5, 4}; }), "");
  EXPECT_NE(refused([](Forged& f) { f.offsets = {-1, 2, 4}; }), "");
  EXPECT_NE(refused([](Forged& f) { f.offsets = {}; }), "");
  EXPECT_NE(refused([](Forged& f) { f.second = {1}; }), "");
  EXPECT_NE(refused([](Forged& f) { f.labels = {1}; }), "");
  EXPECT_NE(refused([](Forged& f) { f.numbers = {1, 2}; }), "");
  EXPECT_NE(refused([](Forged& f) { f.about.parts = 3; }), "");
  EXPECT_NE(refused([](Forged& f) { f.about.parts = 0; }), "");
  EXPECT_NE(refused([](Forged& f) { f.about.report.longest = 1; }), "");
  const auto packed = [&](std::vector<int64_t> offsets, std::vector<int64_t> sequences) {
    return refused([&](Forged& f) {
      f.about.is_packed = true;
      f.row_offsets = std::move(offsets);
      f.row_sequences = std::move(sequences);
    });
  };
  EXPECT_EQ(packed({0, 2}, {1, 0}), "");
  EXPECT_NE(packed({0, 2}, {1, 2}), "");
  EXPECT_NE(packed({0, 2}, {1, -1}), "");
  EXPECT_NE(packed({0, 3}, {1, 0}), "");
  EXPECT_NE(packed({0, 1}, {0}), "");
  EXPECT_NE(packed({}, {}), "");
}

TEST_F(TokenCache, RandomListsAreReadOrRefused) {
  const fs::path path = files.scratch / "forged.safetensors";
  // NOLINTNEXTLINE(bugprone-random-generator-seed): the same each time
  std::mt19937 random(5);
  const auto number = [&](int64_t below) { return static_cast<int64_t>(random() % below); };
  int64_t read = 0;
  for (int i = 0; i < 400; ++i) {
    Forged file;
    file.about.is_packed = number(2) == 1;
    file.about.parts = number(3);
    file.about.report.longest = number(6);
    file.about.labels.count = number(3);
    file.offsets = {0, number(5), 4};
    if (number(3) == 0) file.second.assign(static_cast<size_t>(number(5)), 1);
    if (number(3) == 0) file.labels.assign(static_cast<size_t>(number(4)), 1);
    if (number(4) == 0 && file.labels.empty())
      file.numbers.assign(static_cast<size_t>(number(5)), 1);
    file.row_offsets = {0, number(4), 2};
    file.row_sequences = {number(4) - 1, number(3)};
    read += file.refused(path).empty();
  }
  EXPECT_GT(read, 10);
  EXPECT_LT(read, 200);
}

TEST_F(TokenCache, AForeignFileInItsPlaceIsReplaced) {
  const auto tokenizer = files.tokenizer();
  EXPECT_FALSE(from_cache(tokenizer));
  const fs::path path = cached().at(0);
  test::put(path, "something else");
  EXPECT_FALSE(from_cache(tokenizer));
  EXPECT_TRUE(from_cache(tokenizer));
}

TEST_F(TokenCache, AnErrorLeavesNothingBehind) {
  const auto tokenizer = files.tokenizer();
  EXPECT_EQ(
      test::error_id([&] { from_cache(tokenizer, {}, "{\"text\": \"a\"}\n{\"text\": 1}\n"); }),
      "data.records.field");
  for (const std::string& name : test::names_in(files.scratch / "cache")) {
    EXPECT_TRUE(name.ends_with(".lock")) << name;
  }
}

TEST_F(TokenCache, IsWholeOrNotThereWhereverItsMakerIsKilled) {
  const auto tokenizer = files.tokenizer();
  const auto make = [&] {
    files.rows(kRows, tokenizer, {.packing = true, .max_length = 4})->report();
    return 0;
  };
  make();
  const std::string whole = test::get(cached().at(0));
  for (int64_t call = 1;; ++call) {
    fs::remove_all(files.scratch / "cache");
    const test::End end = test::killed_at(call, make, test::changes_the_disk);
    if (end == test::End::kCannotTrace) GTEST_SKIP() << "no processes can be traced here";
    ASSERT_NE(end, test::End::kFailed);
    make();
    EXPECT_EQ(test::get(cached().at(0)), whole) << call;
    for (const std::string& name : test::names_in(files.scratch / "cache")) {
      EXPECT_FALSE(name.starts_with(".tmp-")) << name;  // what the dead one left
    }
    if (end == test::End::kEnded) {
      EXPECT_GT(call, 5);
      break;
    }
  }
}

TEST_F(TokenCache, OneProcessMakesItAndTheOthersWait) {
  const auto tokenizer = files.tokenizer();
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "{\"text\": \"abcdefghijklmnopqrstuvwxyz\"}\n";
  test::put(files.scratch / "rows.jsonl", text);
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(test::start_child([&] {
      const auto made = rows(files.scratch / "rows.jsonl", tokenizer, files.with_cache({}));
      return made->report().from_cache ? 1 : 0;
    }));
  }
  int from_cache = 0;
  for (const pid_t child : children) from_cache += test::wait_for(child);
  EXPECT_EQ(from_cache, 2);
}

}  // namespace
}  // namespace levin::text
