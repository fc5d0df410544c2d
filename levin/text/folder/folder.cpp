#include "levin/text/folder/folder.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "levin/base/log.h"
#include "levin/files/checksum.h"
#include "levin/text/reading/known_fields.h"

namespace levin::text {
namespace {

/// A text, or a list of named ones.
void read_template(const Component& component, TokenizerParts& parts) {
  if (component.is_text()) {
    parts.chat_template = component.text();
    return;
  }
  for (const Component& item : component.items()) {
    const std::string name = item.at("name").text();
    parts.chat_templates[name] = item.at("template").text();
    if (name == "default") parts.chat_template = parts.chat_templates[name];
  }
}

}  // namespace

std::string direction_of(const Component& component) {
  const std::string direction = component.text("direction", "Right");
  if (direction == "Right") return "right";
  if (direction == "Left") return "left";
  component.at("direction").fail("is not one of Left, Right");
}

Folder::Folder(const std::filesystem::path& folder)
    : config_(folder / "tokenizer_config.json"),
      map_(folder / "special_tokens_map.json"),
      old_tokens_(folder / "added_tokens.json"),
      model_(folder / "config.json"),
      special_(config_, map_) {}

void Folder::prepare(TokenizerFile& file, TokenizerParts& parts) {
  const Component config = config_.root();
  reading(config_.path(), [&] {
    check_config_keys(config_.root(), config_.path().string());
    if (!config.has("added_tokens_decoder")) check_map_keys(map_.root(), map_.path().string());
    class_.emplace(config, model_.root(), file.root());
    if (!class_->unknown().empty()) {
      log::warn(
          "{}: levin uses tokenizer.json as it is, but {} of transformers builds its own "
          "normalizer, pre-tokenizer and decoder; compare the tokens of some texts",
          config_.path().string(), class_->unknown());
    }
    if (config.has("auto_map") && config.at("auto_map").has("AutoTokenizer")) {
      log::warn(
          "{}: auto_map names Python code for AutoTokenizer, which levin does not run; it uses "
          "tokenizer.json",
          config_.path().string());
    }
    for (const auto& [role, token] : class_->roles()) special_.add_default(role, token);
    find_tokens(file.root());
    class_->rebuild(file, config, [&](std::string_view role) { return special_.role(role); });
    read_settings(file.root(), parts);
  });
}

void Folder::finish(TokenizerParts& parts, const PretrainedOptions& options) const {
  reading(config_.path(), [&] {
    add_tokens(parts);
    for (const auto& [role, token] : special_.roles()) parts.roles[role] = token.content;
    put_ends(parts, options);
  });
}

void Folder::find_tokens(const Component& file) {
  const Component config = config_.root();
  if (config.has("added_tokens_decoder")) {
    for (const auto& [id, token] : config.at("added_tokens_decoder").fields())
      by_id_.emplace(std::strtoll(id.c_str(), nullptr, 10), read_added_token(token));
    return;
  }
  if (!old_tokens_.exists()) return;
  std::set<int64_t> known;
  if (file.has("added_tokens")) {
    for (const Component& item : file.at("added_tokens").items())
      known.insert(item.is_object() ? item.whole("id", -1) : -1);
  }
  const std::vector<AddedToken> special = special_.all();
  for (const auto& [content, id] : old_tokens_.root().fields()) {
    const bool is_special =
        std::ranges::find(special, content, &AddedToken::content) != special.end();
    if (!known.contains(id.whole()))
      by_id_[id.whole()] = {.content = content, .normalized = !is_special, .special = is_special};
  }
}

void Folder::read_settings(const Component& file, TokenizerParts& parts) {
  const Component config = config_.root();
  // transformers writes 1e30 if no length is known.
  for (const char* key : {"max_len", "model_max_length"}) {
    if (!config.has(key)) continue;
    const double length = config.at(key).number();
    if (length >= 0 && length < 1e18) parts.model_max_length = static_cast<int64_t>(length);
  }
  const auto side = [&](const char* key, const char* of_file, bool left) {
    std::string otherwise = left ? "left" : "right";
    if (file.has(of_file)) otherwise = direction_of(file.at(of_file));
    std::string read = config.text(key, otherwise);
    if (read != "left" && read != "right") config.at(key).fail("is not one of left, right");
    return read;
  };
  parts.padding_side = side("padding_side", "padding", class_->pads_left());
  parts.truncation_side = side("truncation_side", "truncation", false);
  if (file.has("padding"))
    special_.add_default("pad_token", file.at("padding").text("pad_token", "[PAD]"));
  parts.cleans_up = config.flag("clean_up_tokenization_spaces", false);
  // One class of transformers asks for it.
  const bool is_luke = class_->unknown().ends_with("LukeTokenizer");
  parts.cleans_up_of_bpe = config.flag(
      "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output", is_luke);
  parts.splits_special = config.flag("split_special_tokens", false);
  if (config.has("model_input_names")) {
    parts.gives_types =
        std::ranges::any_of(config.at("model_input_names").items(),
                            [](const Component& name) { return name.text() == "token_type_ids"; });
  }
  if (config.has("chat_control_tokens")) {
    std::vector<std::string>& tokens = parts.chat_control_tokens.emplace();
    for (const Component& item : config.at("chat_control_tokens").items())
      tokens.push_back(item.text());
  }
  if (config.has("chat_template")) read_template(config.at("chat_template"), parts);
}

void Folder::add_tokens(TokenizerParts& parts) const {
  const auto put = [&](const AddedToken& token) {
    parts.added.put(token, parts.model->vocabulary(), parts.normalizer);
  };
  for (const auto& [id, token] : by_id_) {
    const int32_t known = parts.added.find(token.content);
    if (known >= 0 && *parts.added.token(known) == token) continue;
    AddedToken changed = token;
    changed.special = token.special || special_.has_role(token.content);
    put(changed);
  }
  const std::vector<AddedToken> special = special_.all();
  for (const AddedToken& token : special) {
    if (parts.added.find(token.content) < 0) put(token);
  }
  if (class_->name() == "Qwen2Tokenizer") {
    for (const AddedToken& token : special)
      put({.content = token.content, .normalized = false, .special = true});
  }
  parts.added.finish();
}

/// With a tokenizer.json transformers ignores add_bos_token and add_eos_token of
/// tokenizer_config.json. Some of its classes replace the tokens that the file puts around texts,
/// and so does a caller who passes one of both.
void Folder::put_ends(TokenizerParts& parts, const PretrainedOptions& options) const {
  const auto id_of = [&](std::string_view role) -> std::optional<int32_t> {
    int32_t id = parts.find(special_.role(role));
    if (id < 0) id = parts.find(special_.role("unk_token"));
    return id < 0 ? std::nullopt : std::optional(id);
  };
  if (PostProcessorPtr own = class_->post_processor(
          config_.root(), [&](std::string_view role) { return special_.role(role); }, id_of)) {
    parts.post_processor = std::move(own);
    parts.find_blanks();
    return;
  }
  const bool replaces =
      options.add_bos_token || options.add_eos_token || class_->name() == "GPTNeoXTokenizer";
  // Without a post-processor each text still is a sequence of its own.
  if (!replaces && parts.post_processor) return;
  const auto end_of = [&](bool wanted, const char* role) -> std::optional<int32_t> {
    return wanted && !special_.role(role).empty() ? id_of(role) : std::nullopt;
  };
  parts.post_processor = make_ends(end_of(options.add_bos_token.value_or(false), "bos_token"),
                                   end_of(options.add_eos_token.value_or(false), "eos_token"));
}

}  // namespace levin::text
