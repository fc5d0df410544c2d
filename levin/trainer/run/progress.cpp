#include "levin/trainer/run/progress.h"

#include "levin/base/check.h"

namespace levin::detail {
namespace {

constexpr int64_t kMost = int64_t{1} << 53;  // more than any run takes

}  // namespace

void Progress::load_state_dict(const State& state) {
  epoch = state.integer("epoch");
  batch = state.integer("batch");
  in_epoch = state.contains("in_epoch") ? state.boolean("in_epoch") : batch > 0;
  evaluated = state.contains("evaluated") ? state.integer("evaluated") : 0;
  global_step = state.integer("global_step");
  validated = state.integer("validated");
  seconds = state.number("seconds");
  // Older checkpoints do not have these.
  batches_before = state.contains("batches_before") ? state.integer("batches_before") : 0;
  total_validated = state.contains("total_validated") ? state.integer("total_validated") : 0;
  rollbacks = state.contains("rollbacks") ? state.integer("rollbacks") : 0;
  for (const int64_t count : {epoch, batch, evaluated, global_step, validated, batches_before,
                              total_validated, rollbacks}) {
    LEVIN_CHECK(count >= 0 && count <= kMost, "trainer.checkpoint",
                "the checkpoint is at epoch {}, batch {}, step {}, wanted non-negative numbers; "
                "resume from another checkpoint",
                epoch, batch, global_step);
  }
}

}  // namespace levin::detail
