#pragma once
// Recipe: how a row of a file becomes tokens; one for each task. Not for users.
//
//   const auto recipe = make_recipe(plan, tokenizer);
//   const Made made = recipe->make(records->read(7));       // in any thread

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "levin/base/export.h"
#include "levin/rows/plan.h"

namespace levin::text::row {

/// A label in the file: nothing, a class, a number, a name, or a number for each class.
using Label = std::variant<std::monostate, int64_t, double, std::string, std::vector<double>>;

/// Returns the stored form of a token that does not count in the loss, or that mlm never draws.
constexpr int32_t uncounted(int32_t id) { return ~id; }
constexpr int32_t id_of(int32_t token) { return token < 0 ? ~token : token; }

/// The label of a position that does not count.
inline constexpr int32_t kIgnored = -100;

struct Sequence {
  std::vector<int32_t> tokens;  ///< uncounted(id) where it does not count
  /// For each token, or empty: its type in a pair; for tag the word that it begins, or -1.
  std::vector<int32_t> second;
};

struct Made {
  /// One sequence, or several that belong together (chosen and rejected; anchor, positive,
  /// negatives), or the parts of a split text; empty: there is nothing to learn.
  std::vector<Sequence> sequences;
  Label label;
  std::vector<Label> tags;  ///< tags of words
  bool truncated = false;
};

class LEVIN_API Recipe {
 public:
  virtual ~Recipe();

  /// Sequences of a sample.
  virtual int64_t parts() const { return 1; }
  /// Called from several threads. Errors may lack the place of the row.
  virtual Made make(const data::Record& record) const = 0;
};

/// plan and tokenizer have to outlive it. first: of a row like all others.
LEVIN_API std::unique_ptr<Recipe> make_recipe(const Plan& plan, const data::Record& first,
                                              const Tokenizer& tokenizer);

std::unique_ptr<Recipe> make_language_recipe(const Plan& plan, const Tokenizer& tokenizer);
std::unique_ptr<Recipe> make_masked_recipe(const Plan& plan, const Tokenizer& tokenizer);
std::unique_ptr<Recipe> make_preference_recipe(const Plan& plan, const Tokenizer& tokenizer);
std::unique_ptr<Recipe> make_classify_recipe(const Plan& plan, const Tokenizer& tokenizer);
std::unique_ptr<Recipe> make_tag_recipe(const Plan& plan, const Tokenizer& tokenizer);
std::unique_ptr<Recipe> make_embed_recipe(const Plan& plan, const data::Record& first,
                                          const Tokenizer& tokenizer);

}  // namespace levin::text::row
