#pragma once
// Files of rows and a tokenizer of letters, for tests.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "levin/rows/rows.h"
#include "tests/support/scratch.h"
#include "tests/text/small_tokenizer.h"

namespace levin::test {

/// A folder with a tokenizer whose words are letters, each with a number of its own: "?" 0, "a" 1 .. "z" 26;
/// then [PAD] 27, [EOS] 28, [MASK] 29, [CLS] 30, [SEP] 31, and what chats are written with: "<user>" 32,
/// "<bot>" 33, "<end>" 34. Letters that stand together are several tokens ("ab" is 1, 2). around: puts [CLS]
/// and [SEP] around texts.
inline std::filesystem::path letter_tokenizer(const std::filesystem::path& folder,
                                              bool around = false,
                                              const std::string& chat_template = "") {
  std::filesystem::create_directories(folder);
  std::string vocabulary = "\"?\": 0";
  for (int i = 1; i <= 26; ++i) {
    vocabulary += std::string(", \"") + static_cast<char>('a' + i - 1) + "\": " + std::to_string(i);
  }
  std::string added;
  int id = 27;
  for (const char* token :
       {"[PAD]", "[EOS]", "[MASK]", "[CLS]", "[SEP]", "<user>", "<bot>", "<end>"}) {
    added +=
        std::string(added.empty() ? "" : ", ") + R"({"id": )" + std::to_string(id) +
        R"(, "content": ")" + token +
        R"(", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})";
    vocabulary += std::string(", \"") + token + "\": " + std::to_string(id++);
  }
  SmallTokenizer parts;
  parts.model = R"({"type": "WordLevel", "unk_token": "?", "vocab": {)" + vocabulary + "}}";
  parts.pre_tokenizer = R"({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
      {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": false}]})";
  parts.added_tokens = "[" + added + "]";
  if (around) {
    parts.post_processor = R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
      "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
               {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
      "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [30], "tokens": ["[CLS]"]},
                         "[SEP]": {"id": "[SEP]", "ids": [31], "tokens": ["[SEP]"]}}})";
  }
  put(folder / "tokenizer.json", parts.json());
  put(folder / "tokenizer_config.json",
      R"({"pad_token": "[PAD]", "eos_token": "[EOS]", "mask_token": "[MASK]", "cls_token": "[CLS]",
          "sep_token": "[SEP]", "model_max_length": 12, "tokenizer_class": "TokenizersBackend"})");
  if (!chat_template.empty()) put(folder / "chat_template.jinja", chat_template);
  return folder;
}

/// <user> x <end> <bot> y <end>
inline constexpr const char* kChatTemplate =
    "{% for m in messages %}{% if m.role == 'assistant' %}<bot> {% generation %}{{ m.content }} "
    "<end>"
    "{% endgeneration %}{% else %}<user> {{ m.content }} <end>{% endif %} {% endfor %}"
    "{% if add_generation_prompt %}<bot> {% endif %}";

inline constexpr int64_t kNot = -100;  ///< a label that does not count

using Numbers = std::vector<int64_t>;
using Table = std::vector<Numbers>;

inline Table rows_of(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.reshape({-1, tensor.dim() > 1 ? tensor.size(-1) : 1}).contiguous();
  Table table;
  for (int64_t i = 0; i < flat.size(0); ++i) {
    const auto* first = flat.const_data_ptr<int64_t>() + i * flat.size(1);
    table.emplace_back(first, first + flat.size(1));
  }
  return table;
}

/// Files, their cache and tokenizers, in one folder.
class RowsFiles {
 public:
  text::Tokenizer tokenizer(bool around = false, const std::string& chat_template = kChatTemplate) {
    return text::Tokenizer::from_pretrained(
        letter_tokenizer(scratch / ("tokenizer" + std::to_string(++made_)), around, chat_template));
  }
  std::shared_ptr<text::Rows> rows(const std::string& text, const text::Tokenizer& tokenizer,
                                   text::RowsOptions options = {}) {
    return text::rows(put(scratch / "rows.jsonl", text), tokenizer, with_cache(std::move(options)));
  }
  text::RowsOptions with_cache(text::RowsOptions options) const {
    options.cache_dir = (scratch / "cache").string();
    options.num_threads = 2;
    return options;
  }
  /// All rows in the order of the file as one batch.
  static Batch all(text::Rows& rows) {
    Numbers indices(static_cast<size_t>(rows.train_dataset()->size()));
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i);
    return rows.train_dataset()->get(indices);
  }

  Scratch scratch;

 private:
  int made_ = 0;
};

}  // namespace levin::test
