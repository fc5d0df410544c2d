#pragma once
// ConfigFile: a small JSON file beside tokenizer.json. Not for users.
//
//   const ConfigFile config(folder / "tokenizer_config.json");
//   config.root().text("tokenizer_class", "");

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/error.h"
#include "levin/files/read_file.h"
#include "levin/text/reading/tokenizer_file.h"

namespace levin::text {

/// Errors of a file begin with its path.
template <class Read>
auto reading(const std::filesystem::path& path, const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.id(), path.string() + ": " + error.text());
  }
}

class ConfigFile {
 public:
  /// Null where there is no such file. Throws Error "text.file" where it is no JSON.
  explicit ConfigFile(const std::filesystem::path& path)
      : path_(path),
        json_(std::filesystem::exists(path) ? files::read_file(path) : "null"),
        file_(reading(path, [&] { return TokenizerFile(std::string_view(json_)); })) {}

  const std::filesystem::path& path() const { return path_; }
  bool exists() const { return !root().is_null(); }
  Component root() const { return file_.root(); }
  /// Names of the fields, of the file or of an object in it, in the file's order.
  std::vector<std::string> names(std::string_view object = "") const;

 private:
  std::filesystem::path path_;
  std::string json_;
  TokenizerFile file_;
};

}  // namespace levin::text
