#include "levin/rows/recipes/recipe.h"

namespace levin::text::row {

Recipe::~Recipe() = default;

std::unique_ptr<Recipe> make_recipe(const Plan& plan, const data::Record& first,
                                    const Tokenizer& tokenizer) {
  if (plan.task == "mlm") return make_masked_recipe(plan, tokenizer);
  if (plan.task == "dpo") return make_preference_recipe(plan, tokenizer);
  if (plan.task == "classify") return make_classify_recipe(plan, tokenizer);
  if (plan.task == "tag") return make_tag_recipe(plan, tokenizer);
  if (plan.task == "embed") return make_embed_recipe(plan, first, tokenizer);
  return make_language_recipe(plan, tokenizer);
}

}  // namespace levin::text::row
