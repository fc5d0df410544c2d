#include "levin/text/folder/special_tokens.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace levin::text {
namespace {

constexpr std::string_view kRoles[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

AddedToken special_of(const Component& component) {
  AddedToken token = read_added_token(component);
  token.special = true;
  return token;
}

bool has_fields(const Component& root, std::string_view key) {
  return root.has(key) && root.at(key).is_object() && !root.at(key).fields().empty();
}

std::vector<AddedToken> list_of(const Component& root, std::string_view key, bool all_special) {
  std::vector<AddedToken> tokens;
  if (!root.has(key) || root.at(key).is_object()) return tokens;
  for (const Component& item : root.at(key).items())
    tokens.push_back(all_special ? special_of(item) : read_added_token(item));
  return tokens;
}

}  // namespace

std::vector<std::string> ConfigFile::names(std::string_view object) const {
  // The tree that TokenizerFile makes sorts them.
  const auto parsed = nlohmann::ordered_json::parse(json_, nullptr, false);
  const auto& fields = object.empty() ? parsed : parsed.at(std::string(object));
  std::vector<std::string> names;
  for (const auto& [name, value] : fields.items()) names.push_back(name);
  return names;
}

AddedToken read_added_token(const Component& component) {
  if (component.is_text()) {
    return {.content = component.text(), .normalized = false, .special = true};
  }
  const bool special = component.flag("special", false);
  return {.content = component.at("content").text(),
          .single_word = component.flag("single_word", false),
          .lstrip = component.flag("lstrip", false),
          .rstrip = component.flag("rstrip", false),
          .normalized = component.flag("normalized", !special),
          .special = special};
}

SpecialTokens::SpecialTokens(const ConfigFile& config, const ConfigFile& map) {
  std::vector<AddedToken> extra;
  std::vector<AddedToken> additional;
  reading(config.path(), [&] {
    const Component root = config.root();
    read_roles(config);
    extra = list_of(root, "extra_special_tokens", false);
    additional = list_of(root, "additional_special_tokens", false);
    if (extra.empty() && !has_fields(root, "extra_special_tokens"))
      extra = std::exchange(additional, {});
    read_dict(config, "extra_special_tokens");
    read_dict(config, "model_specific_special_tokens");
  });
  if (!config.root().has("added_tokens_decoder") && map.exists()) {
    reading(map.path(), [&] {
      const Component root = map.root();
      read_roles(map);
      if (root.has("additional_special_tokens"))
        additional = list_of(root, "additional_special_tokens", true);
      for (AddedToken& token : list_of(root, "extra_special_tokens", true)) {
        if (std::ranges::find(extra, token) == extra.end()) extra.push_back(std::move(token));
      }
      read_dict(map, "extra_special_tokens");
    });
  }
  more_ = extra.empty() ? std::move(additional) : std::move(extra);
}

void SpecialTokens::add_default(std::string_view role, std::string_view token) {
  if (!mentioned_.emplace(role).second || token.empty()) return;
  put_role(role, {.content = std::string(token), .normalized = false, .special = true});
}

std::string SpecialTokens::role(std::string_view name) const {
  const auto found = std::ranges::find(roles_, name, &Named::first);
  return found == roles_.end() ? "" : found->second.content;
}

bool SpecialTokens::has_role(std::string_view content) const {
  return std::ranges::any_of(roles_,
                             [&](const Named& one) { return one.second.content == content; });
}

std::vector<AddedToken> SpecialTokens::all() const {
  std::vector<AddedToken> tokens;
  for (const Named& one : roles_) tokens.push_back(one.second);
  tokens.insert(tokens.end(), more_.begin(), more_.end());
  return tokens;
}

bool SpecialTokens::is_role(std::string_view name, const Component& value) {
  return name.ends_with("_token") &&
         (value.is_text() || (value.is_object() && value.has("content")));
}

void SpecialTokens::put_role(std::string_view role, AddedToken token) {
  const auto found = std::ranges::find(roles_, role, &Named::first);
  if (found != roles_.end()) {
    found->second = std::move(token);
  } else {
    roles_.emplace_back(role, std::move(token));
  }
}

/// The roles that every tokenizer may have, and those of one model.
void SpecialTokens::read_roles(const ConfigFile& file) {
  const Component root = file.root();
  if (!root.is_object()) return;
  for (const std::string_view role : kRoles) {
    if (!root.mentions(role)) continue;
    mentioned_.emplace(role);
    if (root.has(role)) put_role(role, special_of(root.at(role)));
  }
  for (const std::string& name : file.names()) {
    const bool is_common = std::ranges::find(kRoles, name) != std::end(kRoles);
    if (!is_common && is_role(name, root.at(name))) put_role(name, special_of(root.at(name)));
  }
}

void SpecialTokens::read_dict(const ConfigFile& file, std::string_view key) {
  if (!has_fields(file.root(), key)) return;
  const Component dict = file.root().at(key);
  for (const std::string& name : file.names(key)) put_role(name, special_of(dict.at(name)));
}

}  // namespace levin::text
