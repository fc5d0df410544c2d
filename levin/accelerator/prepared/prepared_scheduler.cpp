#include <torch/optim/schedulers/lr_scheduler.h>
#include <torch/optim/schedulers/reduce_on_plateau_scheduler.h>

#include "levin/accelerator/prepared/prepared.h"
#include "levin/accelerator/stepping/stepping.h"
#include "levin/base/check.h"

// The members below are private and have no accessors; an explicit instantiation may name them.
#pragma GCC diagnostic ignored "-Wnon-template-friend"

namespace levin::detail {
namespace {

using torch::optim::LRScheduler;
using torch::optim::ReduceLROnPlateauScheduler;

struct Count : LRScheduler {
  static unsigned LRScheduler::* member() { return &Count::step_count_; }
};

template <class Tag>
struct Member {  // NOLINT: nobody makes one
  friend constexpr auto member_of(Tag);
};
template <class Tag, auto Pointer>
struct Opens : Member<Tag> {
  friend constexpr auto member_of(Tag) { return Pointer; }
};

struct Best : Member<Best> {};
struct BadEpochs : Member<BadEpochs> {};
struct Cooldown : Member<Cooldown> {};
struct LastEpoch : Member<LastEpoch> {};
template struct Opens<Best, &ReduceLROnPlateauScheduler::best>;
template struct Opens<BadEpochs, &ReduceLROnPlateauScheduler::num_bad_epochs>;
template struct Opens<Cooldown, &ReduceLROnPlateauScheduler::cooldown_counter>;
template struct Opens<LastEpoch, &ReduceLROnPlateauScheduler::last_epoch>;

void check_kind(const State& state, const std::string& wanted) {
  const std::string& kind = state.text("kind");
  LEVIN_CHECK(kind == wanted, "accelerator.state",
              "the checkpoint holds a schedule of kind '{}', wanted '{}'; prepare the same "
              "schedule before load_state",
              kind, wanted);
}

}  // namespace

bool schedules_move(const Stepping& stepping) {
  const bool taken = stepping.sync_gradients() && !stepping.state().was_left_out;
  return taken || !stepping.moves_schedules();
}

State schedule_state(const LRScheduler& schedule) {
  State state;
  state.set("kind", "by count").set("steps", static_cast<int64_t>(schedule.*Count::member()));
  return state;
}

void load_schedule_state(LRScheduler& schedule, const State& state) {
  check_kind(state, "by count");
  schedule.*Count::member() = static_cast<unsigned>(state.integer("steps"));
}

State schedule_state(const ReduceLROnPlateauScheduler& schedule) {
  State state;
  state.set("kind", "on plateau")
      .set("best", static_cast<double>(schedule.*member_of(Best())))
      .set("num_bad_epochs", static_cast<int64_t>(schedule.*member_of(BadEpochs())))
      .set("cooldown_counter", static_cast<int64_t>(schedule.*member_of(Cooldown())))
      .set("last_epoch", static_cast<int64_t>(schedule.*member_of(LastEpoch())));
  return state;
}

void load_schedule_state(ReduceLROnPlateauScheduler& schedule, const State& state) {
  check_kind(state, "on plateau");
  schedule.*member_of(Best()) = static_cast<float>(state.number("best"));
  schedule.*member_of(BadEpochs()) = static_cast<int>(state.integer("num_bad_epochs"));
  schedule.*member_of(Cooldown()) = static_cast<int>(state.integer("cooldown_counter"));
  schedule.*member_of(LastEpoch()) = static_cast<int>(state.integer("last_epoch"));
}

}  // namespace levin::detail
