#include "levin/models/inputs.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>

#include "levin/base/check.h"
#include "levin/data/batch.h"

namespace levin::models {

Inputs Inputs::from(const Batch& batch) {
  LEVIN_CHECK(batch.contains("input_ids"), "models.input",
              "the batch has no input_ids; name the field of the token ids input_ids");
  Inputs inputs;
  const std::pair<const char*, at::Tensor*> fields[] = {{"input_ids", &inputs.input_ids},
                                                        {"attention_mask", &inputs.attention_mask},
                                                        {"token_type_ids", &inputs.token_type_ids},
                                                        {"position_ids", &inputs.position_ids},
                                                        {"document", &inputs.document}};
  for (const auto& [name, field] : fields) {
    if (batch.contains(name)) *field = batch[name];
  }
  const at::Tensor& ids = inputs.input_ids;
  LEVIN_CHECK(ids.dim() == 2 && ids.scalar_type() == at::kLong, "models.input",
              "got input_ids {} of {} dims, wanted Long [batch, tokens]",
              c10::toString(ids.scalar_type()), ids.dim());
  for (const auto& [name, field] : fields) {
    LEVIN_CHECK(!field->defined() || field->sizes() == ids.sizes(), "models.input",
                "{} has sizes {}, but input_ids has sizes {}; both must be [batch, tokens]", name,
                c10::str(field->sizes()), c10::str(ids.sizes()));
  }
  return inputs;
}

at::Tensor Inputs::positions() const {
  if (position_ids.defined()) return position_ids;
  const auto index = at::arange(input_ids.size(1), input_ids.options());
  if (!document.defined()) return index.unsqueeze(0);
  // Counts the tokens of the same document before each token, which works for any order of
  // documents.
  const auto same = document.unsqueeze(2) == document.unsqueeze(1);
  const auto before = same.logical_and((index.unsqueeze(1) > index.unsqueeze(0)).unsqueeze(0));
  return before.sum(-1) * (document >= 0);
}

}  // namespace levin::models
