// Tokenizers out of files.
#include <limits>
#include <span>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/files/checksum.h"
#include "levin/files/read_file.h"
#include "levin/text/folder/folder.h"
#include "levin/text/reading/known_fields.h"
#include "levin/text/tokenizer_parts.h"

namespace levin::text {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLongestPadding = 1 << 22;

int32_t id_of(const Component& component, std::string_view key, int64_t otherwise) {
  const int64_t id = component.whole(key, otherwise);
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) component.at(key).fail("is out of range");
  return static_cast<int32_t>(id);
}

int64_t length_of(const Component& component) {
  const int64_t length = component.whole();
  if (length < 0 || length > std::numeric_limits<int32_t>::max())
    component.fail("is not a valid length");
  return length;
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
    component.at("strategy").fail("is not one of LongestFirst, OnlyFirst, OnlySecond");
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
    strategy.fail("is not one of BatchLongest, {\"Fixed\": length}");
  }
  if (component.has("pad_to_multiple_of")) {
    options.pad_to_multiple_of = length_of(component.at("pad_to_multiple_of"));
    if (*options.pad_to_multiple_of > kLongestPadding)
      component.fail("has a multiple that is too long");
  }
  return options;
}

Component optional_part(const Component& root, std::string_view key) {
  static const TokenizerFile kNull(std::string_view("null"));
  return root.has(key) ? root.at(key) : Component(kNull.root());
}

}  // namespace

void TokenizerParts::read(const TokenizerFile& file) {
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
      added.put(read_added_token(item), model->vocabulary(), normalizer);
    }
  }
  added.finish();
  of_bytes = pre_tokenizer.apply_without_byte_letters && model->take_bytes();
  needs_origin = normalizer && (normalizer.needs_origin || pre_tokenizer.needs_origin);
  find_blanks();
}

Tokenizer Tokenizer::from_json(std::string_view json) {
  auto parts = std::make_unique<TokenizerParts>();
  const TokenizerFile file(json);
  warn_of_unknown_fields(file.root(), "tokenizer.json");
  parts->read(file);
  parts->digest = files::xxh3(std::as_bytes(std::span(json)));
  return Tokenizer(std::move(parts));
}

Tokenizer Tokenizer::from_file(const fs::path& path) {
  const std::string json = files::read_file(path);
  return reading(path, [&] { return from_json(json); });
}

Tokenizer Tokenizer::from_pretrained(const fs::path& folder, const PretrainedOptions& options) {
  const fs::path path = folder / "tokenizer.json";
  LEVIN_CHECK(fs::exists(path), "text.missing",
              "there is no {}; write it with save_pretrained of a transformers tokenizer",
              path.string());
  const std::string json = files::read_file(path);
  Folder rest(folder);
  TokenizerFile file = reading(path, [&] { return TokenizerFile(std::string_view(json)); });
  auto made = std::make_unique<TokenizerParts>();
  TokenizerParts& parts = *made;
  reading(path, [&] { warn_of_unknown_fields(file.root(), path.string()); });
  rest.prepare(file, parts);
  reading(path, [&] { parts.read(file); });
  parts.truncation.reset();
  parts.padding.reset();
  rest.finish(parts, options);
  // Beside the file's own bytes, what its folder made of it.
  const std::string read_as = file.root().json();
  const auto sum = [](std::string_view text, uint64_t seed) {
    return files::xxh3(std::as_bytes(std::span(text)), seed);
  };
  parts.digest = sum(json, sum(read_as, (options.add_bos_token.value_or(false) ? 1U : 0U) +
                                            (options.add_eos_token.value_or(false) ? 2U : 0U)));
  Tokenizer tokenizer(std::move(made));
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
