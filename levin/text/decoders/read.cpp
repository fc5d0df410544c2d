#include <algorithm>
#include <optional>

#include "levin/base/check.h"
#include "levin/text/decoders/decoder.h"
#include "levin/text/patterns/pattern.h"
#include "levin/text/unicode/byte_letters.h"
#include "levin/text/unicode/utf8.h"

namespace levin::text {
namespace {

using Tokens = std::vector<std::string>;

constexpr size_t kMostBytes = 1U << 26;

/// Blanks that tokenization left before marks and in English short forms.
void clean_up(std::string& text) {
  constexpr std::pair<std::string_view, std::string_view> kReplaced[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kReplaced) replace_all(text, from, to);
}

class SequenceDecoder : public Decoder {
 public:
  explicit SequenceDecoder(const Component& component) {
    for (const Component& item : component.at("decoders").items()) {
      if (DecoderPtr part = read_decoder(item)) parts_.push_back(std::move(part));
    }
  }
  void apply(Tokens& tokens) const override {
    for (const DecoderPtr& part : parts_) part->apply(tokens);
  }

 private:
  std::vector<DecoderPtr> parts_;
};

class BpeDecoder : public Decoder {
 public:
  explicit BpeDecoder(const Component& component) : suffix_(component.text("suffix", "</w>")) {}
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      replace_all(token, suffix_, &token == &tokens.back() ? "" : " ");
    }
  }

 private:
  std::string suffix_;
};

class ByteLevelDecoder : public Decoder {
  void apply(Tokens& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) {
      const size_t begin = bytes.size();
      for (size_t at = 0; at < token.size();) {
        const int byte = letter_byte(utf8::next(token, at));
        if (byte < 0) {
          // Not all of it are letters for bytes: it stands for itself.
          bytes.resize(begin);
          bytes += token;
          break;
        }
        bytes += static_cast<char>(byte);
      }
    }
    tokens.assign(1, utf8::lossy(bytes));
  }
};

class WordPieceDecoder : public Decoder {
 public:
  explicit WordPieceDecoder(const Component& component)
      : prefix_(component.text("prefix", "##")), cleans_up_(component.flag("cleanup", true)) {}
  void apply(Tokens& tokens) const override {
    bool first = true;
    for (std::string& token : tokens) {
      if (!first) {
        if (token.starts_with(prefix_)) {
          token.erase(0, prefix_.size());
        } else {
          token.insert(0, " ");
        }
      }
      first = false;
      if (cleans_up_) clean_up(token);
    }
  }

 private:
  std::string prefix_;
  bool cleans_up_;
};

class MetaspaceDecoder : public Decoder {
 public:
  explicit MetaspaceDecoder(const Component& component) {
    utf8::append(sign_, component.code_point("replacement"));
    prepends_ = component.text("prepend_scheme", "always") != "never" &&
                component.flag("add_prefix_space", true);
  }
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      replace_all(token, sign_, prepends_ && &token == &tokens.front() ? "" : " ");
    }
  }

 private:
  std::string sign_;
  bool prepends_;
};

class Ctc : public Decoder {
 public:
  explicit Ctc(const Component& component)
      : pad_(component.text("pad_token", "<pad>")),
        delimiter_(component.text("word_delimiter_token", "|")),
        cleans_up_(component.flag("cleanup", true)) {}
  void apply(Tokens& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      replace_all(token, pad_, "");
      if (cleans_up_) {
        clean_up(token);
        replace_all(token, delimiter_, " ");
      }
    }
    std::erase_if(tokens, [](const std::string& token) { return token.empty(); });
  }

 private:
  std::string pad_;
  std::string delimiter_;
  bool cleans_up_;
};

class ReplaceDecoder : public Decoder {
 public:
  explicit ReplaceDecoder(const Component& component)
      : pattern_(read_pattern(component.at("pattern"))), content_(component.at("content").text()) {}
  void apply(Tokens& tokens) const override {
    std::vector<Bytes> matches;
    for (std::string& token : tokens) {
      matches.clear();
      pattern_->find(token, matches);
      if (matches.empty()) continue;
      std::string made;
      size_t at = 0;
      for (const Bytes match : matches) {
        made.append(token, at, match.begin - at);
        made += content_;
        at = match.end;
        LEVIN_CHECK(made.size() < kMostBytes, "text.length",
                    "the tokenizer's file makes more than {} bytes of a token", kMostBytes);
      }
      made.append(token, at);
      token = std::move(made);
    }
  }

 private:
  PatternPtr pattern_;
  std::string content_;
};

class FuseDecoder : public Decoder {
  void apply(Tokens& tokens) const override {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens.clear();
    tokens.push_back(std::move(all));
  }
};

class StripDecoder : public Decoder {
 public:
  explicit StripDecoder(const Component& component)
      : start_(component.whole("start", 0)), stop_(component.whole("stop", 0)) {
    utf8::append(content_, component.code_point("content"));
  }
  void apply(Tokens& tokens) const override {
    for (std::string& token : tokens) {
      for (int64_t i = 0; i < start_ && token.starts_with(content_); ++i) {
        token.erase(0, content_.size());
      }
      for (int64_t i = 0; i < stop_ && token.ends_with(content_); ++i) {
        token.erase(token.size() - content_.size());
      }
    }
  }

 private:
  std::string content_;
  int64_t start_;
  int64_t stop_;
};

class ByteFallbackDecoder : public Decoder {
  void apply(Tokens& tokens) const override {
    Tokens made;
    std::string bytes;  // of the byte tokens before
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (utf8::invalid_byte(bytes) == std::string_view::npos) {
        made.push_back(bytes);
      } else {
        made.insert(made.end(), bytes.size(), "\xef\xbf\xbd");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        bytes += static_cast<char>(*byte);
      } else {
        flush();
        made.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(made);
  }

  static std::optional<uint8_t> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>'))
      return std::nullopt;
    int value = 0;
    for (const char c : token.substr(3, 2)) {
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      // "+f" is a number to Rust.
      if (digit < 0 && !(c == '+' && &c == token.data() + 3)) return std::nullopt;
      value = value * 16 + std::max(digit, 0);
    }
    return static_cast<uint8_t>(value);
  }
};

}  // namespace

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  size_t at = text.find(from);
  if (at == std::string::npos) return;
  std::string made;
  size_t begin = 0;
  for (; at != std::string::npos; at = text.find(from, begin)) {
    made.append(text, begin, at - begin);
    made += to;
    begin = at + from.size();
  }
  made.append(text, begin);
  text = std::move(made);
}

DecoderPtr read_decoder(const Component& component) {
  if (component.is_null()) return nullptr;
  const std::string kind = component.kind();
  if (kind == "Sequence") return std::make_unique<SequenceDecoder>(component);
  if (kind == "BPEDecoder") return std::make_unique<BpeDecoder>(component);
  if (kind == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (kind == "WordPiece") return std::make_unique<WordPieceDecoder>(component);
  if (kind == "Metaspace") return std::make_unique<MetaspaceDecoder>(component);
  if (kind == "CTC") return std::make_unique<Ctc>(component);
  if (kind == "Replace") return std::make_unique<ReplaceDecoder>(component);
  if (kind == "Fuse") return std::make_unique<FuseDecoder>();
  if (kind == "Strip") return std::make_unique<StripDecoder>(component);
  if (kind == "ByteFallback") return std::make_unique<ByteFallbackDecoder>();
  component.refuse_kind("decoder", {"Sequence", "BPEDecoder", "ByteLevel", "WordPiece", "Metaspace",
                                    "CTC", "Replace", "Fuse", "Strip", "ByteFallback"});
}

}  // namespace levin::text
