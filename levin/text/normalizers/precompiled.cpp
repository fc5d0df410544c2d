// Precompiled: SentencePiece's map of characters, a double array over UTF-8 and the texts that it points to.
#include <cstring>
#include <optional>

#include "levin/base/text/utf8.h"
#include "levin/text/normalizers/normalizer.h"
#include "levin/text/unicode/base64.h"
#include "levin/text/unicode/graphemes.h"

namespace levin::text {
namespace {

/// SentencePiece's own: an array of units, each a label, an offset to its children and a sign whether a
/// value hangs below.
class CharacterMap {
 public:
  explicit CharacterMap(const Component& component) {
    const Component field = component.at("precompiled_charsmap");
    const auto bytes = from_base64(field.text());
    if (!bytes) field.fail("is not base64");
    uint32_t size = 0;
    if (bytes->size() >= 4) std::memcpy(&size, bytes->data(), 4);
    if (bytes->size() < 4 || size > bytes->size() - 4 || size < 4) {
      field.fail("is cut off");
    }
    units_.resize(size / 4);
    std::memcpy(units_.data(), bytes->data() + 4, units_.size() * 4);
    texts_ = bytes->substr(4 + units_.size() * 4);
    if (utf8::invalid_byte(texts_) != std::string_view::npos)
      field.fail("holds texts that are not UTF-8");
  }

  /// Returns the replacement of the shortest prefix that the map has.
  std::optional<std::string_view> find(std::string_view text) const {
    size_t node = offset(units_[0]);
    for (const char c : text) {
      const auto byte = static_cast<uint8_t>(c);
      node ^= byte;
      if (byte == 0 || node >= units_.size()) return std::nullopt;
      const uint32_t unit = units_[node];
      if ((unit & (1U << 31 | 0xff)) != byte) return std::nullopt;
      node ^= offset(unit);
      if (unit >> 8 & 1) return node < units_.size() ? text_at(units_[node]) : std::nullopt;
    }
    return std::nullopt;
  }

 private:
  static size_t offset(uint32_t unit) {
    return static_cast<size_t>(unit >> 10) << ((unit & 1U << 9) >> 6);
  }

  std::optional<std::string_view> text_at(uint32_t leaf) const {
    const size_t begin = leaf & ~(1U << 31);
    if (begin > texts_.size() || (begin < texts_.size() && utf8::is_inner(texts_[begin]))) {
      return std::nullopt;
    }
    const std::string_view rest = std::string_view(texts_).substr(begin);
    return rest.substr(0, rest.find('\0'));
  }

  std::vector<uint32_t> units_;
  std::string texts_;  // each ends with a zero
};

class Precompiled {
 public:
  explicit Precompiled(const Component& component) : map_(component) {
    for (size_t byte = 1; byte < 128; ++byte) {
      const char c = static_cast<char>(byte);
      changes_ascii_[byte] = map_.find({&c, 1}).has_value();
    }
  }

  void operator()(WorkingText& text) const {
    if (is_plain(text.text())) return;
    std::vector<Change>& changes = text.changes();
    bool changed = false;
    const std::string_view old = text.text();
    for (size_t at = 0; at < old.size();) {
      const bool alone =
          is_ascii(old[at]) && (at + 1 == old.size() || is_ascii(old[at + 1])) && old[at] != '\r';
      const size_t end = alone ? at + 1 : unicode::grapheme_end(old, at);
      const std::string_view grapheme = old.substr(at, end - at);
      at = end;
      const bool is_short = grapheme.size() < 6;
      if (is_short && put_mapped(grapheme, changes)) {
        changed = true;
        continue;
      }
      const bool was_asked = is_short && utf8::length(grapheme.front()) == grapheme.size();
      for (size_t inner = 0; inner < grapheme.size();) {
        const size_t begin = inner;
        const char32_t c = utf8::next(grapheme, inner);
        if (!was_asked && put_mapped(grapheme.substr(begin, inner - begin), changes)) {
          changed = true;
        } else {
          changes.push_back({c, 0});
        }
      }
    }
    if (changed) text.transform(changes);
  }

 private:
  static bool is_ascii(char c) { return static_cast<uint8_t>(c) < 0x80; }

  /// Nothing but bytes that the map leaves alone.
  bool is_plain(std::string_view text) const {
    for (const char c : text) {
      if (!is_ascii(c) || changes_ascii_[static_cast<uint8_t>(c)]) return false;
    }
    return true;
  }

  bool put_mapped(std::string_view part, std::vector<Change>& changes) const {
    const auto to = map_.find(part);
    if (!to) return false;
    const auto old_count = static_cast<int>(utf8::count(part));
    const auto new_count = static_cast<int>(utf8::count(*to));
    int place = 0;
    for (size_t at = 0; at < to->size(); ++place) {
      changes.push_back({utf8::next(*to, at), place >= old_count ? 1 : 0});
    }
    // Whoever stands last takes with it what has no successor, as Python's library has it.
    if (new_count < old_count && !changes.empty()) changes.back().replaces += new_count - old_count;
    return true;
  }

  CharacterMap map_;
  bool changes_ascii_[128] = {};
};

}  // namespace

Normalizer read_precompiled(const Component& component) { return {Precompiled(component)}; }

}  // namespace levin::text
