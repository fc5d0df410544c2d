#include "levin/strategy/options.h"

#include "levin/base/check.h"
#include "levin/strategy/changed_flags.h"

namespace levin {

void FsdpOptions::fields(FieldVisitor& field) {
  field("fsdp_cut", cut,
        "fsdp, zero: where units are split into shards: rows (at any row of a parameter) or owned "
        "(between parameters)");
  field("fsdp_gradient_reduction", gradient_reduction,
        "fsdp, zero: reduce gradients over ranks by mean or sum");
  field("fsdp_reduce_in_float32", reduce_in_float32,
        "fsdp, zero: reduce float16 and bfloat16 gradients in float32");
  field("mesh", mesh,
        "fsdp, zero: copies of the parameters and ranks that shard each of them (HSDP), such as "
        "replicate=2,fsdp=4; hosts: one copy on each host; empty: one copy over all ranks");
  field("zero_stage", zero_stage,
        "zero: 1 shards optimizer state, 2 also gradients, 3 also parameters");
  field(
      "fsdp_ignored_params", ignored_params,
      "fsdp, zero: parameters that stay unsharded on every rank, by patterns of their names, such "
      "as *.router.*,lm_head.weight");
  field("fsdp_unit_mb", unit_mb,
        "fsdp, zero: size of units (parameters that are gathered together), where wrap() did not "
        "mark any, MiB");
  field("fsdp_gathered_mb", gathered_mb,
        "fsdp, zero: memory for all-gathered parameters, MiB; 0: that of three units; -1: that of "
        "all parameters");
  field("fsdp_reshard_after_forward", reshard_after_forward,
        "fsdp, zero: all-gathered units after forward: true frees them, false keeps them until the "
        "update, N keeps 1/N of each on N neighbouring ranks; empty: as --fsdp-gathered-mb says");
}

std::string changed_fsdp_options(const FsdpOptions& options) { return changed_flags(options); }

void check_fsdp_options(const FsdpOptions& options) {
  LEVIN_CHECK(options.cut == "rows" || options.cut == "owned", "strategy.fsdp.options",
              "got '{}' for --fsdp-cut, wanted rows or owned", options.cut);
  LEVIN_CHECK(options.gradient_reduction == "mean" || options.gradient_reduction == "sum",
              "strategy.fsdp.options", "got '{}' for --fsdp-gradient-reduction, wanted mean or sum",
              options.gradient_reduction);
  LEVIN_CHECK(options.zero_stage >= 1 && options.zero_stage <= 3, "strategy.fsdp.options",
              "got --zero-stage {}, wanted 1, 2 or 3", options.zero_stage);
  LEVIN_CHECK(options.unit_mb > 0, "strategy.fsdp.options",
              "got --fsdp-unit-mb {}, wanted more than 0", options.unit_mb);
  LEVIN_CHECK(options.gathered_mb >= 0 || options.gathered_mb == -1, "strategy.fsdp.options",
              "got --fsdp-gathered-mb {}, wanted a number of MiB, 0 or -1", options.gathered_mb);
  const ReshardAfterForward& reshards = options.reshard_after_forward;
  constexpr int64_t kSome = 2;
  const bool keeps = reshards.ranks_of(kSome) == 1;
  LEVIN_CHECK(!reshards.is_set() || options.gathered_mb == 0 || keeps == (options.gathered_mb < 0),
              "strategy.fsdp.options",
              "got --fsdp-reshard-after-forward {} with --fsdp-gathered-mb {}, but {}; leave one "
              "of them out",
              to_text(reshards), options.gathered_mb,
              keeps ? "false keeps all units gathered, whatever memory they take"
                    : "-1 keeps all units gathered, as false does");
}

}  // namespace levin
