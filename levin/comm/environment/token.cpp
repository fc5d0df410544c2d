#include "levin/comm/environment/token.h"

#include <random>

#include "levin/base/check.h"

namespace levin::comm {

// libstdc++'s random_device asks the processor or the kernel, and keeps no state.
std::string new_token() {
  std::random_device random;
  std::string token;
  for (int word = 0; word < 4; ++word) token += fmt::format("{:08x}", random());
  return token;
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
