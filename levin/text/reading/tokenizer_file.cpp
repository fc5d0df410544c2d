#include "levin/text/reading/tokenizer_file.h"

#include <nlohmann/json.hpp>

#include "levin/base/check.h"
#include "levin/base/json.h"

namespace levin::text {

using nlohmann::json;

struct TokenizerFile::Tree {
  json root;
};

/// Takes the parser's events: puts values into the tree, and what lies in model.vocab and model.merges
/// into arrays.
class TokenizerFile::Reader : public json::json_sax_t {
 public:
  Reader(json& root, TextMemory& memory, ModelData& model)
      : root_(root), memory_(memory), model_(model) {}

  bool null() override { return value(json(nullptr), "null"); }
  bool boolean(bool flag) override { return value(json(flag), "true or false"); }
  bool number_integer(json::number_integer_t number) override {
    if (within_ == Within::kTree) return value(json(number), "");
    return take_number(number, static_cast<double>(number), true);
  }
  bool number_unsigned(json::number_unsigned_t number) override {
    if (within_ == Within::kTree) return value(json(number), "");
    return take_number(static_cast<int64_t>(number), static_cast<double>(number),
                       number >> 63 == 0);
  }
  bool number_float(json::number_float_t number, const std::string&) override {
    if (within_ == Within::kTree) return value(json(number), "");
    return take_number(0, number, false);
  }
  bool string(std::string& text) override {
    if (within_ == Within::kTree) return value(json(std::move(text)), "");
    return take_text(text);
  }
  bool binary(json::binary_t&) override { return false; }

  bool start_object(size_t) override {
    if (within_ == Within::kTree) {
      if (is_model_key("vocab") && !model_.has_vocabulary) {
        within_ = Within::kVocabulary;
        model_.has_vocabulary = true;
        depth_ = 1;
        set(json(nullptr));
        return true;
      }
      return open(json::object());
    }
    return refuse("an object");
  }
  bool key(std::string& key) override {
    if (within_ == Within::kVocabulary) {
      token_ = memory_.keep(key);
      return true;
    }
    keys_.back() = std::move(key);
    return true;
  }
  bool end_object() override {
    if (within_ == Within::kTree) {
      close();
    } else {
      within_ = Within::kTree;
    }
    return true;
  }
  bool start_array(size_t) override {
    if (within_ == Within::kTree) {
      if (is_model_key("vocab") && !model_.has_vocabulary) {
        within_ = Within::kScored;
        model_.has_vocabulary = model_.is_list = true;
      } else if (is_model_key("merges") && !model_.has_merges) {
        within_ = Within::kMerges;
        model_.has_merges = true;
      } else {
        return open(json::array());
      }
      depth_ = 1;
      set(json(nullptr));
      return true;
    }
    if (within_ == Within::kVocabulary || depth_ == 2) return refuse("a list");
    depth_ = 2;
    texts_in_item_ = 0;
    has_score_ = false;
    return true;
  }
  bool end_array() override {
    if (within_ == Within::kTree) {
      close();
      return true;
    }
    if (depth_ == 1) {
      within_ = Within::kTree;
      return true;
    }
    depth_ = 1;
    if (within_ == Within::kScored) {
      if (texts_in_item_ != 1 || !has_score_) return refuse("an item that is not [token, score]");
    } else if (texts_in_item_ != 2) {
      return refuse("an item that is not a pair");
    }
    return true;
  }
  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    problem_ = fmt::format("is not JSON at byte {}: {}", position, error.what());
    return false;
  }

  /// Describes what is wrong with the file; empty if nothing is.
  const std::string& problem() const { return problem_; }

 private:
  enum class Within { kTree, kVocabulary, kScored, kMerges };

  bool is_model_key(std::string_view name) const {
    return keys_.size() == 2 && keys_[0] == "model" && keys_[1] == name &&
           open_.back()->is_object();
  }

  json* set(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[keys_.back()] = std::move(value));
  }
  bool open(json value) {
    open_.push_back(set(std::move(value)));
    keys_.emplace_back();
    return true;
  }
  void close() {
    open_.pop_back();
    keys_.pop_back();
  }
  bool value(json value, std::string_view words) {
    if (within_ != Within::kTree) return refuse(words);
    set(std::move(value));
    return true;
  }

  bool take_number(int64_t whole, double number, bool is_whole) {
    if (within_ == Within::kVocabulary) {
      if (!is_whole || whole < 0) return refuse("an id that is not an integer of 0 or more");
      model_.vocabulary.push_back({token_, whole});
      return true;
    }
    if (within_ == Within::kMerges || depth_ != 2 || texts_in_item_ != 1 || has_score_) {
      return refuse("a number");
    }
    has_score_ = true;
    model_.vocabulary.push_back({token_, static_cast<int64_t>(model_.vocabulary.size())});
    model_.scores.push_back(number + 0.0);
    return true;
  }
  bool take_text(std::string_view text) {
    if (within_ == Within::kVocabulary) return refuse("a text");
    if (within_ == Within::kScored) {
      if (depth_ != 2 || ++texts_in_item_ > 1) return refuse("a text");
      token_ = memory_.keep(text);
      return true;
    }
    if (depth_ == 2) {
      if (++texts_in_item_ > 2) return refuse("an item that is not a pair");
      if (texts_in_item_ == 1) {
        token_ = memory_.keep(text);
      } else {
        model_.merges.emplace_back(token_, memory_.keep(text));
      }
      return true;
    }
    if (model_.add_merge(memory_.keep(text))) return true;
    return refuse("a merge that is not two tokens with a space between");
  }
  bool refuse(std::string_view what) {
    problem_ =
        fmt::format("holds {} in model.{}", what, within_ == Within::kMerges ? "merges" : "vocab");
    return false;
  }

  json& root_;
  TextMemory& memory_;
  ModelData& model_;
  std::vector<json*> open_;
  std::vector<std::string> keys_;  // current key of each open object
  Within within_ = Within::kTree;
  int depth_ = 0;  // depth of lists, outside of the tree
  int texts_in_item_ = 0;
  bool has_score_ = false;
  std::string_view token_;  // the last one
  std::string problem_;
};

TokenizerFile::TokenizerFile(std::string_view text, Way way) : tree_(std::make_unique<Tree>()) {
  if (way == Way::kPlain && read_plainly(text, memory_, model_, &tree_->root)) return;
  model_ = {};
  tree_->root = nullptr;
  const std::string_view shallow = detail::shallow_json(text);
  LEVIN_CHECK(!shallow.empty() || text.empty(), "text.file",
              "the file is nested more than {} levels deep, wanted a tokenizer.json",
              detail::kMaxJsonDepth);
  Reader reader(tree_->root, memory_, model_);
  const bool whole = json::sax_parse(text.begin(), text.end(), &reader);
  LEVIN_CHECK(reader.problem().empty() && whole, "text.file", "the file {}", reader.problem());
}

TokenizerFile::~TokenizerFile() = default;

void TokenizerFile::put(std::string_view key, std::string_view text) {
  tree_->root[std::string(key)] = json::parse(text);
}

void TokenizerFile::put_model_options(std::string_view text) {
  json& model = tree_->root["model"];
  json made = json::parse(text);
  for (const char* key : {"vocab", "merges"}) {
    if (model.contains(key)) made[key] = model[key];
  }
  model = std::move(made);
}

Component TokenizerFile::root() const { return {&tree_->root, ""}; }

}  // namespace levin::text
