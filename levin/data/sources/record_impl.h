#pragma once
// What a Record is made of, for levin's own sources.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "levin/data/sources/records.h"

namespace levin::data {

struct Record::Parts {
  struct Value {
    std::string name;
    Kind kind = Kind::kText;
    std::string text;  ///< of another kind than kText as JSON
  };
  std::vector<Value> values;  ///< none that is missing
  const std::filesystem::path* path = nullptr;
  int64_t line = 0;                  ///< from 1 on
  std::shared_ptr<const void> file;  ///< that path belongs to
};

/// What some programs put before a text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// "points.jsonl, line 7"
std::string place_of(const std::filesystem::path& path, int64_t line);

/// Throws Error "data.records.index".
void check_index(const Records& records, int64_t index);

/// Throws Error "data.utf8" where the text is none.
void check_utf8(std::string_view text, const std::filesystem::path& path, int64_t line);

}  // namespace levin::data
