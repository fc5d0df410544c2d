#include "levin/launch/rendezvous/seal.h"

#include <fmt/format.h>

#include "levin/comm/environment/siphash.h"
#include "levin/comm/environment/token.h"

namespace levin::launch {
namespace {

constexpr size_t kSealLetters = 32;

std::string seal_of(std::string_view token, std::string_view key, std::string_view text) {
  const auto secret = comm::siphash({}, token);
  const auto seal = comm::siphash(secret, fmt::format("{}:{}:{}", key.size(), key, text));
  return fmt::format("{:016x}{:016x}", seal[0], seal[1]);
}

}  // namespace

std::string sealed(std::string_view token, std::string_view key, std::string_view text) {
  return token.empty() ? std::string(text) : seal_of(token, key, text).append(text);
}

std::optional<std::string> opened(std::string_view token, std::string_view key,
                                  std::string_view word) {
  if (token.empty()) return std::string(word);
  if (word.size() < kSealLetters) return std::nullopt;
  const std::string_view text = word.substr(kSealLetters);
  if (!comm::same_token(word.substr(0, kSealLetters), seal_of(token, key, text))) {
    return std::nullopt;
  }
  return std::string(text);
}

}  // namespace levin::launch
