#include "levin/text/models/vocabulary.h"

#include <bit>

#include "levin/base/check.h"
#include "levin/text/models/hash.h"

namespace levin::text {
namespace {

// Ids are places in a table of embeddings: what is far beyond is a mistake of the file, and must not
// cost memory.
constexpr int32_t kDense = 1 << 22;

}  // namespace

void Vocabulary::reserve(size_t tokens, size_t bytes) {
  arena_.reserve(bytes);
  entries_.reserve(tokens);
  by_id_.reserve(tokens);
  grow(tokens);
}

void Vocabulary::grow(size_t tokens) {
  const size_t wanted = std::bit_ceil(tokens + tokens / 3 + 16);
  if (wanted <= slots_.size()) return;
  std::vector<Slot> old(wanted);
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.entry == 0) continue;
    size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].entry != 0) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

const Vocabulary::Slot& Vocabulary::slot_of(std::string_view token, uint32_t hash) const {
  size_t at = hash & (slots_.size() - 1);
  while (true) {
    const Slot& slot = slots_[at];
    if (slot.entry == 0) return slot;
    if (slot.hash == hash && text_of(entries_[slot.entry - 1]) == token) return slot;
    at = (at + 1) & (slots_.size() - 1);
  }
}

void Vocabulary::add(std::string_view token, int32_t id) {
  LEVIN_CHECK(arena_.size() + token.size() < ~uint32_t{0}, "text.file",
              "the vocabulary has more than 4 GB of tokens");
  grow(entries_.size() + 1);
  const auto hash = static_cast<uint32_t>(hash_of(token));
  const Slot& slot = slot_of(token, hash);
  uint32_t number = slot.entry;
  if (number == 0) {
    entries_.push_back(
        {static_cast<uint32_t>(arena_.size()), static_cast<uint32_t>(token.size()), id});
    arena_ += token;
    number = static_cast<uint32_t>(entries_.size());
    slots_[static_cast<size_t>(&slot - slots_.data())] = {hash, number};
  } else {
    entries_[number - 1].id = id;
  }
  if (id >= kDense) {
    beyond_[id] = number;
    return;
  }
  if (static_cast<size_t>(id) >= by_id_.size()) {
    by_id_.resize(std::max(static_cast<size_t>(id) + 1, by_id_.size() + by_id_.size() / 2));
  }
  by_id_[static_cast<size_t>(id)] = number;
}

int32_t Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return kNone;
  const Slot& slot = slot_of(token, static_cast<uint32_t>(hash_of(token)));
  return slot.entry == 0 ? kNone : entries_[slot.entry - 1].id;
}

const Vocabulary::Entry* Vocabulary::entry_of(int32_t id) const {
  uint32_t number = 0;
  if (id >= kDense) {
    const auto found = beyond_.find(id);
    if (found != beyond_.end()) number = found->second;
  } else if (id >= 0 && static_cast<size_t>(id) < by_id_.size()) {
    number = by_id_[static_cast<size_t>(id)];
  }
  return number == 0 ? nullptr : &entries_[number - 1];
}

std::optional<std::string_view> Vocabulary::token(int32_t id) const {
  const Entry* const entry = entry_of(id);
  return entry == nullptr ? std::nullopt : std::optional(text_of(*entry));
}

bool Vocabulary::is_joined(int32_t id, std::string_view first, std::string_view second) const {
  const Entry* const entry = entry_of(id);
  // A token that came twice has the later id.
  return entry != nullptr && entry->id == id && entry->size == first.size() + second.size() &&
         text_of(*entry).starts_with(first) && text_of(*entry).ends_with(second);
}

}  // namespace levin::text
