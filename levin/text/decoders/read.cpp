#include <algorithm>
#include <optional>

#include "levin/base/check.h"
#include "levin/base/text/utf8.h"
#include "levin/text/decoders/decoder.h"
#include "levin/text/patterns/pattern.h"
#include "levin/text/unicode/byte_letters.h"

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

Decoder sequence_decoder(const Component& component) {
  return [parts = read_parts(component.at("decoders"), read_decoder)](Tokens& tokens) {
    for (const Decoder& part : parts) part(tokens);
  };
}

Decoder bpe_decoder(const Component& component) {
  return [suffix = component.text("suffix", "</w>")](Tokens& tokens) {
    for (std::string& token : tokens) {
      replace_all(token, suffix, &token == &tokens.back() ? "" : " ");
    }
  };
}

void read_byte_letters(Tokens& tokens) {
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

Decoder word_piece_decoder(const Component& component) {
  return [prefix = component.text("prefix", "##"),
          cleans_up = component.flag("cleanup", true)](Tokens& tokens) {
    bool first = true;
    for (std::string& token : tokens) {
      if (!first) {
        if (token.starts_with(prefix)) {
          token.erase(0, prefix.size());
        } else {
          token.insert(0, " ");
        }
      }
      first = false;
      if (cleans_up) clean_up(token);
    }
  };
}

Decoder metaspace_decoder(const Component& component) {
  std::string sign;
  utf8::append(sign, component.code_point("replacement"));
  const bool prepends = component.text("prepend_scheme", "always") != "never" &&
                        component.flag("add_prefix_space", true);
  return [=](Tokens& tokens) {
    for (std::string& token : tokens) {
      replace_all(token, sign, prepends && &token == &tokens.front() ? "" : " ");
    }
  };
}

Decoder ctc_decoder(const Component& component) {
  return [pad = component.text("pad_token", "<pad>"),
          delimiter = component.text("word_delimiter_token", "|"),
          cleans_up = component.flag("cleanup", true)](Tokens& tokens) {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      replace_all(token, pad, "");
      if (cleans_up) {
        clean_up(token);
        replace_all(token, delimiter, " ");
      }
    }
    std::erase_if(tokens, [](const std::string& token) { return token.empty(); });
  };
}

Decoder replace_decoder(const Component& component) {
  return [pattern = std::shared_ptr(read_pattern(component.at("pattern"))),
          content = component.at("content").text()](Tokens& tokens) {
    std::vector<Bytes> matches;
    for (std::string& token : tokens) {
      matches.clear();
      pattern->find(token, matches);
      if (matches.empty()) continue;
      std::string made;
      size_t at = 0;
      for (const Bytes match : matches) {
        made.append(token, at, match.begin - at);
        made += content;
        at = match.end;
        LEVIN_CHECK(made.size() < kMostBytes, "text.length",
                    "tokenizer.json expands a token to more than {} bytes", kMostBytes);
      }
      made.append(token, at);
      token = std::move(made);
    }
  };
}

void fuse_tokens(Tokens& tokens) {
  std::string all;
  for (const std::string& token : tokens) all += token;
  tokens.assign(1, std::move(all));
}

Decoder strip_decoder(const Component& component) {
  std::string content;
  utf8::append(content, component.code_point("content"));
  return
      [=, start = component.whole("start", 0), stop = component.whole("stop", 0)](Tokens& tokens) {
        for (std::string& token : tokens) {
          for (int64_t i = 0; i < start && token.starts_with(content); ++i) {
            token.erase(0, content.size());
          }
          for (int64_t i = 0; i < stop && token.ends_with(content); ++i) {
            token.erase(token.size() - content.size());
          }
        }
      };
}

std::optional<uint8_t> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
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

void read_byte_tokens(Tokens& tokens) {
  Tokens made;
  std::string bytes;  // bytes of the byte tokens before this one
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

/// A kind without options.
template <void (*apply)(Tokens&)>
Decoder plain_decoder(const Component&) {
  return apply;
}

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

Decoder read_decoder(const Component& component) {
  return read_kind<Decoder>(component, "decoder",
                            {{"Sequence", sequence_decoder},
                             {"BPEDecoder", bpe_decoder},
                             {"ByteLevel", plain_decoder<read_byte_letters>},
                             {"WordPiece", word_piece_decoder},
                             {"Metaspace", metaspace_decoder},
                             {"CTC", ctc_decoder},
                             {"Replace", replace_decoder},
                             {"Fuse", plain_decoder<fuse_tokens>},
                             {"Strip", strip_decoder},
                             {"ByteFallback", plain_decoder<read_byte_tokens>}});
}

}  // namespace levin::text
