#pragma once
// Template: a chat template, parsed, that gives a conversation's text. Not for users; Tokenizer has one.
//
//   const Template chat(source);
//   Run run(limits);
//   chat.render(run, {{"messages", messages}}).text;

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"
#include "levin/text/template/parsing/nodes.h"
#include "levin/text/template/values/run.h"

namespace levin::text::jinja {

struct Rendered {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generations;  // begin and end, in bytes
};

class LEVIN_API Template {
 public:
  /// Throws Error "text.template" with the line.
  explicit Template(std::string_view source) : program_(parse_checked(source)) {}

  Rendered render(Run& run, const std::vector<std::pair<std::string, Value>>& variables,
                  std::optional<int64_t> now = std::nullopt) const;
  bool has_generation() const { return program_.has_generation; }
  /// Its own texts, with a byte of 0 between.
  const std::string& literals() const { return program_.literals; }

 private:
  static Program parse_checked(std::string_view source);
  Program program_;
};

}  // namespace levin::text::jinja
