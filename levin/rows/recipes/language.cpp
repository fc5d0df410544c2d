// Texts, prompts with completions, and chats, for models that go on with a text (TRL's SFTTrainer), and texts
// for masked models.

#include <algorithm>

#include "levin/base/check.h"
#include "levin/rows/recipes/encoder.h"
#include "levin/rows/recipes/recipe.h"

namespace levin::text::row {
namespace {

class LanguageRecipe final : public Recipe {
 public:
  LanguageRecipe(const Plan& plan, const Tokenizer& tokenizer) : encoder_(plan, tokenizer) {}

  Made make(const data::Record& record) const override {
    Sequence sequence{.tokens = tokens_of(record), .second = {}};
    Made made;
    if (sequence.tokens.empty()) return made;
    const Plan& plan = encoder_.plan();
    if (plan.splits()) {
      made.sequences = encoder_.split(std::move(sequence));
      return made;
    }
    encoder_.cut(sequence, made.truncated);
    // Follows TRL: packed rows are not checked.
    const bool counts = std::ranges::any_of(sequence.tokens, [](int32_t t) { return t >= 0; });
    if (counts || plan.options.packing) made.sequences.push_back(std::move(sequence));
    return made;
  }

 private:
  std::vector<int32_t> tokens_of(const data::Record& record) const {
    const Columns& columns = encoder_.plan().columns;
    if (columns.has("messages")) {
      return counted(
          encoder_.chat(messages_of(record, columns["messages"]), record, false, masks()), 0,
          record);
    }
    if (columns.has("text")) return encoder_.whole(ended(record.text(columns["text"])));
    std::vector<int32_t> prompt;
    ChatTokens both;
    if (encoder_.plan().in_chats) {
      std::vector<std::string> messages = messages_of(record, columns["prompt"]);
      prompt = encoder_.chat(messages, record, true, false).ids;
      for (auto& message : messages_of(record, columns["completion"])) messages.push_back(message);
      both = encoder_.chat(messages, record, false, masks());
    } else {
      const std::string& text = record.text(columns["prompt"]);
      prompt = encoder_.whole(text);
      both.ids = encoder_.whole(text + ended(record.text(columns["completion"])));
    }
    const size_t begin = common_prefix(prompt, both.ids);
    if (begin < prompt.size()) warn_of_seam(record);
    return counted(std::move(both), encoder_.plan().completion_only ? begin : 0, record);
  }

  bool masks() const { return encoder_.plan().options.assistant_only_loss; }

  std::string ended(std::string text) const {
    const std::string& eos = encoder_.plan().eos;
    if (!text.ends_with(eos)) text += eos;
    return text;
  }

  /// Returns the tokens from `begin` on; if wanted only tokens of the assistant count.
  std::vector<int32_t> counted(ChatTokens tokens, size_t begin, const data::Record& record) const {
    auto& [ids, mask] = tokens;
    LEVIN_CHECK(!masks() || std::ranges::count(mask, 1) > 0, "text.rows.generation",
                "{}: the chat template puts no assistant text between {{% generation %}} and {{% "
                "endgeneration %}}, so the row has nothing for assistant_only_loss",
                record.where());
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i < begin || (masks() && mask[i] == 0)) ids[i] = uncounted(ids[i]);
    }
    return std::move(ids);
  }

  Encoder encoder_;
};

/// Special tokens are not drawn.
class MaskedRecipe final : public Recipe {
 public:
  MaskedRecipe(const Plan& plan, const Tokenizer& tokenizer) : encoder_(plan, tokenizer) {}

  Made make(const data::Record& record) const override {
    Made made;
    const std::string& text = record.text(encoder_.plan().columns["text"]);
    Encoding encoding = encoder_.cut({text, std::nullopt}, false, made.truncated);
    bool has_any = false;
    for (size_t i = 0; i < encoding.ids.size(); ++i) {
      const bool special = encoding.special_tokens_mask[i] != 0;
      has_any = has_any || !special;
      if (special) encoding.ids[i] = uncounted(encoding.ids[i]);
    }
    if (has_any) made.sequences.push_back({.tokens = std::move(encoding.ids), .second = {}});
    return made;
  }

 private:
  Encoder encoder_;
};

}  // namespace

std::unique_ptr<Recipe> make_language_recipe(const Plan& plan, const Tokenizer& tokenizer) {
  return std::make_unique<LanguageRecipe>(plan, tokenizer);
}

std::unique_ptr<Recipe> make_masked_recipe(const Plan& plan, const Tokenizer& tokenizer) {
  return std::make_unique<MaskedRecipe>(plan, tokenizer);
}

}  // namespace levin::text::row
