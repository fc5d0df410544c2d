#include "levin/comm/environment/token.h"

#include <random>

#include "levin/base/check.h"
#include "levin/comm/environment/siphash.h"

namespace levin::comm {

// libstdc++'s random_device asks the processor or the kernel, and keeps no state.
std::string new_token() {
  std::random_device random;
  std::string token;
  for (int word = 0; word < 4; ++word) token += fmt::format("{:08x}", random());
  return token;
}

std::string key_word(std::string_view token) {
  if (token.empty()) return "";
  const auto word = siphash(siphash({}, token), "keys");
  return fmt::format("{:016x}{:016x}", word[0], word[1]);
}

bool same_token(std::string_view one, std::string_view other) {
  if (one.size() != other.size()) return false;
  unsigned different = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    different |= static_cast<unsigned char>(one[i]) ^ static_cast<unsigned char>(other[i]);
  }
  return different == 0;
}

}  // namespace levin::comm
