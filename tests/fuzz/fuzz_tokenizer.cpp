// libFuzzer: a tokenizer.json, and behind a zero a text. Tokenizer::from_json, encode and decode throw levin::Error, or
// give the same ids with offsets and without, and offsets within the text. What the fast way finds in the file is what
// the parser finds.
//
//   fuzz_tokenizer -max_total_time=20

#include <cstdlib>
#include <string_view>

#include "levin/base/error.h"
#include "levin/base/log_sink.h"
#include "levin/text/reading/tokenizer_file.h"
#include "levin/text/tokenizer.h"
#include "tests/fuzz/limits.h"

namespace {

using levin::text::Encoding;
using levin::text::OffsetUnit;
using levin::text::Tokenizer;
using levin::text::TokenizerFile;

/// Aborts where the two ways to read a file differ.
void check_ways(std::string_view json) {
  std::string told[2];
  size_t tokens[2] = {};
  size_t merges[2] = {};
  for (const auto way : {TokenizerFile::Way::kPlain, TokenizerFile::Way::kParser}) {
    const auto i = static_cast<size_t>(way);
    try {
      const TokenizerFile file(json, way);
      for (const auto& [token, id] : file.model().vocabulary) {
        tokens[i] = tokens[i] * 31 + std::hash<std::string_view>()(token) + static_cast<size_t>(id);
      }
      for (const auto& [left, right] : file.model().merges) {
        merges[i] = merges[i] * 31 + std::hash<std::string_view>()(left) +
                    7 * std::hash<std::string_view>()(right);
      }
    } catch (const levin::Error& error) {
      told[i] = error.what();
    }
  }
  if (told[0] != told[1] || tokens[0] != tokens[1] || merges[0] != merges[1]) std::abort();
}

void check(const Encoding& encoding, std::string_view text) {
  const size_t size = encoding.ids.size();
  const bool whole = encoding.type_ids.size() == size && encoding.attention_mask.size() == size &&
                     encoding.special_tokens_mask.size() == size &&
                     encoding.offsets.size() == size && encoding.word_ids.size() == size &&
                     encoding.sequence_ids.size() == size;
  if (!whole) std::abort();
  for (const auto& offset : encoding.offsets) {
    if (offset.begin < 0 || offset.end < 0) std::abort();
  }
  for (const Encoding& more : encoding.overflowing) check(more, text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Of keys that it does not know levin tells at each file.
  static const auto kQuiet = levin::log::set_sink([](levin::log::Level, std::string_view) {});
  const Limits limits(size);
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t zero = all.find('\0');
  std::string_view text = "Hello  World's 123 caf\u00e9 e\u0301 \u6f22\u5b57 <s>\n";
  if (zero != std::string_view::npos) text = all.substr(zero + 1, 256);
  check_ways(all.substr(0, zero));
  try {
    const Tokenizer tokenizer = Tokenizer::from_json(all.substr(0, zero));
    const Encoding encoding = tokenizer.encode(text);
    check(encoding, text);
    check(tokenizer.encode(text, {.offsets = OffsetUnit::kCodePoints}), text);
    const bool draws = all.find("dropout") != std::string_view::npos;
    if (!draws && tokenizer.encode(text, {.offsets = OffsetUnit::kNone}).ids != encoding.ids)
      std::abort();
    tokenizer.decode(encoding.ids);
  } catch (const levin::Error&) {
  }
  return 0;
}
