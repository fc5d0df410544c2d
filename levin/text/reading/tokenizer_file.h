#pragma once
// TokenizerFile: tokenizer.json in memory. The vocabulary and the merges, which are nearly all of it, are
// read past the tree of values into plain arrays. Not for users.
//
//   const TokenizerFile file(read_file("tokenizer.json"));
//   file.root().at("pre_tokenizer").kind();

#include <memory>
#include <string>
#include <string_view>

#include "levin/base/export.h"
#include "levin/text/reading/component.h"
#include "levin/text/reading/model_data.h"

namespace levin::text {

class LEVIN_API TokenizerFile {
 public:
  /// kPlain: the fast way where the file is as programs write it, else the parser, which knows what is wrong with it.
  enum class Way { kPlain, kParser };

  /// A view: the text has to outlive it. Throws Error "text.file" with the place where the text is no JSON, or nests
  /// too deep.
  explicit TokenizerFile(std::string_view json, Way way = Way::kPlain);
  explicit TokenizerFile(std::string&&) = delete;
  ~TokenizerFile();

  /// Returns the tree without the model's vocabulary and merges, whose values are null here.
  Component root() const;
  const ModelData& model() const { return model_; }

  /// Replaces a part by one of levin's own. A Component that at() returned for it before is
  /// invalid.
  void put(std::string_view key, std::string_view json);
  /// The same for all that the model has beside its vocabulary and merges.
  void put_model_options(std::string_view json);

 private:
  class Reader;
  struct Tree;

  std::unique_ptr<Tree> tree_;
  TextMemory memory_;
  ModelData model_;
};

}  // namespace levin::text
