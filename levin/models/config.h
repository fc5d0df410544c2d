#pragma once
// Config: a model's config.json, read by key; what nobody asks for is kept and written back.
// Between a folder and the body that is built from it; spellings of transformers 4 and 5 meet here.
//
//   const Config config = Config::from_folder("qwen3");
//   const int64_t width = config.integer("hidden_size", 4096);

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/export.h"

namespace levin::models {

/// A value type. A key that is there with null counts as absent. Each function throws Error
/// "models.config", which names file and key, where what is there is of another type.
class LEVIN_API Config {
 public:
  /// Throws Error "models.missing" where the folder has no config.json, "models.config" where it is
  /// no JSON object.
  static Config from_folder(const std::filesystem::path& folder);
  static Config from_json(std::string_view text, std::string origin = "config.json");

  Config();
  ~Config();
  Config(const Config&);
  Config(Config&&) noexcept;
  Config& operator=(const Config&);
  Config& operator=(Config&&) noexcept;

  bool has(std::string_view key) const;
  /// Takes over what a JSON object has and this has not; null stays null.
  void fill(std::string_view defaults);
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise = {}) const;
  /// The same where it has to be above 0.
  int64_t positive(std::string_view key, std::optional<int64_t> otherwise = {}) const;
  double number(std::string_view key, std::optional<double> otherwise = {}) const;
  bool boolean(std::string_view key, bool otherwise) const;
  std::string text(std::string_view key, const std::string& otherwise = "") const;
  /// Empty where the key is absent.
  std::vector<std::string> texts(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  /// The same where the file may have one alone in place of a list.
  std::vector<int64_t> one_or_more(std::string_view key) const;
  std::vector<std::string> one_or_more_texts(std::string_view key) const;
  /// An object, whose errors name "key.inner"; an empty one where the key is absent.
  Config child(std::string_view key) const;

  std::vector<std::string> keys() const;
  /// The value of a key as JSON text; "null" where the key is absent.
  std::string json(std::string_view key) const;

  void set(std::string_view key, int64_t value);
  void set(std::string_view key, const std::string& value);
  void set(std::string_view key, const std::vector<std::string>& values);
  void set(std::string_view key, const std::vector<int64_t>& values);
  void set_number(std::string_view key, double value);
  void set_flag(std::string_view key, bool value);
  void erase(std::string_view key);
  /// Puts a value under another key, where it replaces what is there; nothing where it is absent.
  void rename(std::string_view key, std::string_view to);

  /// "model_type"; Error "models.config" where there is none.
  std::string model_type() const;
  /// "dtype", or "torch_dtype" as transformers 4 wrote it; empty where neither is there.
  std::string dtype() const;
  /// Row of the tokens' embedding that is "pad_token_id", which gets no gradient: below 0 it counts from the
  /// end, as torch.nn.Embedding's padding_idx; -1 where there is none.
  int64_t padding_row(int64_t rows) const;
  /// Labels of a classification head: "num_labels", or as many as "id2label" names; 2 as there.
  int64_t num_labels() const;
  /// Gives a head so many labels, named LABEL_0 and on, unless it has as many already.
  void set_num_labels(int64_t count);
  /// Those of its labels, by their numbers; LABEL_0 and on where nobody named them.
  std::vector<std::string> label_names() const;
  void set_label_names(const std::vector<std::string>& names);

  const std::string& origin() const { return origin_; }
  /// Indented by 2, as transformers writes it.
  std::string to_json() const;

 private:
  struct Tree;

  const Tree* find(std::string_view key) const;

  std::string origin_;
  std::unique_ptr<Tree> tree_;
};

}  // namespace levin::models
