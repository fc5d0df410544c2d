#include "levin/comm/environment/siphash.h"

#include <bit>
#include <cstring>

namespace levin::comm {
namespace {

// The paper's four words: "somepseudorandomlygeneratedbytes".
constexpr std::array<uint64_t, 4> kStart = {0x736f6d6570736575, 0x646f72616e646f6d,
                                            0x6c7967656e657261, 0x7465646279746573};

using SipState = std::array<uint64_t, 4>;

void sip_rounds(SipState& v, int count) {
  for (; count > 0; --count) {
    v[0] += v[1];
    v[1] = std::rotl(v[1], 13) ^ v[0];
    v[0] = std::rotl(v[0], 32);
    v[2] += v[3];
    v[3] = std::rotl(v[3], 16) ^ v[2];
    v[0] += v[3];
    v[3] = std::rotl(v[3], 21) ^ v[0];
    v[2] += v[1];
    v[1] = std::rotl(v[1], 17) ^ v[2];
    v[2] = std::rotl(v[2], 32);
  }
}

void sip_take(SipState& v, uint64_t word) {
  v[3] ^= word;
  sip_rounds(v, 2);
  v[0] ^= word;
}

}  // namespace

// On machines of either byte order that the ranks of a job have alike.
std::array<uint64_t, 2> siphash(const std::array<uint64_t, 2>& key, std::string_view text) {
  SipState v = {key[0] ^ kStart[0], key[1] ^ kStart[1] ^ 0xee, key[0] ^ kStart[2],
                key[1] ^ kStart[3]};
  const uint64_t length = text.size();
  uint64_t word = 0;
  for (; text.size() >= sizeof word; text.remove_prefix(sizeof word)) {
    std::memcpy(&word, text.data(), sizeof word);
    sip_take(v, word);
  }
  word = 0;
  std::memcpy(&word, text.data(), text.size());
  sip_take(v, word | length << 56);
  v[2] ^= 0xee;
  sip_rounds(v, 4);
  const uint64_t first = v[0] ^ v[1] ^ v[2] ^ v[3];
  v[1] ^= 0xdd;
  sip_rounds(v, 4);
  return {first, v[0] ^ v[1] ^ v[2] ^ v[3]};
}

}  // namespace levin::comm
