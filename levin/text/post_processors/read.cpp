#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <span>

#include "levin/base/check.h"
#include "levin/text/post_processors/post_processor.h"

namespace levin::text {
namespace {

int32_t id_of(const Component& component) {
  const int64_t id = component.whole();
  if (id < 0 || id > std::numeric_limits<int32_t>::max()) component.fail("is not a valid id");
  return static_cast<int32_t>(id);
}

/// Offsets without the white space that tokens hold.
void trim(Draft& draft, bool prefix_was_added) {
  if (draft.tracked) {
    for (size_t i = 0; i < draft.size(); ++i) {
      Offset& offset = draft.own.offsets[i];
      int32_t leading = draft.blanks[i].leading;
      const int32_t trailing = draft.blanks[i].trailing;
      // The blank that was put before the text is no part of it.
      const bool is_first = i == 0 || offset.begin == 0;
      if (is_first && prefix_was_added && leading == 1) leading = 0;
      offset.begin = std::min(offset.begin + leading, offset.end);
      if (trailing > 0 && offset.end >= trailing) {
        offset.end = std::max(offset.end - trailing, offset.begin);
      }
    }
  }
  for (Draft& more : draft.overflowing) trim(more, prefix_was_added);
}

class ByteLevelPostProcessor : public PostProcessor {
 public:
  explicit ByteLevelPostProcessor(const Component& component)
      : prefix_(component.flag("add_prefix_space", true)),
        trims_(component.flag("trim_offsets", true)) {}
  size_t added(bool) const override { return 0; }
  void process(std::vector<Draft>& drafts, bool) const override {
    for (size_t i = 0; i < drafts.size(); ++i) {
      if (trims_) trim(drafts[i], prefix_);
      drafts[i].set_sequences(static_cast<int32_t>(i));
    }
  }
  bool trims() const override { return trims_; }

 private:
  bool prefix_;
  bool trims_;
};

/// A special token before and one behind; a pair has one or two between.
template <bool is_roberta>
class Around : public PostProcessor {
 public:
  explicit Around(const Component& component)
      : first_(id_of(component.at("cls").item(1))),
        last_(id_of(component.at("sep").item(1))),
        trims_(is_roberta && component.flag("trim_offsets", true)),
        prefix_(component.flag("add_prefix_space", true)) {}

  size_t added(bool pair) const override { return !pair ? 2 : is_roberta ? 4 : 3; }
  bool trims() const override { return trims_; }

  void process(std::vector<Draft>& drafts, bool add_special_tokens) const override {
    for (size_t i = 0; i < drafts.size(); ++i) {
      if (trims_) trim(drafts[i], prefix_);
      if (is_roberta) drafts[i].set_types(0);
      if (!add_special_tokens) continue;
      for (Draft& more : drafts[i].overflowing) {
        if (is_roberta) more.set_types(0);
        put_around(more, i > 0);
      }
      put_around(drafts[i], i > 0);
    }
  }

 private:
  void put_around(Draft& draft, bool second) const {
    if (!second || is_roberta) draft.insert_special(0, {second ? &last_ : &first_, 1}, 0);
    draft.insert_special(draft.size(), {&last_, 1}, second && !is_roberta ? 1 : 0);
  }

  int32_t first_;
  int32_t last_;
  bool trims_;
  bool prefix_;
};

class TemplateProcessing : public PostProcessor {
 public:
  explicit TemplateProcessing(const Component& component) {
    if (component.has("special_tokens")) {
      for (const auto& [name, token] : component.at("special_tokens").fields()) {
        std::vector<int32_t>& ids = special_[name];
        for (const Component& id : token.at("ids").items()) ids.push_back(id_of(id));
      }
    }
    single_ = read(component.at("single"));
    pair_ = read(component.at("pair"));
  }

  TemplateProcessing(std::optional<int32_t> first, std::optional<int32_t> last) {
    const auto put = [&](std::vector<Piece>& pieces, size_t sequence) {
      const auto type = static_cast<int32_t>(sequence);
      if (first) pieces.push_back({std::nullopt, {*first}, type});
      pieces.push_back({sequence, {}, type});
      if (last) pieces.push_back({std::nullopt, {*last}, type});
    };
    put(single_, 0);
    pair_ = single_;
    put(pair_, 1);
  }

  size_t added(bool pair) const override {
    size_t count = 0;
    for (const Piece& piece : pair ? pair_ : single_) count += piece.ids.size();
    return count;
  }

  void process(std::vector<Draft>& drafts, bool add_special_tokens) const override {
    // A template before this one may have left nothing, or more parts than there were texts.
    LEVIN_CHECK(drafts.size() == 1 || drafts.size() == 2, "text.component",
                "a TemplateProcessing of a Sequence got {} parts, wanted one or two; the "
                "processors before it in tokenizer.json must leave one part per text",
                drafts.size());
    std::vector<Draft> made;
    for (const Piece& piece : drafts.size() > 1 ? pair_ : single_) {
      if (piece.sequence) {
        const size_t place = *piece.sequence;
        LEVIN_CHECK(place < drafts.size(), "text.component",
                    "the 'single' of a TemplateProcessing has a sequence B, but got one text; give "
                    "a pair, or remove B from tokenizer.json");
        Draft draft = drafts[place];
        draft.set_types(piece.type);
        draft.set_sequences(static_cast<int32_t>(place));
        made.push_back(std::move(draft));
      } else if (add_special_tokens) {
        Draft draft = drafts.front().like();
        draft.insert_special(0, piece.ids, piece.type);
        made.push_back(std::move(draft));
      }
    }
    drafts = std::move(made);
  }

  void process_last(std::vector<Draft>& drafts, bool add_special_tokens) const override {
    if (drafts.size() == 1 && drafts.front().overflowing.empty() && has_one_sequence()) {
      put_around(drafts.front(), add_special_tokens);
    } else {
      process(drafts, add_special_tokens);
    }
  }

 private:
  struct Piece {
    std::optional<size_t> sequence;
    std::vector<int32_t> ids;
    int32_t type;
  };

  bool has_one_sequence() const {
    const auto has = [&](size_t sequence) {
      return std::ranges::count_if(single_,
                                   [&](auto& piece) { return piece.sequence == sequence; });
    };
    return has(0) == 1 && has(1) == 0;
  }
  /// Handles the most frequent case without a copy of the text.
  void put_around(Draft& draft, bool add_special_tokens) const {
    size_t place = 0;
    for (const Piece& piece : single_) {
      if (piece.sequence) {
        std::ranges::fill(std::span(draft.own.type_ids).subspan(place), piece.type);
        if (draft.tracked) std::ranges::fill(std::span(draft.own.sequence_ids).subspan(place), 0);
        place = draft.size();
      } else if (add_special_tokens) {
        draft.insert_special(place, piece.ids, piece.type);
        place += piece.ids.size();
      }
    }
  }

  std::vector<Piece> read(const Component& component) const {
    std::vector<Piece> pieces;
    for (const Component& item : component.items()) {
      if (item.has("Sequence")) {
        const Component sequence = item.at("Sequence");
        const std::string id = sequence.at("id").text();
        if (id != "A" && id != "B") sequence.at("id").fail("is not one of A, B");
        pieces.push_back(
            {id == "A" ? 0 : 1, {}, static_cast<int32_t>(sequence.whole("type_id", 0))});
        continue;
      }
      const Component special = item.at("SpecialToken");
      const auto found = special_.find(special.at("id").text());
      if (found == special_.end()) special.at("id").fail("is not one of special_tokens");
      pieces.push_back(
          {std::nullopt, found->second, static_cast<int32_t>(special.whole("type_id", 0))});
    }
    return pieces;
  }

  std::map<std::string, std::vector<int32_t>> special_;
  std::vector<Piece> single_;
  std::vector<Piece> pair_;
};

class PostProcessorSequence : public PostProcessor {
 public:
  explicit PostProcessorSequence(const Component& component)
      : parts_(read_parts(component.at("processors"), read_post_processor)) {}
  size_t added(bool pair) const override {
    size_t count = 0;
    for (const PostProcessorPtr& part : parts_) count += part->added(pair);
    return count;
  }
  void process(std::vector<Draft>& drafts, bool add_special_tokens) const override {
    for (const PostProcessorPtr& part : parts_) part->process(drafts, add_special_tokens);
  }
  void process_last(std::vector<Draft>& drafts, bool add_special_tokens) const override {
    for (const PostProcessorPtr& part : parts_) {
      if (part == parts_.back()) {
        part->process_last(drafts, add_special_tokens);
      } else {
        part->process(drafts, add_special_tokens);
      }
    }
  }
  bool trims() const override {
    return std::ranges::any_of(parts_, [](auto& part) { return part->trims(); });
  }

 private:
  std::vector<PostProcessorPtr> parts_;
};

template <class Made>
PostProcessorPtr make(const Component& component) {
  return std::make_unique<Made>(component);
}

}  // namespace

PostProcessorPtr make_ends(std::optional<int32_t> first, std::optional<int32_t> last) {
  return std::make_unique<TemplateProcessing>(first, last);
}

PostProcessorPtr read_post_processor(const Component& component) {
  return read_kind<PostProcessorPtr>(component, "post-processor",
                                     {{"TemplateProcessing", make<TemplateProcessing>},
                                      {"BertProcessing", make<Around<false>>},
                                      {"RobertaProcessing", make<Around<true>>},
                                      {"ByteLevel", make<ByteLevelPostProcessor>},
                                      {"Sequence", make<PostProcessorSequence>}});
}

}  // namespace levin::text
