#pragma once
// TokenizerClass: the class of transformers that AutoTokenizer makes for a folder.
// TokenizersBackend takes tokenizer.json unchanged. Most others take only its vocabulary, merges,
// added tokens and post-processor, and make everything else from tokenizer_config.json. Stands
// between a folder's files and the Tokenizer. Not for users.
//
//   const TokenizerClass kind(config, model, file.root());
//   kind.rebuild(file, config, role);      // file: now as that class would make it

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "levin/text/post_processors/post_processor.h"
#include "levin/text/reading/tokenizer_file.h"

namespace levin::text {

class TokenizerClass {
 public:
  /// A special token of a class, which it has where no file names another; without a token it has none.
  struct Role {
    std::string_view name;
    std::string_view token;
  };
  using TokenOf = std::function<std::string(std::string_view role)>;
  using IdOf = std::function<std::optional<int32_t>(std::string_view role)>;

  /// `config` is tokenizer_config.json, `model` the folder's config.json; null if there is none.
  TokenizerClass(const Component& config, const Component& model, const Component& file);

  /// Returns the class, or "" if tokenizer.json is taken unchanged.
  const std::string& name() const { return name_; }
  /// Returns the class's name if transformers makes parts of its own that levin does not know; else
  /// "".
  const std::string& unknown() const { return unknown_; }
  std::span<const Role> roles() const;
  bool pads_left() const;

  /// Puts the normalizer, pre-tokenizer, decoder and the model's options of the class into the file. Throws Error
  /// "text.component" where the file's model is of another kind.
  void rebuild(TokenizerFile& file, const Component& config, const TokenOf& token_of) const;
  /// The post-processor of a class that has its own; null for others.
  PostProcessorPtr post_processor(const Component& config, const TokenOf& token_of,
                                  const IdOf& id_of) const;

 private:
  std::string name_;
  std::string unknown_;
};

}  // namespace levin::text
