#pragma once
// SpecialTokens: what a folder's files beside tokenizer.json say about special tokens. Not for users.
//
//   const SpecialTokens special(config, map);
//   special.role("eos_token");       // "</s>"

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/text/folder/config_file.h"
#include "levin/text/tokenizer.h"

namespace levin::text {

AddedToken read_added_token(const Component& component);

/// The special tokens: some have a role, by its name.
class SpecialTokens {
 public:
  using Named = std::pair<std::string, AddedToken>;

  /// The fields of tokenizer_config.json and special_tokens_map.json as transformers puts them together: the second
  /// counts where the first has no added_tokens_decoder.
  SpecialTokens(const ConfigFile& config, const ConfigFile& map);

  /// Sets the role's token from a class if no file mentions the role. Without a token the role
  /// stays empty from then on.
  void add_default(std::string_view role, std::string_view token);

  /// The token of a role; "" where it has none.
  std::string role(std::string_view name) const;
  bool has_role(std::string_view content) const;
  const std::vector<Named>& roles() const { return roles_; }
  /// Returns all tokens, the ones with roles first.
  std::vector<AddedToken> all() const;

  /// Returns whether a field gives a role to a token of a model: image_token.
  static bool is_role(std::string_view name, const Component& value);

 private:
  void put_role(std::string_view role, AddedToken token);
  void read_roles(const ConfigFile& file);
  void read_dict(const ConfigFile& file, std::string_view key);

  std::set<std::string, std::less<>> mentioned_;
  std::vector<Named> roles_;
  std::vector<AddedToken> more_;
};

}  // namespace levin::text
