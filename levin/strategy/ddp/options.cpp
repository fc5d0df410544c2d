#include "levin/strategy/options.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/strategy/changed_flags.h"

namespace levin {

void DdpOptions::fields(FieldVisitor& field) {
  field("ddp_broadcast_buffers", broadcast_buffers, "ddp: rank 0's buffers for all, each update");
  field("ddp_find_unused_parameters", find_unused_parameters,
        "ddp: allow parameters that get no gradient");
  field("ddp_static_graph", static_graph, "ddp: each step uses the same parameters as the first");
  field("ddp_gradient_reduction", gradient_reduction, "ddp: mean or sum over processes");
  field("ddp_comm_hook", comm_hook, "ddp: gradients on their way: none, fp16, bf16 or fp32");
  field("ddp_bucket_cap_mb", bucket_cap_mb, "ddp: gradients reduced at a time, MiB");
  field("ddp_first_bucket_mb", first_bucket_mb, "ddp: the same of the first ones, MiB");
  field("ddp_overlap", overlap, "ddp: reduce gradients while backward still runs");
  field("ddp_overlap_update", overlap_update,
        "ddp: update parameters while other gradients are still on their way");
}

namespace {

void check_word(std::string_view flag, const std::string& word,
                std::initializer_list<std::string> words) {
  const bool known = std::find(words.begin(), words.end(), word) != words.end();
  LEVIN_CHECK(known, "strategy.ddp.options", "got '{}' for {}, wanted one of {}", word, flag,
              to_text(std::vector<std::string>(words)));
}

}  // namespace

std::string changed_ddp_options(const DdpOptions& options) { return changed_flags(options); }

void check_ddp_options(const DdpOptions& options) {
  check_word("--ddp-gradient-reduction", options.gradient_reduction, {"mean", "sum"});
  check_word("--ddp-comm-hook", options.comm_hook, {"none", "fp16", "bf16", "fp32"});
  for (const auto& [flag, size] : {std::pair("--ddp-bucket-cap-mb", options.bucket_cap_mb),
                                   std::pair("--ddp-first-bucket-mb", options.first_bucket_mb)}) {
    LEVIN_CHECK(size > 0, "strategy.ddp.options", "{}: got {} MiB, wanted more than 0", flag, size);
  }
}

}  // namespace levin
