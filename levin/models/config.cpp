#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/options.h"
#include "levin/files/read_file.h"
#include "levin/models/pretrained.h"

namespace levin::models {
namespace {

using OrderedJson = nlohmann::ordered_json;

[[noreturn]] void fail(const std::string& origin, std::string_view key, const OrderedJson& value,
                       const char* wanted) {
  LEVIN_FAIL("models.config", "{}: got {} = {}, wanted {}", origin, key,
             printable(value.dump().substr(0, 80)), wanted);
}

[[noreturn]] void fail_missing(const std::string& origin, std::string_view key) {
  LEVIN_FAIL("models.config", "{} has no {}, but this model needs it", origin, key);
}

}  // namespace

struct Config::Tree : OrderedJson {
  using OrderedJson::basic_json;
  explicit Tree(OrderedJson value) : OrderedJson(std::move(value)) {}
};

Config::Config() : origin_("config.json"), tree_(std::make_unique<Tree>(OrderedJson::object())) {}
Config::~Config() = default;
Config::Config(const Config& other)
    : origin_(other.origin_), tree_(std::make_unique<Tree>(*other.tree_)) {}
Config::Config(Config&&) noexcept = default;
Config& Config::operator=(const Config& other) {
  if (this != &other) *this = Config(other);
  return *this;
}
Config& Config::operator=(Config&&) noexcept = default;

Config Config::from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  std::error_code error;
  LEVIN_CHECK(std::filesystem::exists(file, error), "models.missing",
              "{} has no config.json; give a folder that transformers' save_pretrained wrote",
              folder.string());
  return from_json(files::read_file(file), file.string());
}

Config Config::from_json(std::string_view text, std::string origin) {
  OrderedJson value =
      OrderedJson::parse(detail::shallow_json(text), nullptr, /*allow_exceptions=*/false);
  LEVIN_CHECK(value.is_object(), "models.config", "{} is not a JSON object", origin);
  Config config;
  config.origin_ = std::move(origin);
  *config.tree_ = Tree(std::move(value));
  return config;
}

const Config::Tree* Config::find(std::string_view key) const {
  const auto found = tree_->find(key);
  if (found == tree_->end() || found->is_null()) return nullptr;
  return static_cast<const Tree*>(&*found);
}

void Config::fill(std::string_view defaults) {
  const Config given = from_json(defaults, "defaults of " + origin_);
  for (const auto& [key, value] : given.tree_->items()) {
    if (!tree_->contains(key)) (*tree_)[key] = value;
  }
}

bool Config::has(std::string_view key) const { return find(key) != nullptr; }

int64_t Config::integer(std::string_view key, std::optional<int64_t> otherwise) const {
  const OrderedJson* value = find(key);
  if (value == nullptr) return otherwise ? *otherwise : (fail_missing(origin_, key), 0);
  if (!value->is_number_integer()) fail(origin_, key, *value, "an integer");
  return value->get<int64_t>();
}

int64_t Config::positive(std::string_view key, std::optional<int64_t> otherwise) const {
  const int64_t value = integer(key, otherwise);
  LEVIN_CHECK(value > 0, "models.config", "{} has {} = {}, wanted above 0", origin_, key, value);
  return value;
}

double Config::number(std::string_view key, std::optional<double> otherwise) const {
  const OrderedJson* value = find(key);
  if (value == nullptr) return otherwise ? *otherwise : (fail_missing(origin_, key), 0.0);
  if (!value->is_number()) fail(origin_, key, *value, "a number");
  return value->get<double>();
}

bool Config::boolean(std::string_view key, bool otherwise) const {
  const OrderedJson* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) fail(origin_, key, *value, "true or false");
  return value->get<bool>();
}

std::string Config::text(std::string_view key, const std::string& otherwise) const {
  const OrderedJson* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) fail(origin_, key, *value, "a string");
  return value->get<std::string>();
}

std::vector<std::string> Config::texts(std::string_view key) const {
  const OrderedJson* value = find(key);
  std::vector<std::string> texts;
  if (value == nullptr) return texts;
  if (!value->is_array()) fail(origin_, key, *value, "a list of strings");
  for (const OrderedJson& item : *value) {
    if (!item.is_string()) fail(origin_, key, *value, "a list of strings");
    texts.push_back(item.get<std::string>());
  }
  return texts;
}

std::vector<int64_t> Config::integers(std::string_view key) const {
  const OrderedJson* value = find(key);
  std::vector<int64_t> numbers;
  if (value == nullptr) return numbers;
  if (!value->is_array()) fail(origin_, key, *value, "a list of integers");
  for (const OrderedJson& item : *value) {
    if (!item.is_number_integer() && !item.is_boolean())
      fail(origin_, key, *value, "a list of integers");
    numbers.push_back(item.is_boolean() ? int64_t{item.get<bool>()} : item.get<int64_t>());
  }
  return numbers;
}

std::vector<int64_t> Config::one_or_more(std::string_view key) const {
  const OrderedJson* value = find(key);
  if (value != nullptr && !value->is_array()) return {integer(key)};
  return integers(key);
}

std::vector<std::string> Config::one_or_more_texts(std::string_view key) const {
  const OrderedJson* value = find(key);
  if (value != nullptr && !value->is_array()) return {text(key)};
  return texts(key);
}

Config Config::child(std::string_view key) const {
  const OrderedJson* value = find(key);
  Config child;
  child.origin_ = fmt::format("{}: {}", origin_, key);
  if (value == nullptr) return child;
  if (!value->is_object()) fail(origin_, key, *value, "an object");
  *child.tree_ = Tree(*value);
  return child;
}

std::vector<std::string> Config::keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : tree_->items()) keys.push_back(key);
  return keys;
}

std::string Config::json(std::string_view key) const {
  const OrderedJson* value = find(key);
  if (value == nullptr) return "null";
  return value->dump(-1, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace);
}

void Config::set(std::string_view key, int64_t value) { (*tree_)[std::string(key)] = value; }
void Config::set(std::string_view key, const std::string& value) {
  (*tree_)[std::string(key)] = value;
}
void Config::set(std::string_view key, const std::vector<std::string>& values) {
  (*tree_)[std::string(key)] = values;
}
void Config::set(std::string_view key, const std::vector<int64_t>& values) {
  (*tree_)[std::string(key)] = values;
}
void Config::set_number(std::string_view key, double value) { (*tree_)[std::string(key)] = value; }
void Config::set_flag(std::string_view key, bool value) { (*tree_)[std::string(key)] = value; }
void Config::erase(std::string_view key) { tree_->erase(std::string(key)); }
void Config::rename(std::string_view key, std::string_view to) {
  const OrderedJson* value = find(key);
  if (value == nullptr) return;
  OrderedJson moved = *value;
  erase(key);
  (*tree_)[std::string(to)] = std::move(moved);
}

std::string Config::model_type() const {
  const std::string type = text("model_type");
  LEVIN_CHECK(!type.empty(), "models.config", "{} has no model_type", origin_);
  return type;
}

std::string Config::dtype() const { return text("dtype", text("torch_dtype")); }

int64_t Config::padding_row(int64_t rows) const {
  if (!has("pad_token_id")) return -1;
  const int64_t id = integer("pad_token_id"), row = id < 0 ? id + rows : id;
  return row >= 0 && row < rows ? row : -1;
}

int64_t Config::num_labels() const {
  const OrderedJson* names = find("id2label");
  if (names != nullptr && names->is_object()) return static_cast<int64_t>(names->size());
  return integer("num_labels", 2);
}

void Config::set_num_labels(int64_t count) {
  LEVIN_CHECK(count >= 1, "models.num_labels", "got num_labels = {}, wanted at least 1", count);
  if (num_labels() == count) return;
  std::vector<std::string> names;
  for (int64_t label = 0; label < count; ++label) names.push_back(fmt::format("LABEL_{}", label));
  set_label_names(names);
}

void Config::set_label_names(const std::vector<std::string>& names) {
  OrderedJson by_number = OrderedJson::object(), numbers = OrderedJson::object();
  for (size_t label = 0; label < names.size(); ++label) {
    by_number[std::to_string(label)] = names[label];
    numbers[names[label]] = label;
  }
  erase("num_labels");
  (*tree_)["id2label"] = by_number;
  (*tree_)["label2id"] = numbers;
}

std::vector<std::string> Config::label_names() const {
  const Config by_number = child("id2label");
  std::vector<std::string> names;
  for (int64_t label = 0; label < num_labels(); ++label) {
    const std::string number = std::to_string(label);
    names.push_back(by_number.text(number, fmt::format("LABEL_{}", label)));
  }
  return names;
}

std::string Config::to_json() const {
  return tree_->dump(2, ' ', /*ensure_ascii=*/false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace levin::models
