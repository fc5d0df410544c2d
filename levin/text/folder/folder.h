#pragma once
// Folder: a tokenizer's folder as transformers' AutoTokenizer reads it, but for tokenizer.json itself. Not for users.
//
//   Folder rest("minilm");
//   rest.prepare(file, parts);     // tokenizer.json as the folder's class has it
//   parts.read(file);
//   rest.finish(parts, {});

#include <map>
#include <optional>
#include <string>

#include "levin/text/folder/config_file.h"
#include "levin/text/folder/special_tokens.h"
#include "levin/text/reading/tokenizer_class.h"
#include "levin/text/tokenizer_parts.h"

namespace levin::text {

class Folder {
 public:
  explicit Folder(const std::filesystem::path& folder);

  /// Puts the parts of the folder's class into the file, and settings into `parts`. Throws Error "text.file" and
  /// "text.component" for what the files must not hold; one warning for each file names the keys that levin does not
  /// know.
  void prepare(TokenizerFile& file, TokenizerParts& parts);
  /// Adds the tokens that tokenizer.json does not have, and what stands around a text.
  void finish(TokenizerParts& parts, const PretrainedOptions& options) const;

 private:
  void find_tokens(const Component& file);
  void read_settings(const Component& file, TokenizerParts& parts);
  void add_tokens(TokenizerParts& parts) const;
  void put_ends(TokenizerParts& parts, const PretrainedOptions& options) const;

  ConfigFile config_;
  ConfigFile map_;         // special_tokens_map.json
  ConfigFile old_tokens_;  // added_tokens.json
  ConfigFile model_;       // config.json
  SpecialTokens special_;
  std::optional<TokenizerClass> class_;
  std::map<int64_t, AddedToken> by_id_;
};

/// Reads the field "direction": left or right.
std::string direction_of(const Component& component);

}  // namespace levin::text
