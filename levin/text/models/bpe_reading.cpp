// A model of BPE out of its file: the merges by ids, and where a piece can be cut.
#include <bit>
#include <limits>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/text/utf8.h"
#include "levin/text/models/bpe.h"
#include "levin/text/unicode/byte_letters.h"

namespace levin::text {
namespace {

std::string byte_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

char32_t first_of(std::string_view text) {
  size_t at = 0;
  return utf8::next(text, at);
}
char32_t last_of(std::string_view text) {
  size_t at = utf8::before(text, text.size());
  return utf8::next(text, at);
}

}  // namespace

void MergeTable::reserve(size_t merges) {
  merges_.assign(std::bit_ceil(merges + merges / 3 + 2), Merge{});
  mask_ = merges_.size() - 1;
}

void MergeTable::put(int32_t left, int32_t right, uint32_t rank, int32_t id) {
  auto& place = const_cast<Merge&>(find(left, right));
  place = {pair_of(left, right), rank, id};
}

Bpe::Bpe(const Component& component, const ModelData& data)
    : dropout_(component.has("dropout") ? component.at("dropout").number() : 0.0),
      unknown_(component.text("unk_token", "")),
      has_unknown_(component.has("unk_token")),
      prefix_(component.text("continuing_subword_prefix", "")),
      suffix_(component.text("end_of_word_suffix", "")),
      fuses_unknown_(component.flag("fuse_unk", false)),
      falls_back_(component.flag("byte_fallback", false)),
      ignores_merges_(component.flag("ignore_merges", false)) {
  if (!(dropout_ >= 0.0 && dropout_ <= 1.0)) component.at("dropout").fail("is not between 0 and 1");
  if (!data.has_merges) component.fail("has no merges");
  vocabulary_ = read_vocabulary(component, data);
  if (has_unknown_) unknown_id_ = vocabulary_.find(unknown_);
  knows_all_ = falls_back_;
  for (size_t byte = 0; byte < 256; ++byte) {
    byte_tokens_[byte] = vocabulary_.find(byte_token(static_cast<uint8_t>(byte)));
    knows_all_ = knows_all_ && byte_tokens_[byte] >= 0;
  }
  read_merges(component, data);
  find_joints(data);
}

void Bpe::read_merges(const Component& component, const ModelData& data) {
  merges_.reserve(data.merges.size());
  std::string joined;
  uint32_t rank = 0;
  int32_t joined_id = Vocabulary::kNone;
  for (const auto& [left, right] : data.merges) {
    const auto id_of = [&](std::string_view token) {
      const int32_t id = vocabulary_.find(token);
      if (id < 0) {
        component.fail(fmt::format("has a merge of '{}' and '{}', but no token '{}'",
                                   printable(left), printable(right), printable(token)));
      }
      return id;
    };
    const int32_t left_id = id_of(left);
    const int32_t right_id = id_of(right);
    if (right.size() < prefix_.size()) component.fail("has a merge shorter than its prefix");
    const std::string_view rest = right.substr(prefix_.size());
    // The results of merges usually have ids in the merges' order.
    joined_id = joined_id == std::numeric_limits<int32_t>::max() ? 0 : joined_id + 1;
    if (!vocabulary_.is_joined(joined_id, left, rest)) {
      joined.assign(left);
      joined += rest;
      joined_id = id_of(joined);
    }
    merges_.put(left_id, right_id, rank++, joined_id);
  }
}

void Bpe::find_joints(const ModelData& data) {
  // With a prefix or suffix a character is another token at an end, so no part is like the full
  // piece.
  if (!prefix_.empty() || !suffix_.empty() || dropout_ > 0.0) return;
  joints_.assign(kJointBits / 64, 0);
  for (const auto& [left, right] : data.merges) {
    // A token that stands for an unknown character has no first and last character.
    const auto is_substitute = [&](std::string_view token) {
      return (has_unknown_ && token == unknown_) ||
             (falls_back_ && token.size() == 6 && token.starts_with("<0x") && token.ends_with(">"));
    };
    if (left.empty() || right.empty() || is_substitute(left) || is_substitute(right)) return;
    const size_t joint = joint_of(last_of(left), first_of(right));
    joints_[joint / 64] |= uint64_t{1} << joint % 64;
  }
  has_cuts_ = true;
}

bool Bpe::take_bytes() {
  for (size_t place = 0; place < 4; ++place) {
    for (size_t byte = 0; byte < 256; ++byte) {
      std::string token = place & 1 ? prefix_ : "";
      utf8::append(token, byte_letter(static_cast<uint8_t>(byte)));
      if (place & 2) token += suffix_;
      byte_symbols_[place][byte] = vocabulary_.find(token);
      const bool comes = byte < 0xf5 && byte != 0xc0 && byte != 0xc1;  // in UTF-8
      if (comes && byte_symbols_[place][byte] < 0) return false;
    }
  }
  of_bytes_ = true;
  if (has_cuts_) {
    // The same joints, by bytes: 256 times 256 of them.
    std::vector<uint64_t> joints(1024, 0);
    for (size_t left = 0; left < 256; ++left) {
      for (size_t right = 0; right < 256; ++right) {
        const size_t joint = joint_of(byte_letter(static_cast<uint8_t>(left)),
                                      byte_letter(static_cast<uint8_t>(right)));
        const uint64_t bit = joints_[joint / 64] >> joint % 64 & 1;
        joints[(left << 8 | right) / 64] |= bit << right % 64;
      }
    }
    joints_ = std::move(joints);
  }
  return true;
}

ModelPtr read_bpe(const Component& component, const ModelData& data) {
  return std::make_unique<Bpe>(component, data);
}

}  // namespace levin::text
