// Tokenizers out of files.
#include <limits>
#include <span>

#include "levin/base/check.h"
#include "levin/base/text.h"
#include "levin/files/checksum.h"
#include "levin/files/read_file.h"
#include "levin/text/parts_impl.h"
#include "levin/text/unicode/utf8.h"

namespace levin::text {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLongestPadding = 1 << 22;

/// Errors of a file begin with its path.
template <class Read>
auto reading(const fs::path& path, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.id(), path.string() + ": " + error.text());
  }
}

int32_t id_of(const Component& component, std::string_view key, int64_t otherwise) {
  const int64_t id = component.whole(key, otherwise);
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) component.at(key).fail("is out of range");
  return static_cast<int32_t>(id);
}

int64_t length_of(const Component& component) {
  const int64_t length = component.whole();
  if (length < 0 || length > std::numeric_limits<int32_t>::max()) component.fail("is no length");
  return length;
}

std::string direction_of(const Component& component) {
  const std::string direction = component.text("direction", "Right");
  if (direction == "Right") return "right";
  if (direction == "Left") return "left";
  component.at("direction").fail("is none of Left, Right");
}

std::optional<TruncationOptions> read_truncation(const Component& component) {
  if (component.is_null()) return std::nullopt;
  TruncationOptions options{.max_length = length_of(component.at("max_length")),
                            .direction = direction_of(component)};
  if (component.has("stride")) options.stride = length_of(component.at("stride"));
  const std::string strategy = component.text("strategy", "LongestFirst");
  if (strategy == "OnlyFirst") {
    options.strategy = "only_first";
  } else if (strategy == "OnlySecond") {
    options.strategy = "only_second";
  } else if (strategy != "LongestFirst") {
    component.at("strategy").fail("is none of LongestFirst, OnlyFirst, OnlySecond");
  }
  return options;
}

std::optional<PaddingOptions> read_padding(const Component& component) {
  if (component.is_null()) return std::nullopt;
  PaddingOptions options{.direction = direction_of(component),
                         .pad_id = id_of(component, "pad_id", 0),
                         .pad_type_id = id_of(component, "pad_type_id", 0),
                         .pad_token = component.text("pad_token", "[PAD]")};
  const Component strategy = component.at("strategy");
  if (strategy.is_object()) {
    options.length = length_of(strategy.at("Fixed"));
    if (*options.length > kLongestPadding) strategy.fail("is too long");
  } else if (strategy.text() != "BatchLongest") {
    strategy.fail("is none of BatchLongest, {\"Fixed\": length}");
  }
  if (component.has("pad_to_multiple_of")) {
    options.pad_to_multiple_of = length_of(component.at("pad_to_multiple_of"));
    if (*options.pad_to_multiple_of > kLongestPadding)
      component.fail("has a multiple that is too long");
  }
  return options;
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

Component optional_part(const Component& root, std::string_view key) {
  static const TokenizerFile kNull(std::string_view("null"));
  return root.has(key) ? root.at(key) : Component(kNull.root());
}

/// tokenizer_config.json and special_tokens_map.json.
class Configs {
 public:
  explicit Configs(Tokenizer::Parts& parts) : parts_(parts) {}

  void read(const Component& config) {
    for (const char* role : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                             "cls_token", "mask_token"}) {
      if (config.has(role)) put_role(role, config.at(role));
    }
    for (const char* list : {"additional_special_tokens", "extra_special_tokens"}) {
      if (!config.has(list) || !config.at(list).is_list()) continue;
      for (const Component& item : config.at(list).items()) special_.push_back(special_of(item));
    }
    if (config.has("added_tokens_decoder")) {
      for (const auto& [id, token] : config.at("added_tokens_decoder").fields()) {
        by_id_.emplace(std::strtoll(id.c_str(), nullptr, 10), read_added_token(token));
      }
    }
  }

  void read_settings(const Component& config) {
    class_ = config.text("tokenizer_class", "");
    // Where nobody knows a length, transformers writes 1e30.
    if (config.has("model_max_length")) {
      const double length = config.at("model_max_length").number();
      if (length >= 0 && length < 1e18) parts_.model_max_length = static_cast<int64_t>(length);
    }
    parts_.padding_side = config.text("padding_side", "right");
    if (parts_.padding_side != "left" && parts_.padding_side != "right") {
      config.at("padding_side").fail("is none of left, right");
    }
    parts_.pad_token_type_id = id_of(config, "pad_token_type_id", 0);
    parts_.cleans_up = config.flag("clean_up_tokenization_spaces", false);
    if (config.has("chat_control_tokens")) {
      std::vector<std::string>& tokens = parts_.chat_control_tokens.emplace();
      for (const Component& item : config.at("chat_control_tokens").items()) {
        tokens.push_back(item.text());
      }
    }
    if (config.has("chat_template")) read_template(config.at("chat_template"));
  }

  /// With a tokenizer.json transformers passes over add_bos_token and add_eos_token of tokenizer_config.json. One of
  /// its classes, and whoever gives one of both to it, replaces what the file puts around texts.
  void put_ends(const PretrainedOptions& options) {
    const bool replaces =
        options.add_bos_token || options.add_eos_token || class_.starts_with("GPTNeoXTokenizer");
    if (!replaces) return;
    const auto id_of_role = [&](bool wanted, const char* role) -> std::optional<int32_t> {
      const auto token = parts_.roles.find(role);
      if (!wanted || token == parts_.roles.end()) return std::nullopt;
      return parts_.find(token->second);
    };
    parts_.post_processor =
        make_ends(id_of_role(options.add_bos_token.value_or(false), "bos_token"),
                  id_of_role(options.add_eos_token.value_or(false), "eos_token"));
  }

  /// Tokens that tokenizer.json does not have.
  void add_tokens() {
    for (const auto& [id, token] : by_id_) put(token);
    for (const AddedToken& token : special_) {
      if (parts_.added.find(token.content) < 0) put(token);
    }
    parts_.added.finish();
  }

 private:
  static AddedToken special_of(const Component& component) {
    AddedToken token = read_added_token(component);
    token.special = true;
    return token;
  }
  void put_role(const char* role, const Component& component) {
    AddedToken token = special_of(component);
    if (parts_.roles.emplace(role, token.content).second) special_.push_back(std::move(token));
  }
  void put(const AddedToken& token) {
    parts_.added.put(token, parts_.model->vocabulary(), parts_.normalizer.get());
  }
  /// A text, or a list of named ones.
  void read_template(const Component& component) {
    if (component.is_text()) {
      parts_.chat_template = component.text();
      return;
    }
    for (const Component& item : component.items()) {
      const std::string name = item.at("name").text();
      parts_.chat_templates[name] = item.at("template").text();
      if (name == "default") parts_.chat_template = parts_.chat_templates[name];
    }
  }

  Tokenizer::Parts& parts_;
  std::string class_;  // of transformers
  std::map<int64_t, AddedToken> by_id_;
  std::vector<AddedToken> special_;
};

}  // namespace

void Tokenizer::Parts::read(const TokenizerFile& file) {
  const Component root = file.root();
  const std::string version = root.text("version", "1.0");
  if (version != "1.0") root.at("version").fail("is '" + printable(version) + "', wanted 1.0");
  normalizer = read_normalizer(optional_part(root, "normalizer"));
  pre_tokenizer = read_pre_tokenizer(optional_part(root, "pre_tokenizer"));
  post_processor = read_post_processor(optional_part(root, "post_processor"));
  decoder = read_decoder(optional_part(root, "decoder"));
  model = read_model(root.at("model"), file.model());
  truncation = read_truncation(optional_part(root, "truncation"));
  padding = read_padding(optional_part(root, "padding"));
  if (root.has("added_tokens")) {
    for (const Component& item : root.at("added_tokens").items()) {
      added.put(read_added_token(item), model->vocabulary(), normalizer.get());
    }
  }
  added.finish();
  of_bytes = pre_tokenizer && pre_tokenizer->ends_with_byte_letters() && model->take_bytes();
  needs_origin = normalizer &&
                 (normalizer->needs_origin() || (pre_tokenizer && pre_tokenizer->needs_origin()));
  find_blanks();
}

Tokenizer Tokenizer::from_json(std::string_view json) {
  auto parts = std::make_unique<Parts>();
  parts->read(TokenizerFile(json));
  parts->digest = files::xxh3(std::as_bytes(std::span(json)));
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::from_file(const fs::path& path) {
  const std::string json = files::read_file(path);
  return reading(path, [&] { return from_json(json); });
}

Tokenizer Tokenizer::from_pretrained(const fs::path& folder, const PretrainedOptions& options) {
  const fs::path path = folder / "tokenizer.json";
  LEVIN_CHECK(
      fs::exists(path), "text.missing",
      "there is no {}; save the tokenizer by transformers' save_pretrained, which writes it",
      path.string());
  Tokenizer tokenizer = from_file(path);
  Parts& parts = *tokenizer.parts_;
  parts.truncation.reset();
  parts.padding.reset();
  Configs configs(parts);
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path config = folder / name;
    if (!fs::exists(config)) continue;
    reading(config, [&] {
      const std::string json = files::read_file(config);
      const TokenizerFile file(json);
      configs.read(file.root());
      if (std::string_view(name) == "tokenizer_config.json") configs.read_settings(file.root());
    });
  }
  reading(folder / "tokenizer_config.json", [&] { configs.add_tokens(); });
  configs.put_ends(options);
  if (const fs::path jinja = folder / "chat_template.jinja"; fs::exists(jinja)) {
    parts.chat_template = files::read_file(jinja);
    parts.chat_templates.clear();
  }
  if (const fs::path more = folder / "additional_chat_templates"; fs::is_directory(more)) {
    if (parts.chat_template) parts.chat_templates["default"] = *parts.chat_template;
    for (const auto& entry : fs::directory_iterator(more)) {
      if (entry.path().extension() != ".jinja") continue;
      parts.chat_templates[entry.path().stem().string()] = files::read_file(entry.path());
    }
  }
  return tokenizer;
}

}  // namespace levin::text
