#include "levin/base/rank.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace levin {
namespace {

void read(const char* variable, int64_t& value) {
  if (const char* text = std::getenv(variable)) {
    std::from_chars(text, text + std::strlen(text), value);
  }
}

}  // namespace

RankInfo rank_from_environment() {
  RankInfo info;
  read("RANK", info.rank);
  read("WORLD_SIZE", info.world_size);
  read("LOCAL_RANK", info.local_rank);
  read("LOCAL_WORLD_SIZE", info.local_world_size);
  return info;
}

}  // namespace levin
