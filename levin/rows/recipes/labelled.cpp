// Texts with a label, words with tags, and texts that mean the same, for encoders.
#include <nlohmann/json.hpp>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/rows/recipes/encoder.h"
#include "levin/rows/recipes/recipe.h"

namespace levin::text::row {
namespace {

using Kind = data::Record::Kind;
using nlohmann::json;

Label label_of(const data::Record& record, const std::string& column) {
  switch (record.kind(column)) {
    case Kind::kText:
      return record.text(column);
    case Kind::kFlag:
      return static_cast<int64_t>(record.json(column) == "true");
    case Kind::kNumber:
      return record.number(column);
    case Kind::kList:
      return record.numbers(column);
    default:
      return record.integer(column);
  }
}

class ClassifyRecipe final : public Recipe {
 public:
  ClassifyRecipe(const Plan& plan, const Tokenizer& tokenizer) : encoder_(plan, tokenizer) {}

  Made make(const data::Record& record) const override {
    const Columns& columns = encoder_.plan().columns;
    EncodeInput input{record.text(columns["text"]), std::nullopt};
    const bool is_pair = columns.has("text_pair");
    if (is_pair) input.second = record.text(columns["text_pair"]);
    Made made;
    Encoding encoding = encoder_.cut(input, false, made.truncated);
    made.label = label_of(record, columns["label"]);
    if (encoding.ids.empty()) return made;
    Sequence& sequence = made.sequences.emplace_back();
    sequence.tokens = std::move(encoding.ids);
    if (is_pair) sequence.second = std::move(encoding.type_ids);
    return made;
  }

 private:
  Encoder encoder_;
};

class TagRecipe final : public Recipe {
 public:
  TagRecipe(const Plan& plan, const Tokenizer& tokenizer) : encoder_(plan, tokenizer) {}

  Made make(const data::Record& record) const override {
    const Columns& columns = encoder_.plan().columns;
    const std::vector<std::string> words = record.texts(columns["tokens"]);
    Made made;
    made.tags = tags_of(record, columns["tags"]);
    LEVIN_CHECK(words.size() == made.tags.size(), "text.rows.row",
                "{}: got {} '{}' and {} '{}', wanted the same number", record.where(), words.size(),
                columns["tokens"], made.tags.size(), columns["tags"]);
    Encoding encoding =
        encoder_.cut({std::span<const std::string>(words), std::nullopt}, true, made.truncated);
    Sequence sequence{.tokens = std::move(encoding.ids), .second = {}};
    int32_t before = -1;
    bool has_any = false;
    for (const int32_t word : encoding.word_ids) {
      sequence.second.push_back(word == before ? -1 : word);
      has_any = has_any || word >= 0;
      before = word;
    }
    if (has_any) made.sequences.push_back(std::move(sequence));
    return made;
  }

 private:
  static std::vector<Label> tags_of(const data::Record& record, const std::string& column) {
    const json list = record.has(column) ? json::parse(record.json(column)) : json();
    LEVIN_CHECK(list.is_array(), "text.rows.row", "{}: '{}' is {}, wanted a list of tags",
                record.where(), printable(column), printable(list.dump().substr(0, 60)));
    std::vector<Label> tags;
    for (const json& tag : list) {
      LEVIN_CHECK(tag.is_string() || tag.is_number_integer(), "text.rows.row",
                  "{}: a tag is {}, wanted a string or an integer", record.where(),
                  printable(tag.dump().substr(0, 60)));
      if (tag.is_string()) {
        tags.emplace_back(tag.get<std::string>());
      } else {
        tags.emplace_back(tag.get<int64_t>());
      }
    }
    return tags;
  }

  Encoder encoder_;
};

class EmbedRecipe final : public Recipe {
 public:
  EmbedRecipe(const Plan& plan, const data::Record& first, const Tokenizer& tokenizer)
      : encoder_(plan, tokenizer), parts_(std::ssize(texts_of(first))) {}

  int64_t parts() const override { return parts_; }

  Made make(const data::Record& record) const override {
    const std::vector<std::string> texts = texts_of(record);
    LEVIN_CHECK(std::ssize(texts) == parts_, "text.rows.row",
                "{}: got {} negatives, wanted {} as in the first row", record.where(),
                std::ssize(texts) - 2, parts_ - 2);
    Made made;
    for (const std::string& text : texts) {
      Encoding encoding = encoder_.cut({text, std::nullopt}, false, made.truncated);
      LEVIN_CHECK(!encoding.ids.empty(), "text.rows.row", "{}: a text has no tokens",
                  record.where());
      made.sequences.push_back({.tokens = std::move(encoding.ids), .second = {}});
    }
    const Columns& columns = encoder_.plan().columns;
    if (columns.has("score")) made.label = record.number(columns["score"]);
    return made;
  }

 private:
  std::vector<std::string> texts_of(const data::Record& record) const {
    const Plan& plan = encoder_.plan();
    std::vector<std::string> texts = {record.text(plan.columns["anchor"]),
                                      record.text(plan.columns["positive"])};
    for (const std::string& column : plan.negatives) {
      if (record.kind(column) == Kind::kList) {
        for (std::string& text : record.texts(column)) texts.push_back(std::move(text));
      } else {
        texts.push_back(record.text(column));
      }
    }
    return texts;
  }

  Encoder encoder_;
  int64_t parts_;
};

}  // namespace

std::unique_ptr<Recipe> make_classify_recipe(const Plan& plan, const Tokenizer& tokenizer) {
  return std::make_unique<ClassifyRecipe>(plan, tokenizer);
}

std::unique_ptr<Recipe> make_tag_recipe(const Plan& plan, const Tokenizer& tokenizer) {
  return std::make_unique<TagRecipe>(plan, tokenizer);
}

std::unique_ptr<Recipe> make_embed_recipe(const Plan& plan, const data::Record& first,
                                          const Tokenizer& tokenizer) {
  return std::make_unique<EmbedRecipe>(plan, first, tokenizer);
}

}  // namespace levin::text::row
