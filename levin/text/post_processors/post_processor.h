#pragma once
// PostProcessor: a step that puts special tokens around the tokens of a text or a pair.
// Not for users.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "levin/text/post_processors/draft.h"
#include "levin/text/reading/component.h"

namespace levin::text {

class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  /// Returns how many tokens it adds to one text, or to a pair.
  virtual size_t added(bool pair) const = 0;
  /// One draft a text; there may be another number of them afterwards, in order.
  virtual void process(std::vector<Draft>& drafts, bool add_special_tokens) const = 0;
  /// The same where nothing but joining follows.
  virtual void process_last(std::vector<Draft>& drafts, bool add_special_tokens) const {
    process(drafts, add_special_tokens);
  }
  /// Returns whether it needs the white space in tokens.
  virtual bool trims() const { return false; }
};

using PostProcessorPtr = std::unique_ptr<const PostProcessor>;

/// Puts these around each text, where they are there.
PostProcessorPtr make_ends(std::optional<int32_t> first, std::optional<int32_t> last);
/// Null for null. Throws Error "text.component" for a kind that there is not.
PostProcessorPtr read_post_processor(const Component& component);

}  // namespace levin::text
