#include "levin/text/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>

#include "levin/base/check.h"
#include "levin/base/log.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/files/checksum.h"
#include "levin/text/tokenizer_parts.h"

namespace levin::text {

Tokenizer::Tokenizer(std::unique_ptr<TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  return encode(EncodeInput{text, std::nullopt}, options);
}

Encoding Tokenizer::encode(const EncodeInput& input, const EncodeOptions& options) const {
  const TokenizerParts::Loan memory(*parts_);
  Encoding encoding = parts_->encode(input, options, *memory);
  parts_->pad({&encoding, 1}, options.offsets != OffsetUnit::kNone);
  return encoding;
}

std::vector<Encoding> Tokenizer::encode_batch(std::span<const std::string> texts,
                                              const EncodeOptions& options) const {
  std::vector<Encoding> encodings;
  encode_batch_out(encodings, texts, options);
  return encodings;
}

std::vector<Encoding> Tokenizer::encode_batch(std::span<const EncodeInput> inputs,
                                              const EncodeOptions& options) const {
  std::vector<Encoding> encodings;
  encode_batch_out(encodings, inputs, options);
  return encodings;
}

void Tokenizer::encode_batch_out(std::vector<Encoding>& encodings,
                                 std::span<const std::string> texts,
                                 const EncodeOptions& options) const {
  parts_->encode_all(
      encodings, texts.size(), [&](size_t i) { return EncodeInput{texts[i], std::nullopt}; },
      options);
}

void Tokenizer::encode_batch_out(std::vector<Encoding>& encodings,
                                 std::span<const EncodeInput> inputs,
                                 const EncodeOptions& options) const {
  parts_->encode_all(
      encodings, inputs.size(), [&](size_t i) -> const EncodeInput& { return inputs[i]; }, options);
}

template <class InputAt>
void TokenizerParts::encode_all(std::vector<Encoding>& encodings, size_t count,
                                const InputAt& input_at, const EncodeOptions& options) const {
  LEVIN_CHECK(options.num_threads >= 0, "text.threads", "got {} threads, wanted 0 or more",
              options.num_threads);
  encodings.resize(count);
  const size_t cores = std::max(1U, std::thread::hardware_concurrency());
  size_t threads = options.num_threads == 0 ? cores : static_cast<size_t>(options.num_threads);
  // A thread takes some texts at a time, as many as make it worth while: those of its own part, and then what
  // is left of others' parts. In a call for as many texts it so meets the encodings that it filled before.
  constexpr size_t kBlock = 16;
  const size_t blocks = (count + kBlock - 1) / kBlock;
  threads = std::max<size_t>(1, std::min(threads, blocks));
  std::vector<std::atomic<size_t>> next(threads);  // blocks of each part
  const auto begin_of = [&](size_t part) { return part * blocks / threads; };
  for (size_t part = 0; part < threads; ++part) next[part] = begin_of(part);
  std::vector<std::exception_ptr> errors(threads);
  const auto work = [&](size_t number) {
    try {
      const Loan memory(*this);
      for (size_t part = number; part < number + threads; ++part) {
        const size_t owner = part % threads, last = begin_of(owner + 1);
        for (size_t block = 0; (block = next[owner].fetch_add(1)) < last;) {
          const size_t end = std::min((block + 1) * kBlock, count);
          for (size_t i = block * kBlock; i < end; ++i) {
            encodings[i] = encode(input_at(i), options, *memory, std::move(encodings[i]));
          }
        }
      }
    } catch (...) {
      errors[number] = std::current_exception();
      for (size_t part = 0; part < threads; ++part) next[part] = begin_of(part + 1);
    }
  };
  {
    std::vector<std::jthread> others;
    for (size_t i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  pad(encodings, options.offsets != OffsetUnit::kNone);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  return parts_->decode(ids, options);
}

std::string TokenizerParts::decode(std::span<const int32_t> ids,
                                   const DecodeOptions& options) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int32_t id : ids) {
    std::string_view token;
    if (added.token(id) != nullptr) {
      token = added.decoded(id);
    } else if (const auto known = model->vocabulary().token(id)) {
      token = *known;
    } else {
      continue;
    }
    if (options.skip_special_tokens && added.is_special(token)) continue;
    tokens.emplace_back(token);
  }
  std::string text;
  if (decoder) {
    decoder(tokens);
    for (const std::string& token : tokens) text += token;
  } else {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) text += ' ';
      text += tokens[i];
    }
  }
  if (may_clean_up(options)) {
    constexpr std::pair<std::string_view, std::string_view> kReplaced[] = {
        {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
        {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kReplaced) replace_all(text, from, to);
  }
  return text;
}

/// Follows transformers: BPE's tokens hold the text's spaces, and cleaning up would lose some of
/// them.
bool TokenizerParts::may_clean_up(const DecodeOptions& options) const {
  if (!options.clean_up_tokenization_spaces.value_or(cleans_up)) return false;
  if (!model->is_bpe() || cleans_up_of_bpe) return true;
  if (options.clean_up_tokenization_spaces) {
    std::call_once(told_of_bpe, [] {
      log::warn(
          "clean_up_tokenization_spaces is ignored, as in transformers: a BPE tokenizer's text "
          "would lose spaces");
    });
  }
  return false;
}

/// Cleaning up changes text that was given out already, so that a stream does it only where it is asked to.
DecodeStream Tokenizer::decode_stream(const DecodeOptions& options) const {
  DecodeOptions plain = options;
  plain.clean_up_tokenization_spaces = options.clean_up_tokenization_spaces.value_or(false);
  return {*this, plain};
}

std::optional<std::string> DecodeStream::step(int32_t id) {
  constexpr std::string_view kIncomplete = "\xef\xbf\xbd";  // U+FFFD
  if (prefix_.empty() && !ids_.empty()) {
    std::string prefix = tokenizer_->decode(ids_, options_);
    if (!prefix.ends_with(kIncomplete)) {
      prefix_ = std::move(prefix);
      prefix_size_ = ids_.size();
    }
  }
  ids_.push_back(id);
  const std::string text = tokenizer_->decode(ids_, options_);
  if (text.size() <= prefix_.size() || text.ends_with(kIncomplete)) return std::nullopt;
  LEVIN_CHECK(
      text.starts_with(prefix_), "text.stream",
      "token {} changes the text '{}', which was returned before; decode all tokens at once", id,
      printable(prefix_));
  std::string more = text.substr(prefix_.size());
  const size_t rest = ids_.size() - prefix_size_;
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(prefix_size_));
  prefix_ = tokenizer_->decode(ids_, options_);
  prefix_size_ = rest;
  return more;
}

void Tokenizer::set_truncation(std::optional<TruncationOptions> truncation) {
  if (truncation) {
    const auto& [max_length, stride, strategy, direction] = *truncation;
    LEVIN_CHECK(max_length >= 0 && stride >= 0, "text.truncation",
                "got max_length {} and stride {}, wanted 0 or more", max_length, stride);
    LEVIN_CHECK(
        strategy == "longest_first" || strategy == "only_first" || strategy == "only_second",
        "text.truncation",
        "got the truncation strategy '{}', wanted longest_first, only_first or only_second",
        printable(strategy));
    LEVIN_CHECK(direction == "left" || direction == "right", "text.truncation",
                "got the direction '{}', wanted left or right", printable(direction));
    const auto added =
        static_cast<int64_t>(parts_->post_processor ? parts_->post_processor->added(false) : 0);
    LEVIN_CHECK(stride == 0 || stride < max_length - added, "text.truncation",
                "got a stride of {}, wanted less than {}: max_length = {} minus the special tokens",
                stride, max_length - added, max_length);
  }
  parts_->truncation = std::move(truncation);
}

void Tokenizer::set_padding(std::optional<PaddingOptions> padding) {
  if (padding) {
    LEVIN_CHECK(padding->direction == "left" || padding->direction == "right", "text.padding",
                "got the direction '{}', wanted left or right", printable(padding->direction));
    LEVIN_CHECK(padding->length.value_or(0) >= 0 && padding->pad_to_multiple_of.value_or(0) >= 0,
                "text.padding",
                "got a padding length or pad_to_multiple_of below 0, wanted 0 or more");
  }
  parts_->padding = std::move(padding);
}

const std::optional<TruncationOptions>& Tokenizer::truncation() const { return parts_->truncation; }
const std::optional<PaddingOptions>& Tokenizer::padding() const { return parts_->padding; }

PaddingOptions Tokenizer::default_padding() const {
  const auto token = special_token("pad_token");
  LEVIN_CHECK(token, "text.padding", "the tokenizer has no pad_token; pass PaddingOptions");
  return {.direction = parts_->padding_side,
          .pad_id = special_token_id("pad_token").value_or(0),
          .pad_token = *token};
}

int32_t TokenizerParts::find(std::string_view token) const {
  const int32_t id = added.find(token);
  return id >= 0 ? id : model->vocabulary().find(token);
}

uint64_t TokenizerParts::fingerprint() const {
  uint64_t sum = digest;
  const auto add = [&](std::string_view text) {
    sum = files::xxh3(std::as_bytes(std::span(text)), sum + text.size());
  };
  for (const auto& [id, token] : added.all()) {
    add(token.content);
    add(std::to_string(id) + (token.single_word ? "w" : "") + (token.lstrip ? "l" : "") +
        (token.rstrip ? "r" : "") + (token.normalized ? "n" : "") + (token.special ? "s" : ""));
  }
  for (const auto& [role, token] : roles) {
    add(role);
    add(token);
  }
  if (splits_special) add("splits special tokens");
  if (!gives_types) add("no type ids");
  add(chat_template.value_or(""));
  for (const auto& [name, source] : chat_templates) {
    add(name);
    add(source);
  }
  return sum;
}

TruncationOptions Tokenizer::default_truncation() const {
  TruncationOptions options{.direction = parts_->truncation_side};
  if (parts_->model_max_length) options.max_length = *parts_->model_max_length;
  return options;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  const int32_t id = parts_->find(token);
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<std::string> Tokenizer::id_to_token(int32_t id) const {
  if (parts_->added.token(id) != nullptr) return std::string(parts_->added.decoded(id));
  const auto token = parts_->model->vocabulary().token(id);
  return token ? std::optional(std::string(*token)) : std::nullopt;
}

int64_t Tokenizer::vocab_size() const {
  auto size = static_cast<int64_t>(parts_->model->vocabulary().size());
  for (const auto& [id, token] : parts_->added.all()) {
    if (parts_->model->vocabulary().find(token.content) < 0) ++size;
  }
  return size;
}

std::vector<std::pair<int32_t, AddedToken>> Tokenizer::added_tokens() const {
  return parts_->added.all();
}

void Tokenizer::add_tokens(std::span<const AddedToken> tokens) {
  for (const AddedToken& token : tokens) {
    utf8::check(token.content);
    parts_->added.put(token, parts_->model->vocabulary(), parts_->normalizer);
  }
  parts_->added.finish();
}

std::optional<std::string> Tokenizer::special_token(std::string_view role) const {
  const auto found = parts_->roles.find(role);
  return found == parts_->roles.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int32_t> Tokenizer::special_token_id(std::string_view role) const {
  const auto token = special_token(role);
  return token ? token_to_id(*token) : std::nullopt;
}

std::optional<int64_t> Tokenizer::model_max_length() const { return parts_->model_max_length; }
const std::optional<std::string>& Tokenizer::chat_template() const { return parts_->chat_template; }

}  // namespace levin::text
