// Optimizers and schedules that are chosen by name.

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

#include "levin/base/check.h"
#include "levin/optim/optim.h"

namespace levin::optim {
namespace {

using Texts = std::map<std::string, std::string>;

enum class Kind { kNumber, kCount, kSwitch, kText, kList };

struct OptionHelp {
  std::string_view name;
  Kind kind;
  std::string_view help;
};

constexpr std::array<OptionHelp, 27> kOptimizerOptions = {{
    {"lr", Kind::kNumber, "learning rate"},
    {"weight_decay", Kind::kNumber, "weight decay"},
    {"betas", Kind::kList, "decay of the averages of gradient and squared gradient: 0.9,0.999"},
    {"momentum", Kind::kNumber, "momentum factor of sgd, rmsprop and muon"},
    {"eps", Kind::kList, "added to the denominator; two numbers for adafactor"},
    {"dampening", Kind::kNumber, "sgd: dampening of the momentum"},
    {"nesterov", Kind::kSwitch, "sgd, muon: use Nesterov momentum"},
    {"amsgrad", Kind::kSwitch, "adam, adamw: use the AMSGrad variant"},
    {"maximize", Kind::kSwitch, "sgd, adam, adamw, nadam, radam: maximize the loss"},
    {"decay_only_weights", Kind::kSwitch,
     "apply weight decay to matrices only, not to biases and norms"},
    {"momentum_decay", Kind::kNumber, "nadam: decay of the momentum"},
    {"decoupled_weight_decay", Kind::kSwitch, "nadam, radam: weight decay as in adamw"},
    {"alpha", Kind::kNumber, "rmsprop: decay of the squared gradient's average"},
    {"centered", Kind::kSwitch, "rmsprop: divide by the estimated standard deviation"},
    {"lr_decay", Kind::kNumber, "adagrad: decay of the learning rate by the step"},
    {"initial_accumulator_value", Kind::kNumber, "adagrad: first sum of squared gradients"},
    {"clip_threshold", Kind::kNumber, "adafactor: largest root mean square of an update"},
    {"decay_rate", Kind::kNumber, "adafactor: exponent of the decay of the average"},
    {"beta1", Kind::kNumber, "adafactor: decay of the update's average"},
    {"scale_parameter", Kind::kSwitch, "adafactor: scale the rate by the parameter"},
    {"relative_step", Kind::kSwitch, "adafactor: the rate follows from the step; false: lr"},
    {"warmup_init", Kind::kSwitch, "adafactor: warm-up of the relative step"},
    {"ns_coefficients", Kind::kList, "muon: three coefficients of the Newton-Schulz iteration"},
    {"ns_steps", Kind::kCount, "muon: iterations"},
    {"adjust_lr_fn", Kind::kText, "muon: original or match_rms_adamw"},
    {"master_weights", Kind::kSwitch, "float32 copies of bfloat16 and float16 parameters"},
    {"frequency", Kind::kCount, "training steps per optimizer step"},
}};

constexpr std::array<OptionHelp, 33> kScheduleOptions = {{
    {"warmup_steps", Kind::kCount, "optimizer steps of linear warm-up"},
    {"total_steps", Kind::kCount, "optimizer steps until the end; -1: those of the run"},
    {"min_factor", Kind::kNumber, "smallest factor of the learning rate"},
    {"interval", Kind::kText, "count steps (step) or epochs (epoch)"},
    {"frequency", Kind::kCount, "steps or epochs between two moves"},
    {"end_factor", Kind::kNumber, "linear, polynomial: factor at total_steps"},
    {"num_cycles", Kind::kNumber, "cosine, cosine_with_restarts, warmup_stable_decay: periods"},
    {"step_size", Kind::kCount, "step: optimizer steps between two decays"},
    {"gamma", Kind::kNumber, "step, multi_step, exponential: factor of each decay"},
    {"milestones", Kind::kList, "multi_step: optimizer steps of the decays: 100,200"},
    {"power", Kind::kNumber, "polynomial: exponent of the decay"},
    {"pct_start", Kind::kNumber, "one_cycle: part of the cycle in which the rate rises"},
    {"anneal_strategy", Kind::kText, "one_cycle: cos or linear"},
    {"div_factor", Kind::kNumber, "one_cycle: the rate begins at lr / div_factor"},
    {"final_div_factor", Kind::kNumber, "one_cycle: and ends at this part of the first rate"},
    {"three_phase", Kind::kSwitch, "one_cycle: fall to the first rate before the last fall"},
    {"t_0", Kind::kCount, "cosine_warm_restarts: optimizer steps until the first restart"},
    {"t_mult", Kind::kCount, "cosine_warm_restarts: growth of these steps with each restart"},
    {"decay_steps", Kind::kCount, "warmup_stable_decay: optimizer steps of the fall"},
    {"stable_steps", Kind::kCount, "warmup_stable_decay: optimizer steps between; -1: the rest"},
    {"warmup_type", Kind::kText, "warmup_stable_decay: linear, cosine or 1-sqrt"},
    {"decay_type", Kind::kText, "warmup_stable_decay: linear, cosine or 1-sqrt"},
    {"timescale", Kind::kCount, "inverse_sqrt: step at which the factor is 1"},
    {"monitor", Kind::kText, "reduce_on_plateau: name of the logged value"},
    {"mode", Kind::kText, "reduce_on_plateau: min or max"},
    {"factor", Kind::kNumber, "reduce_on_plateau: factor of each reduction"},
    {"patience", Kind::kCount, "reduce_on_plateau: checks without improvement"},
    {"threshold", Kind::kNumber, "reduce_on_plateau: smallest improvement"},
    {"threshold_mode", Kind::kText, "reduce_on_plateau: rel or abs"},
    {"cooldown", Kind::kCount, "reduce_on_plateau: checks after a reduction that do not count"},
    {"min_lr", Kind::kNumber, "reduce_on_plateau: smallest learning rate"},
    {"eps", Kind::kNumber, "reduce_on_plateau: smallest change of the learning rate"},
    {"strict", Kind::kSwitch, "reduce_on_plateau: an unlogged value is an error"},
}};

// Fields of each description, by the names of its members.

template <class Visit>
void visit_fields(SgdOptions& o, const Visit& visit) {
  visit("lr", o.lr), visit("momentum", o.momentum), visit("dampening", o.dampening);
  visit("weight_decay", o.weight_decay), visit("nesterov", o.nesterov);
  visit("maximize", o.maximize);
}
template <class Options, class Visit>
void visit_averages(Options& o, const Visit& visit) {
  visit("lr", o.lr), visit("betas", o.betas), visit("eps", o.eps);
  visit("weight_decay", o.weight_decay), visit("maximize", o.maximize);
}
template <class Visit>
void visit_fields(AdamOptions& o, const Visit& visit) {
  visit_averages(o, visit), visit("amsgrad", o.amsgrad);
}
template <class Visit>
void visit_fields(AdamWOptions& o, const Visit& visit) {
  visit_averages(o, visit), visit("amsgrad", o.amsgrad);
}
template <class Visit>
void visit_fields(NAdamOptions& o, const Visit& visit) {
  visit_averages(o, visit), visit("momentum_decay", o.momentum_decay);
  visit("decoupled_weight_decay", o.decoupled_weight_decay);
}
template <class Visit>
void visit_fields(RAdamOptions& o, const Visit& visit) {
  visit_averages(o, visit), visit("decoupled_weight_decay", o.decoupled_weight_decay);
}
template <class Visit>
void visit_fields(LionOptions& o, const Visit& visit) {
  visit("lr", o.lr), visit("betas", o.betas), visit("weight_decay", o.weight_decay);
}
template <class Visit>
void visit_fields(AdafactorOptions& o, const Visit& visit) {
  visit("lr", o.lr), visit("eps", o.eps), visit("clip_threshold", o.clip_threshold);
  visit("decay_rate", o.decay_rate), visit("beta1", o.beta1);
  visit("weight_decay", o.weight_decay), visit("scale_parameter", o.scale_parameter);
  visit("relative_step", o.relative_step), visit("warmup_init", o.warmup_init);
}
template <class Visit>
void visit_fields(MuonOptions& o, const Visit& visit) {
  visit("lr", o.lr), visit("weight_decay", o.weight_decay), visit("momentum", o.momentum);
  visit("nesterov", o.nesterov), visit("ns_coefficients", o.ns_coefficients);
  visit("eps", o.eps), visit("ns_steps", o.ns_steps), visit("adjust_lr_fn", o.adjust_lr_fn);
}
template <class Visit>
void visit_fields(RMSpropOptions& o, const Visit& visit) {
  visit("lr", o.lr), visit("alpha", o.alpha), visit("eps", o.eps);
  visit("weight_decay", o.weight_decay), visit("momentum", o.momentum);
  visit("centered", o.centered);
}
template <class Visit>
void visit_fields(AdagradOptions& o, const Visit& visit) {
  visit("lr", o.lr), visit("lr_decay", o.lr_decay), visit("weight_decay", o.weight_decay);
  visit("initial_accumulator_value", o.initial_accumulator_value), visit("eps", o.eps);
}

template <class Visit>
void visit_fields(ConstantOptions& o, const Visit& visit) {
  visit("warmup_steps", o.warmup_steps);
}
template <class Visit>
void visit_fields(LinearOptions& o, const Visit& visit) {
  visit("warmup_steps", o.warmup_steps), visit("total_steps", o.total_steps);
  visit("end_factor", o.end_factor);
}
template <class Visit>
void visit_fields(CosineOptions& o, const Visit& visit) {
  visit("warmup_steps", o.warmup_steps), visit("total_steps", o.total_steps);
  visit("num_cycles", o.num_cycles), visit("min_factor", o.min_factor);
}
template <class Visit>
void visit_fields(StepOptions& o, const Visit& visit) {
  visit("step_size", o.step_size), visit("gamma", o.gamma);
  visit("warmup_steps", o.warmup_steps);
}
template <class Visit>
void visit_fields(MultiStepOptions& o, const Visit& visit) {
  visit("milestones", o.milestones), visit("gamma", o.gamma);
  visit("warmup_steps", o.warmup_steps);
}
template <class Visit>
void visit_fields(ExponentialOptions& o, const Visit& visit) {
  visit("gamma", o.gamma), visit("warmup_steps", o.warmup_steps);
}
template <class Visit>
void visit_fields(PolynomialOptions& o, const Visit& visit) {
  visit("warmup_steps", o.warmup_steps), visit("total_steps", o.total_steps);
  visit("end_factor", o.end_factor), visit("power", o.power);
}
template <class Visit>
void visit_fields(OneCycleOptions& o, const Visit& visit) {
  visit("total_steps", o.total_steps), visit("pct_start", o.pct_start);
  visit("anneal_strategy", o.anneal_strategy), visit("div_factor", o.div_factor);
  visit("final_div_factor", o.final_div_factor), visit("three_phase", o.three_phase);
}
template <class Visit>
void visit_fields(CosineWithRestartsOptions& o, const Visit& visit) {
  visit("warmup_steps", o.warmup_steps), visit("total_steps", o.total_steps);
  visit("num_cycles", o.num_cycles);
}
template <class Visit>
void visit_fields(CosineWarmRestartsOptions& o, const Visit& visit) {
  visit("t_0", o.t_0), visit("t_mult", o.t_mult), visit("min_factor", o.min_factor);
}
template <class Visit>
void visit_fields(WarmupStableDecayOptions& o, const Visit& visit) {
  visit("warmup_steps", o.warmup_steps), visit("decay_steps", o.decay_steps);
  visit("total_steps", o.total_steps), visit("stable_steps", o.stable_steps);
  visit("warmup_type", o.warmup_type), visit("decay_type", o.decay_type);
  visit("min_factor", o.min_factor), visit("num_cycles", o.num_cycles);
}
template <class Visit>
void visit_fields(InverseSqrtOptions& o, const Visit& visit) {
  visit("warmup_steps", o.warmup_steps), visit("timescale", o.timescale);
}
template <class Visit>
void visit_fields(PlateauOptions& o, const Visit& visit) {
  visit("monitor", o.monitor), visit("mode", o.mode), visit("factor", o.factor);
  visit("patience", o.patience), visit("threshold", o.threshold);
  visit("threshold_mode", o.threshold_mode), visit("cooldown", o.cooldown);
  visit("min_lr", o.min_lr), visit("eps", o.eps), visit("strict", o.strict);
}

template <class T>
void read(std::string_view text, T& value) {
  from_text(text, value);
}
template <class List>
void read_numbers(std::string_view text, List& values) {
  std::vector<double> numbers;
  from_text(text, numbers);
  LEVIN_CHECK(numbers.size() == values.size(), "base.text", "got '{}', wanted {} numbers",
              printable(text), values.size());
  std::ranges::copy(numbers, values.begin());
}
void read(std::string_view text, std::pair<double, double>& value) {
  std::array<double, 2> numbers = {};
  read_numbers(text, numbers);
  value = {numbers[0], numbers[1]};
}
void read(std::string_view text, std::array<double, 3>& value) { read_numbers(text, value); }

/// Fills the options of `what` from texts. Throws Error "optim.choice" for a name that is none of them.
template <class Options>
Options filled(std::string_view what, const Texts& texts) {
  Options options;
  std::vector<std::string> known;
  visit_fields(options, [&](std::string_view name, auto& value) {
    known.emplace_back(name);
    const auto text = texts.find(known.back());
    if (text == texts.end()) return;
    try {
      read(text->second, value);
    } catch (const Error& error) {
      LEVIN_FAIL("base.options.value", "{} of {}: {}", name, what, error.text());
    }
  });
  for (const auto& [name, text] : texts) {
    LEVIN_CHECK(std::ranges::count(known, name) > 0, "optim.choice",
                "{} has no option '{}', only {}; leave it out, or choose another one", what,
                printable(name), fmt::join(known, ", "));
  }
  return options;
}

/// "adamw" of "torch.optim.AdamW".
std::string plain_name(std::string_view name, std::string_view module) {
  std::string plain;
  for (const char c : name) {
    plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (plain.starts_with(module)) plain = plain.substr(module.size());
  return plain;
}

[[noreturn]] void fail_unknown(std::string_view what, const std::string& given,
                               const std::vector<std::string>& known) {
  const auto close = nearest(given, known);
  LEVIN_FAIL("optim.choice", "got {} '{}', wanted {}{}", what, printable(given),
             fmt::join(known, ", "), close ? fmt::format("; did you mean {}?", *close) : "");
}

template <class Entry, size_t n>
std::vector<std::string> names_in(const std::array<Entry, n>& entries) {
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.emplace_back(entry.name);
  return names;
}

struct OptimizerEntry {
  std::string_view name;
  OptimizerConfig (*make)(std::string_view name, const Texts& texts);
};
template <class Options, OptimizerConfig (*make)(Options)>
OptimizerConfig made(std::string_view name, const Texts& texts) {
  return make(filled<Options>(name, texts));
}
constexpr std::array<OptimizerEntry, 10> kOptimizers = {{
    {"sgd", made<SgdOptions, sgd>},
    {"adam", made<AdamOptions, adam>},
    {"adamw", made<AdamWOptions, adamw>},
    {"nadam", made<NAdamOptions, nadam>},
    {"radam", made<RAdamOptions, radam>},
    {"lion", made<LionOptions, lion>},
    {"adafactor", made<AdafactorOptions, adafactor>},
    {"muon", made<MuonOptions, muon>},
    {"rmsprop", made<RMSpropOptions, rmsprop>},
    {"adagrad", made<AdagradOptions, adagrad>},
}};

struct ScheduleEntry {
  std::string_view name;
  std::string_view torch_class;  ///< with the same options; "": none
  std::string_view other;        ///< another name in transformers; "": none
  Schedule (*make)(std::string_view name, const Texts& texts);
};
template <class Options, Schedule (*make)(Options)>
Schedule made_schedule(std::string_view name, const Texts& texts) {
  return make(filled<Options>(name, texts));
}
constexpr std::array<ScheduleEntry, 13> kSchedules = {{
    {"constant", "", "constant_with_warmup", made_schedule<ConstantOptions, constant>},
    {"linear", "", "", made_schedule<LinearOptions, linear>},
    {"cosine", "", "", made_schedule<CosineOptions, cosine>},
    {"step", "steplr", "", made_schedule<StepOptions, step>},
    {"multi_step", "multisteplr", "", made_schedule<MultiStepOptions, multi_step>},
    {"exponential", "exponentiallr", "", made_schedule<ExponentialOptions, exponential>},
    {"polynomial", "", "", made_schedule<PolynomialOptions, polynomial>},
    {"one_cycle", "onecyclelr", "", made_schedule<OneCycleOptions, one_cycle>},
    {"cosine_with_restarts", "", "",
     made_schedule<CosineWithRestartsOptions, cosine_with_restarts>},
    {"cosine_warm_restarts", "cosineannealingwarmrestarts", "",
     made_schedule<CosineWarmRestartsOptions, cosine_warm_restarts>},
    {"warmup_stable_decay", "", "", made_schedule<WarmupStableDecayOptions, warmup_stable_decay>},
    {"inverse_sqrt", "", "", made_schedule<InverseSqrtOptions, inverse_sqrt>},
    {"reduce_on_plateau", "reducelronplateau", "reduce_lr_on_plateau",
     made_schedule<PlateauOptions, reduce_on_plateau>},
}};

/// Takes a text out of the others.
std::optional<std::string> taken(Texts& texts, const std::string& name) {
  const auto found = texts.find(name);
  if (found == texts.end()) return std::nullopt;
  std::string text = std::move(found->second);
  texts.erase(found);
  return text;
}

template <class T>
T value_of(const std::optional<std::string>& text, std::string_view name, T otherwise) {
  if (!text) return otherwise;
  try {
    from_text(*text, otherwise);
  } catch (const Error& error) {
    LEVIN_FAIL("base.options.value", "{}: {}", name, error.text());
  }
  return otherwise;
}

/// Returns the text as it is stored. Throws Error "base.text" for text of another kind.
std::string checked(Kind kind, std::string_view text) {
  const auto same = [&](auto value) {
    from_text(text, value);
    return to_text(value);
  };
  switch (kind) {
    case Kind::kNumber:
      return same(0.0);
    case Kind::kCount:
      return same(int64_t{0});
    case Kind::kSwitch:
      return same(false);
    case Kind::kList:
      return same(std::vector<double>());
    case Kind::kText:
      break;
  }
  return std::string(text);
}

void visit_texts(FieldVisitor& field, std::string_view section, const OptionHelp& option,
                 Texts& texts) {
  const std::string name(option.name);
  const Kind kind = option.kind;
  field.take(
      {.name = fmt::format("{}.{}", section, name),
       .help = std::string(option.help),
       .is_switch = kind == Kind::kSwitch,
       .is_number = kind != Kind::kText && kind != Kind::kList,
       .is_list = kind == Kind::kList,
       .get =
           [&texts, name] {
             const auto found = texts.find(name);
             return found == texts.end() ? std::string() : found->second;
           },
       .set = [&texts, name, kind](std::string_view text) { texts[name] = checked(kind, text); },
       .is_given = [&texts, name] { return texts.contains(name); }});
}

}  // namespace

void LrSchedulerOptions::fields(FieldVisitor& field) {
  field("lr_scheduler", name,
        fmt::format("learning rate schedule: {}; empty: none",
                    fmt::join(names_in(kSchedules), ", ")));
  for (const OptionHelp& option : kScheduleOptions) {
    visit_texts(field, "lr_scheduler", option, options);
  }
}

std::optional<Schedule> LrSchedulerOptions::schedule() const {
  if (name.empty()) {
    LEVIN_CHECK(options.empty(), "optim.choice",
                "got lr_scheduler.{} without lr_scheduler; choose a schedule with --lr-scheduler",
                options.begin()->first);
    return std::nullopt;
  }
  const std::string plain = plain_name(name, "torch.optim.lr_scheduler.");
  const auto* const entry = std::ranges::find_if(kSchedules, [&](const ScheduleEntry& each) {
    return plain == each.name || (!each.torch_class.empty() && plain == each.torch_class) ||
           (!each.other.empty() && plain == each.other);
  });
  if (entry == kSchedules.end()) fail_unknown("lr_scheduler", name, names_in(kSchedules));
  Texts texts = options;
  const auto interval = taken(texts, "interval");
  const auto frequency = taken(texts, "frequency");
  Schedule schedule = entry->make(entry->name, texts);
  LEVIN_CHECK(!interval || *interval == "step" || *interval == "epoch", "optim.choice",
              "got lr_scheduler.interval = '{}', wanted step or epoch", printable(*interval));
  if (!interval && !frequency) return schedule;
  const auto n = value_of<int64_t>(frequency, "lr_scheduler.frequency", 1);
  const bool by_epoch =
      interval ? *interval == "epoch" : schedule.interval == Schedule::Interval::kEpoch;
  return by_epoch ? schedule.by_epoch(n) : schedule.by_step(n);
}

void OptimizerOptions::fields(FieldVisitor& field) {
  field("optimizer", name,
        fmt::format("optimizer: {}, or a class of torch.optim",
                    fmt::join(names_in(kOptimizers), ", ")));
  for (const OptionHelp& option : kOptimizerOptions) {
    visit_texts(field, "optimizer", option, options);
  }
  lr_scheduler.fields(field);
}

OptimizerConfig OptimizerOptions::config() const {
  LEVIN_CHECK(!name.empty(), "optim.choice", "got no optimizer; choose one with --optimizer");
  const std::string plain = plain_name(name, "torch.optim.");
  const auto* const entry = std::ranges::find(kOptimizers, plain, &OptimizerEntry::name);
  if (entry == kOptimizers.end()) fail_unknown("optimizer", name, names_in(kOptimizers));
  LEVIN_CHECK(plain != "adafactor" || !name.starts_with("torch."), "optim.choice",
              "got '{}', but levin's adafactor is that of transformers; choose adafactor", name);
  Texts texts = options;
  const auto weights_only = taken(texts, "decay_only_weights");
  const auto master_weights = taken(texts, "master_weights");
  const auto frequency = taken(texts, "frequency");
  OptimizerConfig config = entry->make(entry->name, texts);
  config.decay_only_weights(value_of(weights_only, "optimizer.decay_only_weights", false));
  config.master_weights(value_of(master_weights, "optimizer.master_weights", false));
  config.frequency(value_of<int64_t>(frequency, "optimizer.frequency", 1));
  if (const auto schedule = lr_scheduler.schedule()) config.schedule(*schedule);
  return config;
}

}  // namespace levin::optim
