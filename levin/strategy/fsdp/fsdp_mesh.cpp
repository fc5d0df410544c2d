#include "levin/strategy/fsdp/fsdp_mesh.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string>

#include "levin/base/check.h"
#include "levin/strategy/fsdp/hosts.h"

namespace levin::fsdp {
namespace {

constexpr std::array<std::string_view, 3> kReplicate = {"replicate", "dp_replicate", "dp"};
constexpr std::array<std::string_view, 3> kShard = {"fsdp", "dp_shard", "shard"};

struct Sizes {
  std::optional<int64_t> replicate;
  std::optional<int64_t> shard;
};

[[noreturn]] void refuse(std::string_view text) {
  LEVIN_FAIL(
      "strategy.fsdp.mesh",
      "got --mesh '{}', wanted hosts, or numbers of ranks such as replicate=2,fsdp=4: so many "
      "copies of the parameters, each sharded over so many ranks",
      text);
}

/// Returns 0 for what is no number.
int64_t size_in(std::string_view text) {
  int64_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  return error == std::errc() && end == text.data() + text.size() ? size : 0;
}

Sizes sizes_in(std::string_view text) {
  if (text.ends_with(',')) refuse(text);
  Sizes sizes;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) refuse(text);
    const std::string_view name = item.substr(0, equals);
    const int64_t size = size_in(item.substr(equals + 1));
    if (size < 1) refuse(text);
    const bool is_shard = std::ranges::find(kShard, name) != kShard.end();
    if (!is_shard && std::ranges::find(kReplicate, name) == kReplicate.end()) refuse(text);
    std::optional<int64_t>& axis = is_shard ? sizes.shard : sizes.replicate;
    if (axis) refuse(text);
    axis = size;
  }
  return sizes;
}

}  // namespace

comm::MeshShape fsdp_mesh_shape(std::string_view text, int64_t num_ranks, int64_t num_hosts) {
  Sizes sizes = text == "hosts" ? Sizes{.replicate = num_hosts, .shard = {}} : sizes_in(text);
  if (!sizes.replicate) sizes.replicate = sizes.shard ? num_ranks / *sizes.shard : 1;
  if (!sizes.shard) sizes.shard = num_ranks / *sizes.replicate;
  LEVIN_CHECK(*sizes.replicate * *sizes.shard == num_ranks, "strategy.fsdp.mesh",
              "got --mesh '{}' for {} ranks, wanted sizes whose product is {}", text, num_ranks,
              num_ranks);
  if (*sizes.replicate == 1) return {{"fsdp", *sizes.shard}};
  return {{"replicate", *sizes.replicate}, {"fsdp", *sizes.shard}};
}

comm::DeviceMesh fsdp_mesh(std::string_view text, comm::ProcessGroup& group) {
  return {group, fsdp_mesh_shape(text, group.size(), text == "hosts" ? num_hosts(group) : 1)};
}

}  // namespace levin::fsdp
