#pragma once
// ModelData: the vocabulary and the merges of a tokenizer.json, which are nearly all of it, in plain
// arrays. Not for users.

#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <string_view>
#include <utility>
#include <vector>

namespace levin::text {

/// The model's "vocab" and "merges" in the file's order. A view of the file's text; a text with
/// escapes lies in the reader's memory.
struct ModelData {
  struct Entry {
    std::string_view token;
    int64_t id = 0;  // value of the entry in an object; its place in a list
  };
  std::vector<Entry> vocabulary;
  std::vector<double> scores;  // score of each entry, if the vocabulary is a list
  bool has_vocabulary = false;
  bool is_list = false;  // a list of tokens with scores
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  bool has_merges = false;

  /// Adds both tokens of a merge in the older spelling, "left right"; returns false for another
  /// text. As in Python's library a line that begins with "#version" is a heading of merges.txt,
  /// and no merge.
  bool add_merge(std::string_view text) {
    if (text.starts_with("#version")) return true;
    const size_t blank = text.find(' ');
    if (blank == std::string_view::npos || text.find(' ', blank + 1) != std::string_view::npos) {
      return false;
    }
    merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
    return true;
  }
};

/// A place where texts stay as long as it does.
class TextMemory {
 public:
  std::string_view keep(std::string_view text) {
    if (text.empty()) return {};
    auto* const bytes = static_cast<char*>(memory_.allocate(text.size(), 1));
    std::memcpy(bytes, text.data(), text.size());
    return {bytes, text.size()};
  }

 private:
  std::pmr::monotonic_buffer_resource memory_;
};

/// Reads a tokenizer.json as programs write it, several times faster than a parser that tells of every value.
/// Puts the model's vocabulary and merges into `data` and everything else, with null in their places, into `root`,
/// a nlohmann::json, which headers know nothing of. False where the file is not as programs write it: it may be
/// wrong or only unusual, and a parser has to say.
bool read_plainly(std::string_view json, TextMemory& memory, ModelData& data, void* root);

}  // namespace levin::text
