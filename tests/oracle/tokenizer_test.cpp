// Tokenizers against Python's, on many texts: for each kind of part every 1009th code point alone and between letters,
// and random texts, pairs and lists of words (tokenizer_cases.py; LEVIN_TOKENIZER_CASES="--each 1 --random 100000"
// for more, "--scripts 20 --stride" for 20 MB of text in eight scripts, whole and cut). The same for folders that
// classes of transformers have saved (tokenizer_families.py), and for real files where they are: ../shared/tokenizers, or
// the folder that LEVIN_TOKENIZERS names.
#include "levin/text/tokenizer.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>

#include "levin/base/error.h"
#include "levin/base/options.h"
#include "tests/oracle/python.h"

namespace levin::text {
namespace {

namespace fs = std::filesystem;

class TokenizerCases : public test::PythonTest {
 protected:
  std::string options() const {
    const char* given = std::getenv("LEVIN_TOKENIZER_CASES");
    return given != nullptr ? given : "--each 1009 --random 200";
  }
  void compare(const std::string& files) {
    compare_what("tokenizer_cases.py", options() + " " + files);
  }
  void compare_what(const std::string& script, const std::string& arguments) {
    std::string output;
    const fs::path folder = file("cases");
    fs::create_directories(folder);
    ASSERT_EQ(run(script, "'" + folder.string() + "' " + arguments, &output), 0) << output;
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".cases") continue;
      compare_file(test::bytes_of(entry.path()));
      ++count;
    }
    EXPECT_GT(count, 0U);
  }

 private:
  struct Reader {
    const std::string& bytes;
    size_t at = 0;
    uint32_t number() {
      uint32_t value = 0;
      std::memcpy(&value, bytes.data() + at, 4);
      at += 4;
      return value;
    }
    std::string text() {
      const uint32_t size = number();
      at += size;
      return bytes.substr(at - size, size);
    }
  };

  template <class Value>
  static uint32_t add(uint32_t sum, const std::vector<Value>& list) {
    const auto* const bytes = reinterpret_cast<const Bytef*>(list.data());
    return static_cast<uint32_t>(crc32(sum, bytes, static_cast<uInt>(list.size() * sizeof(Value))));
  }
  static uint32_t sum_of(const Encoding& encoding, bool sequences = true) {
    uint32_t sum = add(0, encoding.ids);
    for (const auto* list :
         {&encoding.type_ids, &encoding.attention_mask, &encoding.special_tokens_mask}) {
      sum = add(sum, *list);
    }
    sum = add(sum, encoding.offsets);
    sum = add(sum, encoding.word_ids);
    return sequences ? add(sum, encoding.sequence_ids) : sum;
  }

  static std::string shown(const Encoding& encoding) {
    std::string text;
    for (size_t i = 0; i < encoding.ids.size() && i < 60; ++i) {
      text += std::to_string(encoding.ids[i]) + " [" + std::to_string(encoding.offsets[i].begin) +
              "," + std::to_string(encoding.offsets[i].end) + ") of word " +
              std::to_string(encoding.word_ids[i]) + "; ";
    }
    return text;
  }

  static void compare_file(const std::string& bytes) {
    Reader reader{bytes};
    const std::string name = reader.text();
    const std::string json = reader.text();
    const Tokenizer tokenizer =
        json.empty() ? Tokenizer::from_pretrained(name) : Tokenizer::from_json(json);
    const uint32_t count = reader.number();
    int wrong = 0;
    for (uint32_t i = 0; i < count && wrong < 5; ++i) {
      const uint32_t kind = reader.number();
      std::vector<std::string> texts(reader.number());
      for (std::string& text : texts) text = reader.text();
      const uint32_t ids = reader.number();
      const uint32_t everything = reader.number();
      const std::string decoded = reader.text();
      EncodeInput input{kind == 2 ? EncodeInput::Part(std::span<const std::string>(texts))
                                  : EncodeInput::Part(std::string_view(texts[0])),
                        std::nullopt};
      if (kind == 1) input.second = std::string_view(texts[1]);
      const Encoding encoding = tokenizer.encode(input, {.offsets = OffsetUnit::kCodePoints});
      const Encoding alone = tokenizer.encode(input, {.offsets = OffsetUnit::kNone});
      uint32_t ids_here = add(0, encoding.ids);
      uint32_t alone_here = add(0, alone.ids);
      uint32_t everything_here = sum_of(encoding);
      for (const Encoding& more : encoding.overflowing) {
        ids_here = add(ids_here, more.ids);
        everything_here ^= sum_of(more, false);
      }
      for (const Encoding& more : alone.overflowing) alone_here = add(alone_here, more.ids);
      const bool same = ids_here == ids && alone_here == ids && everything_here == everything &&
                        tokenizer.decode(encoding.ids) == decoded;
      EXPECT_TRUE(same) << name << ", case " << i << " on '"
                        << printable(texts.empty() ? "" : texts[0]) << "'; ids "
                        << (ids_here == ids) << ", ids alone " << (alone_here == ids)
                        << ", everything " << (everything_here == everything) << "\n"
                        << shown(encoding) << "\ndecoded " << tokenizer.decode(encoding.ids)
                        << "\nwanted  " << decoded;
      wrong += !same;
    }
    EXPECT_GT(count, 100U) << name;
    std::cout << name << ": " << count << " cases\n";
  }
};

TEST_F(TokenizerCases, OfEachKindOfPartAreWhatPythonsGive) { compare(""); }

TEST_F(TokenizerCases, OfFoldersOfTransformersAreWhatItsClassesGive) {
  const bool is_given = std::getenv("LEVIN_TOKENIZER_CASES") != nullptr;
  compare_what("tokenizer_families.py", is_given ? options() : "");
}

TEST_F(TokenizerCases, OfRealFilesAreWhatPythonsGive) {
  const char* given = std::getenv("LEVIN_TOKENIZERS");
  const fs::path folder = given != nullptr ? given : test::source_dir() + "/../shared/tokenizers";
  if (!fs::exists(folder))
    GTEST_SKIP() << "no " << folder << "; LEVIN_TOKENIZERS names a folder of tokenizer.json files";
  std::string files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") files += "'" + entry.path().string() + "' ";
  }
  ASSERT_FALSE(files.empty());
  compare("--files " + files);
}

}  // namespace
}  // namespace levin::text
