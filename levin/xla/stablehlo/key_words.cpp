#include "levin/xla/stablehlo/key_words.h"

#include <bit>
#include <type_traits>

#include "levin/comm/collectives/named_group.h"

namespace levin::xla {
namespace {

template <class List>
void add_list(KeyWords& words, KeyTag tag, const List& list) {
  add_tag(words, tag);
  words.push_back(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    if constexpr (std::is_same_v<List, c10::List<double>>) {
      words.push_back(std::bit_cast<uint64_t>(list.get(i)));
    } else {
      words.push_back(static_cast<uint64_t>(list.get(i)));
    }
  }
}

void add_word(KeyWords& words, KeyTag tag, uint64_t word) {
  add_tag(words, tag);
  words.push_back(word);
}

void add_text(KeyWords& words, std::string_view text) {
  add_word(words, KeyTag::kText, text.size());
  for (const char letter : text) words.push_back(static_cast<unsigned char>(letter));
}

uint64_t word_of(c10::Device device) {
  return static_cast<uint64_t>(device.type()) << 8U | static_cast<uint8_t>(device.index());
}

}  // namespace

bool add_constant(KeyWords& words, const c10::IValue& constant) {
  if (constant.isNone()) {
    add_tag(words, KeyTag::kNone);
  } else if (constant.isBool()) {
    add_word(words, KeyTag::kBool, constant.toBool() ? 1 : 0);
  } else if (constant.isInt()) {
    add_word(words, KeyTag::kInteger, static_cast<uint64_t>(constant.toInt()));
  } else if (constant.isDouble()) {
    add_word(words, KeyTag::kFloating, std::bit_cast<uint64_t>(constant.toDouble()));
  } else if (constant.isString()) {
    add_text(words, constant.toStringView());
  } else if (constant.isIntList()) {
    add_list(words, KeyTag::kIntegers, constant.toIntList());
  } else if (constant.isDoubleList()) {
    add_list(words, KeyTag::kFloatings, constant.toDoubleList());
  } else if (constant.isBoolList()) {
    add_list(words, KeyTag::kFlags, constant.toBoolList());
  } else if (constant.isDevice()) {
    add_word(words, KeyTag::kDevice, word_of(constant.toDevice()));
  } else if (const auto group = comm::NamedGroup::in(constant)) {
    add_text(words, group->name());
  } else {
    return false;
  }
  return true;
}

uint64_t hash_of(const KeyWords& words) {
  uint64_t hash = words.size();
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 29U;
  }
  return hash;
}

}  // namespace levin::xla
