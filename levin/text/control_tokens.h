#pragma once
// ControlTokens: the tokens that only a chat template may write. Where messages have them, they are put between marks,
// which stand in the text until it is encoded. Not for users; apply_chat_template takes sanitize_control_tokens.
//
//   const ControlTokens control(added, std::nullopt, chat_template->literals());
//   message = control.marked(run, message);

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/text/added_tokens.h"
#include "levin/text/template/values/run.h"

namespace levin::text {

class ControlTokens {
 public:
  /// Holds special tokens, and other added tokens that are named. If `named` is unset, these are
  /// the tokens that the template's own texts contain.
  ControlTokens(const AddedTokens& added, const std::optional<std::vector<std::string>>& named,
                std::string_view literals);

  /// The value with marks in its texts, keys of dicts aside.
  jinja::Value marked(jinja::Run& run, const jinja::Value& value) const;

 private:
  std::string marked(jinja::Run& run, std::string_view text) const;

  PrefixTree tree_;
};

/// A part of a text that had marks.
struct MarkedPiece {
  std::string_view text;
  bool is_control = false;  // a token that stays text
};
/// In order; the first one is no control token and may be empty. Marks that stand alone are dropped.
std::vector<MarkedPiece> marked_pieces(std::string_view text, const AddedTokens& added);

}  // namespace levin::text
