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
  field("ddp_broadcast_buffers", broadcast_buffers,
        "ddp: broadcast the buffers of rank 0 to all ranks with each optimizer step");
  field("ddp_find_unused_parameters", find_unused_parameters,
        "ddp: allow parameters that get no gradient");
  field("ddp_static_graph", static_graph, "ddp: every step uses the same parameters as the first");
  field("ddp_gradient_reduction", gradient_reduction,
        "ddp: reduce gradients over ranks by mean or sum");
  field("ddp_comm_hook", comm_hook,
        "ddp: dtype of gradients while they are reduced: none (unchanged), fp16, bf16 or fp32");
  field("ddp_bucket_cap_mb", bucket_cap_mb, "ddp: size of a gradient bucket, MiB");
  field("ddp_first_bucket_mb", first_bucket_mb, "ddp: size of the first gradient bucket, MiB");
  field("ddp_overlap", overlap, "ddp: overlap the reduction of gradients with backward");
  field("ddp_overlap_update", overlap_update,
        "ddp: update the parameters of a bucket while the next is being reduced");
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
