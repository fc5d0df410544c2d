#include "levin/text/reading/tokenizer_class.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/text/models/model.h"
#include "levin/text/reading/class_names.h"

namespace levin::text {
namespace {

using nlohmann::json;
using Role = TokenizerClass::Role;

constexpr std::string_view kSign = "\u2581";  // stands for a blank

constexpr Role kGpt2Roles[] = {{"unk_token", "<|endoftext|>"},
                               {"bos_token", "<|endoftext|>"},
                               {"eos_token", "<|endoftext|>"},
                               {"pad_token", ""}};
constexpr Role kGptNeoXRoles[] = {{"unk_token", "<|endoftext|>"},
                                  {"bos_token", "<|endoftext|>"},
                                  {"eos_token", "<|endoftext|>"},
                                  {"pad_token", "<|padding|>"}};
constexpr Role kRobertaRoles[] = {
    {"bos_token", "<s>"},   {"eos_token", "</s>"},  {"sep_token", "</s>"},   {"cls_token", "<s>"},
    {"unk_token", "<unk>"}, {"pad_token", "<pad>"}, {"mask_token", "<mask>"}};
constexpr Role kMpnetRoles[] = {
    {"bos_token", "<s>"},   {"eos_token", "</s>"},  {"sep_token", "</s>"},   {"cls_token", "<s>"},
    {"unk_token", "[UNK]"}, {"pad_token", "<pad>"}, {"mask_token", "<mask>"}};
constexpr Role kBertRoles[] = {{"unk_token", "[UNK]"},
                               {"sep_token", "[SEP]"},
                               {"pad_token", "[PAD]"},
                               {"cls_token", "[CLS]"},
                               {"mask_token", "[MASK]"}};
constexpr Role kLlamaRoles[] = {
    {"unk_token", "<unk>"}, {"bos_token", "<s>"}, {"eos_token", "</s>"}};
constexpr Role kQwen2Roles[] = {{"unk_token", "<|endoftext|>"},
                                {"bos_token", ""},
                                {"eos_token", "<|endoftext|>"},
                                {"pad_token", "<|endoftext|>"}};
constexpr Role kGemmaRoles[] = {{"unk_token", "<unk>"},
                                {"bos_token", "<bos>"},
                                {"eos_token", "<eos>"},
                                {"pad_token", "<pad>"},
                                {"mask_token", "<mask>"}};

struct Class {
  std::string_view name;
  std::string_view model;
  std::span<const Role> roles;
  bool pads_left = false;
};
constexpr Class kClasses[] = {
    {"BertTokenizer", "WordPiece", kBertRoles},       {"GPT2Tokenizer", "BPE", kGpt2Roles},
    {"GPTNeoXTokenizer", "BPE", kGptNeoXRoles},       {"GemmaTokenizer", "BPE", kGemmaRoles, true},
    {"LlamaTokenizer", "BPE", kLlamaRoles, true},     {"MPNetTokenizer", "WordPiece", kMpnetRoles},
    {"Qwen2Tokenizer", "BPE", kQwen2Roles},           {"RobertaTokenizer", "BPE", kRobertaRoles},
    {"XLMRobertaTokenizer", "Unigram", kRobertaRoles}};

const Class* class_of(std::string_view name) {
  const auto* const found = std::ranges::find(kClasses, name, &Class::name);
  return found == std::end(kClasses) ? nullptr : found;
}

/// Returns whether a pre-tokenizer or a decoder is ByteLevel, or a Sequence with one.
bool has_byte_level(const Component& component, std::string_view items) {
  if (!component.is_object()) return false;
  const std::string kind = component.text("type", "");
  if (kind == "ByteLevel") return true;
  if (kind != "Sequence" || !component.has(items)) return false;
  return std::ranges::any_of(component.at(items).items(),
                             [&](const Component& item) { return has_byte_level(item, items); });
}

json of_kind(std::string_view kind) { return {{"type", kind}}; }
json sequence(std::string_view items, json parts) {
  return {{"type", "Sequence"}, {items, std::move(parts)}};
}
json byte_level(bool prefix, bool trims = true, bool use_regex = true) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", prefix},
          {"trim_offsets", trims},
          {"use_regex", use_regex}};
}
json replace(std::string_view from, std::string_view to) {
  return {{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
}
json metaspace(std::string_view scheme, bool splits) {
  return {
      {"type", "Metaspace"}, {"replacement", kSign}, {"prepend_scheme", scheme}, {"split", splits}};
}

/// The parts that a tokenizer class builds; null means that it has no such part.
struct Parts {
  json model;
  json normalizer;
  json pre_tokenizer;
  json decoder;
};

void make_byte_bpe(Parts& parts, const json& pre_tokenizer) {
  parts.model = of_kind("BPE");
  parts.pre_tokenizer = pre_tokenizer;
  parts.decoder = of_kind("ByteLevel");
}

void make_word_piece(Parts& parts, const Component& config, const TokenizerClass::TokenOf& token) {
  parts.model = {{"type", "WordPiece"}, {"unk_token", token("unk_token")}};
  parts.normalizer = {{"type", "BertNormalizer"},
                      {"clean_text", true},
                      {"handle_chinese_chars", config.flag("tokenize_chinese_chars", true)},
                      {"strip_accents", nullptr},
                      {"lowercase", config.flag("do_lower_case", true)}};
  if (config.has("strip_accents"))
    parts.normalizer["strip_accents"] = config.at("strip_accents").flag();
  parts.pre_tokenizer = of_kind("BertPreTokenizer");
  parts.decoder = {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}};
}

void make_llama(Parts& parts, const Component& config) {
  const bool prefix = config.flag("add_prefix_space", true);
  const bool legacy = config.flag("legacy", false);
  parts.model = {{"type", "BPE"}, {"fuse_unk", true}, {"byte_fallback", true}};
  parts.pre_tokenizer = metaspace(!prefix ? "never" : legacy ? "always" : "first", false);
  json decoders = {replace(kSign, " "), of_kind("ByteFallback"), of_kind("Fuse")};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  parts.decoder = sequence("decoders", std::move(decoders));
}

void make_gemma(Parts& parts, const TokenizerClass::TokenOf& token) {
  parts.model = {{"type", "BPE"},
                 {"unk_token", token("unk_token")},
                 {"fuse_unk", true},
                 {"byte_fallback", true}};
  parts.normalizer = replace(" ", kSign);
  parts.pre_tokenizer = {{"type", "Split"},
                         {"pattern", {{"String", " "}}},
                         {"behavior", "MergedWithPrevious"},
                         {"invert", false}};
  parts.decoder =
      sequence("decoders", {replace(kSign, " "), of_kind("ByteFallback"), of_kind("Fuse")});
}

void make_qwen2(Parts& parts, const Component& config) {
  constexpr std::string_view kExpression =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const json split = {{"type", "Split"},
                      {"pattern", {{"Regex", kExpression}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const json bytes = byte_level(config.flag("add_prefix_space", false), true, false);
  make_byte_bpe(parts, sequence("pretokenizers", {split, bytes}));
  parts.normalizer = of_kind("NFC");
}

/// The file's table of replacements, alone or the first of a Sequence.
json precompiled_of(const Component& normalizer) {
  if (!normalizer.is_object()) return nullptr;
  const std::string kind = normalizer.text("type", "");
  if (kind == "Precompiled" && normalizer.has("precompiled_charsmap")) {
    return {{"type", kind}, {"precompiled_charsmap", normalizer.at("precompiled_charsmap").text()}};
  }
  if (kind != "Sequence") return nullptr;
  for (const Component& item : normalizer.at("normalizers").items()) {
    if (json found = precompiled_of(item); !found.is_null()) return found;
  }
  return nullptr;
}

void make_xlm_roberta(Parts& parts, const Component& config, const Component& file) {
  parts.model = {{"type", "Unigram"}, {"unk_id", 3}, {"byte_fallback", false}};
  if (file.has("normalizer")) parts.normalizer = precompiled_of(file.at("normalizer"));
  const char* scheme = config.flag("add_prefix_space", true) ? "always" : "never";
  parts.pre_tokenizer =
      sequence("pretokenizers", {of_kind("WhitespaceSplit"), metaspace(scheme, true)});
  parts.decoder = metaspace(scheme, true);
}

json sequence_piece(std::string_view id, int type) {
  return {{"Sequence", {{"id", id}, {"type_id", type}}}};
}

}  // namespace

TokenizerClass::TokenizerClass(const Component& config, const Component& model,
                               const Component& file) {
  const auto named = [](const Component& from) { return from.text("tokenizer_class", ""); };
  std::string hub = named(config);
  if (hub.empty()) hub = named(model);
  if (hub.ends_with("Fast")) hub.resize(hub.size() - 4);
  const std::string type = model.text("model_type", "");
  const ModelType registered = model_type(type);
  if (hub.empty()) {
    hub = registered.tokenizer_class;
  } else if (hub == "LlamaTokenizer" && !registered.replaces &&
             ((file.has("pre_tokenizer") &&
               has_byte_level(file.at("pre_tokenizer"), "pretokenizers")) ||
              (file.has("decoder") && has_byte_level(file.at("decoder"), "decoders")))) {
    hub.clear();  // its own pre-tokenizer could not read these merges
  } else if (registered.is_backend) {
    hub.clear();
  } else if (registered.replaces) {
    hub = registered.tokenizer_class;
  }
  hub = class_by_alias(hub);
  if (class_of(hub) != nullptr) {
    name_ = hub;
  } else if (makes_parts_of_its_own(hub)) {
    unknown_ = hub;
  }
}

std::span<const Role> TokenizerClass::roles() const {
  const Class* found = class_of(name_);
  return found == nullptr ? std::span<const Role>() : found->roles;
}

bool TokenizerClass::pads_left() const {
  const Class* found = class_of(name_);
  return found != nullptr && found->pads_left;
}

void TokenizerClass::rebuild(TokenizerFile& file, const Component& config,
                             const TokenOf& token_of) const {
  const Class* made = class_of(name_);
  if (made == nullptr) return;
  const std::string kind = model_kind(file.root().at("model"), file.model());
  LEVIN_CHECK(kind == made->model, "text.component",
              "the folder's tokenizer_class is {}, which needs a {} model, but tokenizer.json has "
              "a {} model; to use tokenizer.json as it is, set tokenizer_class in "
              "tokenizer_config.json to TokenizersBackend",
              name_, made->model, printable(kind));
  Parts parts;
  if (name_ == "BertTokenizer" || name_ == "MPNetTokenizer") {
    make_word_piece(parts, config, token_of);
  } else if (name_ == "LlamaTokenizer") {
    make_llama(parts, config);
  } else if (name_ == "GemmaTokenizer") {
    make_gemma(parts, token_of);
  } else if (name_ == "Qwen2Tokenizer") {
    make_qwen2(parts, config);
  } else if (name_ == "XLMRobertaTokenizer") {
    make_xlm_roberta(parts, config, file.root());
  } else {
    const bool trims = name_ != "GPTNeoXTokenizer" || config.flag("trim_offsets", true);
    make_byte_bpe(parts, byte_level(config.flag("add_prefix_space", false), trims));
    if (name_ == "GPTNeoXTokenizer") parts.normalizer = of_kind("NFC");
  }
  file.put_model_options(parts.model.dump());
  file.put("normalizer", parts.normalizer.dump());
  file.put("pre_tokenizer", parts.pre_tokenizer.dump());
  file.put("decoder", parts.decoder.dump());
  // If tokenizer_config.json lists added tokens, the class has no others.
  if (config.has("added_tokens_decoder")) file.put("added_tokens", "[]");
}

PostProcessorPtr TokenizerClass::post_processor(const Component& config, const TokenOf& token_of,
                                                const IdOf& id_of) const {
  const auto read = [](const json& made) {
    const std::string text = made.dump();
    const TokenizerFile file{std::string_view(text)};
    return read_post_processor(file.root());
  };
  const auto id = [&](std::string_view role, int otherwise) {
    return id_of(role).value_or(otherwise);
  };
  const bool is_roberta = name_ == "RobertaTokenizer";
  if (is_roberta || name_ == "MPNetTokenizer") {
    return read({{"type", "RobertaProcessing"},
                 {"sep", {token_of("sep_token"), id("sep_token", 2)}},
                 {"cls", {token_of("cls_token"), id("cls_token", 0)}},
                 {"trim_offsets", !is_roberta || config.flag("trim_offsets", true)},
                 {"add_prefix_space", is_roberta && config.flag("add_prefix_space", false)}});
  }
  const bool is_bert = name_ == "BertTokenizer";
  if (!is_bert && name_ != "XLMRobertaTokenizer") return nullptr;
  const std::string first = is_bert ? "cls_token" : "bos_token";
  const std::string last = is_bert ? "sep_token" : "eos_token";
  json special = json::object();
  const auto token = [&](const std::string& role, int otherwise, int type) -> json {
    const std::string text = token_of(role);
    special[text] = {{"id", text}, {"ids", {id(role, otherwise)}}, {"tokens", {text}}};
    return {{"SpecialToken", {{"id", text}, {"type_id", type}}}};
  };
  const json single = {token(first, 2, 0), sequence_piece("A", 0), token(last, 3, 0)};
  json pair = single;
  if (!is_bert) pair.push_back(token(last, 3, 0));
  pair.push_back(sequence_piece("B", is_bert ? 1 : 0));
  pair.push_back(token(last, 3, is_bert ? 1 : 0));
  return read({{"type", "TemplateProcessing"},
               {"single", single},
               {"pair", pair},
               {"special_tokens", special}});
}

}  // namespace levin::text
