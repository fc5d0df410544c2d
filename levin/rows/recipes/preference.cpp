// Makes rows of a prompt with a chosen and a rejected completion (TRL's DPOTrainer).

#include <algorithm>

#include "levin/base/check.h"
#include "levin/base/text/utf8.h"
#include "levin/rows/recipes/encoder.h"
#include "levin/rows/recipes/recipe.h"

namespace levin::text::row {
namespace {

/// Tokens of the prompt alone, and with each answer.
struct Answers {
  std::vector<int32_t> prompt;
  std::vector<int32_t> chosen;
  std::vector<int32_t> rejected;
};

/// Returns the size of the common beginning of both texts, without a blank before the first
/// difference.
size_t shared_size(const std::string& a, const std::string& b) {
  size_t at = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  if (at == std::min(a.size(), b.size()) && at > 0) return utf8::before(a, at);
  while (at > 0 && utf8::is_inner(a[at])) --at;
  return at > 0 && a[at - 1] == ' ' ? at - 1 : at;
}

class PreferenceRecipe final : public Recipe {
 public:
  PreferenceRecipe(const Plan& plan, const Tokenizer& tokenizer) : encoder_(plan, tokenizer) {}

  int64_t parts() const override { return 2; }

  Made make(const data::Record& record) const override {
    Answers answers = encoder_.plan().in_chats ? of_chats(record) : of_texts(record);
    const size_t begin = std::min(common_prefix(answers.prompt, answers.chosen),
                                  common_prefix(answers.prompt, answers.rejected));
    if (begin < answers.prompt.size()) warn_of_seam(record);
    Made made;
    const Plan& plan = encoder_.plan();
    const bool keeps_start = plan.options.truncation_mode != "keep_end";
    const bool fits = !plan.max_length || static_cast<int64_t>(begin) < *plan.max_length;
    if (keeps_start && plan.options.truncation_mode != "error" && !fits) {
      made.truncated = true;
      return made;
    }
    for (std::vector<int32_t>* ids : {&answers.chosen, &answers.rejected}) {
      for (size_t i = 0; i < begin; ++i) (*ids)[i] = uncounted((*ids)[i]);
      Sequence& sequence = made.sequences.emplace_back();
      sequence.tokens = std::move(*ids);
      encoder_.cut(sequence, made.truncated);
    }
    return made;
  }

 private:
  Answers of_texts(const data::Record& record) const {
    const Columns& columns = encoder_.plan().columns;
    std::string chosen = record.text(columns["chosen"]);
    std::string rejected = record.text(columns["rejected"]);
    std::string prompt;
    if (columns.has("prompt")) {
      prompt = record.text(columns["prompt"]);
    } else {
      const size_t size = shared_size(chosen, rejected);
      prompt = chosen.substr(0, size);
      chosen.erase(0, size);
      rejected.erase(0, size);
    }
    const std::string& eos = encoder_.plan().eos;
    for (std::string* answer : {&chosen, &rejected}) {
      if (!answer->ends_with(eos)) *answer += eos;
    }
    return {encoder_.whole(prompt), encoder_.whole(prompt + chosen),
            encoder_.whole(prompt + rejected)};
  }

  Answers of_chats(const data::Record& record) const {
    const Columns& columns = encoder_.plan().columns;
    std::vector<std::string> chosen = messages_of(record, columns["chosen"]);
    std::vector<std::string> rejected = messages_of(record, columns["rejected"]);
    std::vector<std::string> prompt;
    // A prompt that is a text stands in both chats as well.
    if (columns.has("prompt") && record.kind(columns["prompt"]) == data::Record::Kind::kList) {
      prompt = messages_of(record, columns["prompt"]);
      chosen.insert(chosen.begin(), prompt.begin(), prompt.end());
      rejected.insert(rejected.begin(), prompt.begin(), prompt.end());
    } else {
      const auto shorter = static_cast<int64_t>(std::min(chosen.size(), rejected.size()));
      auto shared = std::ranges::mismatch(chosen, rejected).in1 - chosen.begin();
      if (shared == shorter) --shared;  // an answer is left
      LEVIN_CHECK(shared > 0, "text.rows.row",
                  "{}: chosen and rejected begin with different messages, so there is no prompt; "
                  "add a prompt column",
                  record.where());
      prompt.assign(chosen.begin(), chosen.begin() + shared);
    }
    return {encoder_.chat(prompt, record, true, false).ids,
            encoder_.chat(chosen, record, false, false).ids,
            encoder_.chat(rejected, record, false, false).ids};
  }

  Encoder encoder_;
};

}  // namespace

std::unique_ptr<Recipe> make_preference_recipe(const Plan& plan, const Tokenizer& tokenizer) {
  return std::make_unique<PreferenceRecipe>(plan, tokenizer);
}

}  // namespace levin::text::row
