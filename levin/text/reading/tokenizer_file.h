#pragma once
// TokenizerFile: tokenizer.json in memory. The vocabulary and the merges, which are nearly all of it, are
// read past the tree of values into plain arrays. Not for users.
//
//   const TokenizerFile file(read_file("tokenizer.json"));
//   file.root().at("pre_tokenizer").kind();

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/text/reading/component.h"

namespace levin::text {

/// What the model's "vocab" and "merges" hold, in the file's order.
struct ModelData {
  struct Entry {
    std::string_view token;
    int64_t id = 0;      // where the vocabulary is an object; else the place in the list
    double score = 0.0;  // where it is a list
  };
  std::vector<Entry> vocabulary;
  bool has_vocabulary = false;
  bool is_list = false;  // of tokens with scores
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  bool has_merges = false;
};

class TokenizerFile {
 public:
  /// Throws Error "text.file" with the place where the text is no JSON, or nests too deep.
  explicit TokenizerFile(std::string_view json);
  ~TokenizerFile();

  /// Without the model's vocabulary and merges, whose values are null here.
  Component root() const;
  const ModelData& model() const { return model_; }

 private:
  class Reader;
  struct Tree;
  std::unique_ptr<Tree> tree_;
  std::string arena_;  // the tokens
  ModelData model_;
};

}  // namespace levin::text
