#include "levin/accelerator/engine/same_options.h"

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/options/placed_fields.h"
#include "levin/base/state.h"

namespace levin::detail {
namespace {

struct Describe {
  std::string operator()(const SgdOptions& o) const {
    return fmt::format(
        "lr {}, momentum {}, dampening {}, weight_decay {}, nesterov {}, maximize {}", o.lr,
        o.momentum, o.dampening, o.weight_decay, o.nesterov, o.maximize);
  }
  template <class Adam>
  std::string operator()(const Adam& o) const {
    return fmt::format("lr {}, betas {} {}, eps {}, weight_decay {}, amsgrad {}, maximize {}", o.lr,
                       o.betas.first, o.betas.second, o.eps, o.weight_decay, o.amsgrad, o.maximize);
  }
  std::string operator()(const TorchOptimizerOptions& o) const {
    return fmt::format("lr {}", o.lr);
  }
};

std::string or_none(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "none";
}

std::string text_of(const OptimizerConfig& config) {
  std::string text = fmt::format("{} of {} ({})", config.name(), config.pattern(),
                                 std::visit(Describe(), config.kind()));
  for (const OptimizerConfig::Group& group : config.groups()) {
    text += fmt::format(", group {} (lr {}, weight_decay {})", group.pattern,
                        or_none(group.options.lr), or_none(group.options.weight_decay));
  }
  return text + fmt::format(", frequency {}, schedule {}", config.frequency(),
                            config.schedule() ? config.schedule()->name : "none");
}

}  // namespace

std::map<std::string, std::string> optimizers_as_text(const std::vector<OptimizerConfig>& configs) {
  std::map<std::string, std::string> text{{"optimizers", std::to_string(configs.size())}};
  for (size_t i = 0; i < configs.size(); ++i)
    text["optimizer " + std::to_string(i)] = text_of(configs[i]);
  return text;
}

void check_same_options(comm::ProcessGroup& world,
                        const std::map<std::string, std::string>& options,
                        const std::vector<std::string>& own) {
  if (world.size() == 1) return;
  State mine;
  for (const auto& [name, value] : options) {
    const auto is_own = [&](const std::string& pattern) { return stands_for(pattern, name); };
    if (std::ranges::none_of(own, is_own)) mine.set(name, value);
  }
  const std::vector<State> ranks = world.all_gather(mine);
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    for (const auto& [name, value] : ranks.front().values()) {
      const std::string first = ranks.front().text(name);
      const std::string other = ranks[rank].contains(name) ? ranks[rank].text(name) : "nothing";
      LEVIN_CHECK(
          first == other, "accelerator.options",
          "rank {} has {} = '{}', but rank 0 has '{}'; start every rank with the same options",
          rank, name, printable(other), printable(first));
    }
  }
}

}  // namespace levin::detail
