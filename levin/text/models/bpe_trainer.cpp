#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/text/utf8.h"
#include "levin/text/tokenizer.h"
#include "levin/text/tokenizer_parts.h"
#include "levin/text/unicode/byte_letters.h"

namespace levin::text {
namespace {

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    return mix(static_cast<uint64_t>(pair.first) << 32 | static_cast<uint32_t>(pair.second), 0);
  }
};

/// A word of the texts as symbols, with the characters that each stands for.
struct Word {
  struct Symbol {
    int32_t id;
    int64_t size;
  };
  std::vector<Symbol> symbols;
  int64_t count;
};

/// A pair to be merged: the most frequent first, then the one of the smaller ids.
struct Candidate {
  int64_t count;
  Pair pair;
  std::vector<size_t> words;
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

class BpeTrainer {
 public:
  explicit BpeTrainer(const BpeTrainerOptions& options)
      : options_(options),
        longest_(options.max_token_length.value_or(std::numeric_limits<int64_t>::max())) {}

  void train(const std::map<std::string, int64_t>& words) {
    for (const AddedToken& token : options_.special_tokens) id_of(token.content);
    put_alphabet(words);
    put_words(words);
    for (size_t i = 0; i < words_.size(); ++i) {
      const auto& symbols = words_[i].symbols;
      for (size_t at = 0; at + 1 < symbols.size(); ++at) {
        note({symbols[at].id, symbols[at + 1].id}, words_[i].count, i);
      }
    }
    queue_new_pairs();
    while (static_cast<int64_t>(tokens_.size()) < options_.vocab_size && merge_next()) {
    }
  }

  const std::vector<std::string>& tokens() const { return tokens_; }
  const std::vector<Pair>& merges() const { return merges_; }

 private:
  int32_t id_of(const std::string& token) {
    const auto [found, is_new] = ids_.emplace(token, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return found->second;
  }

  void put_alphabet(const std::map<std::string, int64_t>& words) {
    std::map<char32_t, int64_t> counts;
    for (const auto& [word, count] : words) {
      for (size_t at = 0; at < word.size();) counts[utf8::next(word, at)] += count;
    }
    for (const std::string& character : options_.initial_alphabet) {
      size_t at = 0;
      if (!character.empty()) {
        counts[utf8::next(character, at)] = std::numeric_limits<int64_t>::max();
      }
    }
    std::vector<std::pair<char32_t, int64_t>> kept(counts.begin(), counts.end());
    if (options_.limit_alphabet && static_cast<int64_t>(kept.size()) > *options_.limit_alphabet) {
      std::ranges::stable_sort(kept, std::greater<>(), [](const auto& one) { return one.second; });
      kept.resize(static_cast<size_t>(*options_.limit_alphabet));
      std::ranges::sort(kept);
    }
    for (const auto& [c, count] : kept) {
      std::string character;
      utf8::append(character, c);
      id_of(character);
    }
  }

  void put_words(const std::map<std::string, int64_t>& words) {
    for (const auto& [text, count] : words) {
      Word word{{}, count};
      for (size_t at = 0; at < text.size();) {
        const size_t begin = at;
        at += utf8::length(text[at]);
        std::string symbol = text.substr(begin, at - begin);
        if (!ids_.contains(symbol)) continue;
        if (begin > 0) symbol.insert(0, options_.continuing_subword_prefix);
        if (at == text.size()) symbol += options_.end_of_word_suffix;
        word.symbols.push_back({id_of(symbol), 1});
      }
      words_.push_back(std::move(word));
    }
  }

  /// Counts a pair; the words that it has come into are queued with it.
  void note(const Pair& pair, int64_t count, size_t word) {
    counts_[pair] += count;
    if (count <= 0) return;
    std::vector<size_t>& places = new_places_[pair];
    if (places.empty() || places.back() != word) places.push_back(word);
  }

  void queue_new_pairs() {
    for (auto& [pair, places] : new_places_) {
      const int64_t count = counts_[pair];
      if (count <= 0) continue;
      queue_.push_back({count, pair, std::move(places)});
      std::push_heap(queue_.begin(), queue_.end());
    }
    new_places_.clear();
  }

  bool merge_next() {
    if (queue_.empty()) return false;
    std::pop_heap(queue_.begin(), queue_.end());
    Candidate top = std::move(queue_.back());
    queue_.pop_back();
    const int64_t count = counts_[top.pair];
    if (top.count != count) {
      // Others have taken some of it meanwhile.
      top.count = count;
      queue_.push_back(std::move(top));
      std::push_heap(queue_.begin(), queue_.end());
      return true;
    }
    if (count < 1 || count < options_.min_frequency) return false;
    std::string_view right = tokens_[static_cast<size_t>(top.pair.second)];
    if (right.starts_with(options_.continuing_subword_prefix)) {
      right.remove_prefix(options_.continuing_subword_prefix.size());
    }
    const int32_t id = id_of(tokens_[static_cast<size_t>(top.pair.first)] + std::string(right));
    merges_.push_back(top.pair);
    for (const size_t word : top.words) merge(word, top.pair, id);
    queue_new_pairs();
    return true;
  }

  void merge(size_t place, const Pair& pair, int32_t id) {
    Word& word = words_[place];
    auto& symbols = word.symbols;
    for (size_t at = 0; at + 1 < symbols.size(); ++at) {
      if (symbols[at].id != pair.first || symbols[at + 1].id != pair.second) continue;
      const Word::Symbol made{id, symbols[at].size + symbols[at + 1].size};
      if (at > 0) {
        note({symbols[at - 1].id, pair.first}, -word.count, place);
        if (symbols[at - 1].size + made.size < longest_) {
          note({symbols[at - 1].id, id}, word.count, place);
        }
      }
      symbols[at] = made;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
      if (at + 1 < symbols.size()) {
        note({pair.second, symbols[at + 1].id}, -word.count, place);
        if (symbols[at + 1].size + made.size < longest_) {
          note({id, symbols[at + 1].id}, word.count, place);
        }
      }
    }
  }

  const BpeTrainerOptions& options_;
  int64_t longest_;
  std::vector<std::string> tokens_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Pair> merges_;
  std::vector<Word> words_;
  std::unordered_map<Pair, int64_t, PairHash> counts_;
  std::unordered_map<Pair, std::vector<size_t>, PairHash> new_places_;
  std::vector<Candidate> queue_;  // a heap
};

void check(const BpeTrainerOptions& options) {
  LEVIN_CHECK(options.vocab_size > 0 && options.vocab_size <= 1 << 24, "text.train",
              "got a vocab_size of {}, wanted from 1 to 16,777,216", options.vocab_size);
  LEVIN_CHECK(options.min_frequency >= 0 && options.limit_alphabet.value_or(0) >= 0 &&
                  options.max_token_length.value_or(0) >= 0,
              "text.train",
              "got a min_frequency, limit_alphabet or max_token_length below 0, wanted 0 or more");
  for (const AddedToken& token : options.special_tokens) utf8::check(token.content);
  for (const std::string& character : options.initial_alphabet) utf8::check(character);
  utf8::check(options.continuing_subword_prefix);
  utf8::check(options.end_of_word_suffix);
}

nlohmann::ordered_json added_token(const AddedToken& token, int64_t id) {
  return {{"id", id},
          {"content", token.content},
          {"single_word", token.single_word},
          {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},
          {"normalized", token.normalized},
          {"special", token.special}};
}

}  // namespace

std::vector<std::string> byte_alphabet() {
  std::vector<std::string> letters(256);
  for (size_t byte = 0; byte < 256; ++byte) {
    utf8::append(letters[byte], byte_letter(static_cast<uint8_t>(byte)));
  }
  return letters;
}

std::string train_bpe(std::string_view tokenizer, std::span<const std::string> texts,
                      const BpeTrainerOptions& options) {
  check(options);
  nlohmann::ordered_json json;
  try {
    json = nlohmann::ordered_json::parse(detail::shallow_json(tokenizer));
  } catch (const nlohmann::json::parse_error& error) {
    LEVIN_FAIL("text.file", "the tokenizer is not JSON: {}", error.what());
  }
  LEVIN_CHECK(json.is_object(), "text.file", "the tokenizer is not a JSON object");
  nlohmann::ordered_json model = {{"type", "BPE"},
                                  {"dropout", nullptr},
                                  {"unk_token", nullptr},
                                  {"continuing_subword_prefix", nullptr},
                                  {"end_of_word_suffix", nullptr},
                                  {"fuse_unk", false},
                                  {"byte_fallback", false},
                                  {"ignore_merges", false}};
  if (json.contains("model") && json["model"].is_object()) {
    for (const auto& [key, value] : json["model"].items()) model[key] = value;
    LEVIN_CHECK(model["type"] == "BPE", "text.train",
                "got a tokenizer whose model is not BPE, wanted a BPE tokenizer");
  }
  model["vocab"] = nlohmann::ordered_json::object();
  model["merges"] = nlohmann::ordered_json::array();
  json["model"] = model;
  const Tokenizer untrained = Tokenizer::from_json(json.dump());
  std::map<std::string, int64_t> words;
  for (const std::string& text : texts) {
    parts_of(untrained).for_each_piece(
        text, [&](std::string_view piece) { ++words[std::string(piece)]; });
  }
  BpeTrainer trainer(options);
  trainer.train(words);
  const std::vector<std::string>& tokens = trainer.tokens();
  auto& vocabulary = model["vocab"].get_ref<nlohmann::ordered_json::object_t&>();
  for (size_t id = 0; id < tokens.size(); ++id) vocabulary.emplace_back(tokens[id], id);
  for (const auto& [left, right] : trainer.merges()) {
    model["merges"].push_back(
        {tokens[static_cast<size_t>(left)], tokens[static_cast<size_t>(right)]});
  }
  const auto or_null = [](const std::string& text) {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
  };
  model["continuing_subword_prefix"] = or_null(options.continuing_subword_prefix);
  model["end_of_word_suffix"] = or_null(options.end_of_word_suffix);
  json["model"] = std::move(model);
  // In the order of ids, as Python's library writes them.
  nlohmann::ordered_json added = nlohmann::ordered_json::array();
  for (const AddedToken& token : options.special_tokens) {
    const auto place = std::ranges::find(tokens, token.content);
    added.push_back(added_token(token, place - tokens.begin()));
  }
  json["added_tokens"] = std::move(added);
  if (!json.contains("version")) json["version"] = "1.0";
  return json.dump();
}

}  // namespace levin::text
