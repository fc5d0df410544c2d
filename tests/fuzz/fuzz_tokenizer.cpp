// libFuzzer: a tokenizer.json, and behind a zero a text. Tokenizer::from_json, encode and decode throw levin::Error, or
// give the same ids with offsets and without, and offsets within the text.
//
//   fuzz_tokenizer -max_total_time=20

#include <cstdlib>
#include <string_view>

#include "levin/base/error.h"
#include "levin/text/tokenizer.h"

namespace {

using levin::text::Encoding;
using levin::text::OffsetUnit;
using levin::text::Tokenizer;

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
  const std::string_view all(reinterpret_cast<const char*>(data), size);
  const size_t zero = all.find('\0');
  std::string_view text = "Hello  World's 123 caf\u00e9 e\u0301 \u6f22\u5b57 <s>\n";
  if (zero != std::string_view::npos) text = all.substr(zero + 1, 256);
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
