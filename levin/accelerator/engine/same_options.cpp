#include "levin/accelerator/engine/same_options.h"

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/base/options/placed_fields.h"
#include "levin/base/state.h"

namespace levin::detail {
namespace {

std::string or_none(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "none";
}

/// Returns the schedule's name, with what it counts and follows.
std::string text_of(const std::optional<Schedule>& schedule) {
  if (!schedule) return "none";
  const bool by_epoch = schedule->interval == Schedule::Interval::kEpoch;
  std::string text = schedule->name;
  if (schedule->interval == Schedule::Interval::kHand) {
    text += " by hand";
  } else if (by_epoch || schedule->frequency != 1) {
    text += fmt::format(" by {} {}", schedule->frequency, by_epoch ? "epochs" : "steps");
  }
  if (!schedule->plateau) return text;
  const PlateauOptions& o = *schedule->plateau;
  return text + fmt::format(
                    " (monitor {}, mode {}, factor {}, patience {}, threshold {}, threshold_mode "
                    "{}, cooldown {}, min_lr {}, eps {}, strict {})",
                    o.monitor, o.mode, o.factor, o.patience, o.threshold, o.threshold_mode,
                    o.cooldown, o.min_lr, o.eps, o.strict);
}

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
  std::string operator()(const NAdamOptions& o) const {
    return fmt::format(
        "lr {}, betas {} {}, eps {}, weight_decay {}, momentum_decay {}, decoupled {}, maximize {}",
        o.lr, o.betas.first, o.betas.second, o.eps, o.weight_decay, o.momentum_decay,
        o.decoupled_weight_decay, o.maximize);
  }
  std::string operator()(const RAdamOptions& o) const {
    return fmt::format("lr {}, betas {} {}, eps {}, weight_decay {}, decoupled {}, maximize {}",
                       o.lr, o.betas.first, o.betas.second, o.eps, o.weight_decay,
                       o.decoupled_weight_decay, o.maximize);
  }
  std::string operator()(const LionOptions& o) const {
    return fmt::format("lr {}, betas {} {}, weight_decay {}", o.lr, o.betas.first, o.betas.second,
                       o.weight_decay);
  }
  std::string operator()(const AdafactorOptions& o) const {
    return fmt::format(
        "lr {}, eps {} {}, clip_threshold {}, decay_rate {}, beta1 {}, weight_decay {}, "
        "scale_parameter {}, relative_step {}, warmup_init {}",
        or_none(o.lr), o.eps.first, o.eps.second, o.clip_threshold, o.decay_rate, or_none(o.beta1),
        o.weight_decay, o.scale_parameter, o.relative_step, o.warmup_init);
  }
  std::string operator()(const MuonOptions& o) const {
    return fmt::format(
        "lr {}, weight_decay {}, momentum {}, nesterov {}, ns_coefficients {} {} {}, eps {}, "
        "ns_steps {}, adjust_lr_fn {}",
        o.lr, o.weight_decay, o.momentum, o.nesterov, o.ns_coefficients[0], o.ns_coefficients[1],
        o.ns_coefficients[2], o.eps, o.ns_steps, o.adjust_lr_fn);
  }
  std::string operator()(const TorchOptimizerOptions& o) const {
    return fmt::format("lr {}, weight_decay {}", o.lr, o.weight_decay);
  }
};

std::string text_of(const OptimizerConfig& config) {
  std::string text = fmt::format("{} of {} ({})", config.name(), config.pattern(),
                                 std::visit(Describe(), config.kind()));
  for (const OptimizerConfig::Group& group : config.groups()) {
    text += fmt::format(", group {} (lr {}, weight_decay {})", group.pattern,
                        or_none(group.options.lr), or_none(group.options.weight_decay));
  }
  if (config.decays_only_weights()) text += ", decay_only_weights";
  if (config.filter()) text += ", parameters_if";
  return text +
         fmt::format(", frequency {}, schedule {}", config.frequency(), text_of(config.schedule()));
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
