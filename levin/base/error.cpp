#include "levin/base/error.h"

#include "levin/base/rank.h"

namespace levin {
namespace {

std::string compose(std::string_view id, std::string_view text) {
  std::string message(id);
  message.append(": ").append(text);
  const RankInfo rank = rank_from_environment();
  if (rank.world_size > 1) message += " [rank " + std::to_string(rank.rank) + "]";
  return message;
}

}  // namespace

Error::Error(std::string id, std::string_view text, std::string_view file, int line)
    : std::runtime_error(compose(id, text)),
      id_(std::move(id)),
      text_(text),
      where_(file.empty() ? "" : std::string(file) + ":" + std::to_string(line)),
      rank_(rank_from_environment().rank) {}

}  // namespace levin
