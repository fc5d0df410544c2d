#pragma once
// Tokenizers of a few tokens, for tests.

#include <string>

#include "levin/text/tokenizer.h"

namespace levin::test {

/// A tokenizer.json of these parts, in JSON; what is empty is null.
struct SmallTokenizer {
  std::string model =
      R"({"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "c": 3}})";
  std::string pre_tokenizer = R"({"type": "WhitespaceSplit"})";
  std::string normalizer = "null";
  std::string post_processor = "null";
  std::string decoder = "null";
  std::string added_tokens = "[]";
  std::string truncation = "null";
  std::string padding = "null";

  std::string json() const {
    return R"({"version": "1.0", "truncation": )" + truncation + R"(, "padding": )" + padding +
           R"(, "added_tokens": )" + added_tokens + R"(, "normalizer": )" + normalizer +
           R"(, "pre_tokenizer": )" + pre_tokenizer + R"(, "post_processor": )" + post_processor +
           R"(, "decoder": )" + decoder + R"(, "model": )" + model + "}";
  }
  text::Tokenizer make() const { return text::Tokenizer::from_json(json()); }
};

/// BERT's way around two texts: 8 before, 9 behind each.
inline constexpr const char* kBertTemplate = R"({"type": "TemplateProcessing",
  "single": [{"SpecialToken": {"id": "<", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"SpecialToken": {"id": ">", "type_id": 0}}],
  "pair": [{"SpecialToken": {"id": "<", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
           {"SpecialToken": {"id": ">", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
           {"SpecialToken": {"id": ">", "type_id": 1}}],
  "special_tokens": {"<": {"id": "<", "ids": [8], "tokens": ["<"]},
                     ">": {"id": ">", "ids": [9], "tokens": [">"]}}})";

}  // namespace levin::test
