#include "levin/base/state.h"

#include <array>

#include "levin/base/check.h"
#include "levin/base/options.h"

namespace levin {

struct State::Tree {
  std::map<std::string, Value, std::less<>> values;
};

State::State() : tree_(std::make_unique<Tree>()) {}
State::~State() = default;
State::State(const State& other) : tree_(std::make_unique<Tree>(*other.tree_)) {}
State::State(State&& other) noexcept : tree_(std::move(other.tree_)) {
  other.tree_ = std::make_unique<Tree>();
}
State& State::operator=(const State& other) {
  *tree_ = Tree(*other.tree_);
  return *this;
}
State& State::operator=(State&& other) noexcept {
  tree_.swap(other.tree_);
  return *this;
}

State& State::set(std::string_view key, bool value) {
  tree_->values.insert_or_assign(std::string(key), value);
  return *this;
}
State& State::set(std::string_view key, int64_t value) {
  tree_->values.insert_or_assign(std::string(key), value);
  return *this;
}
State& State::set(std::string_view key, double value) {
  tree_->values.insert_or_assign(std::string(key), value);
  return *this;
}
State& State::set(std::string_view key, std::string value) {
  tree_->values.insert_or_assign(std::string(key), std::move(value));
  return *this;
}
State& State::set(std::string_view key, const char* value) { return set(key, std::string(value)); }
State& State::set(std::string_view key, at::Tensor value) {
  tree_->values.insert_or_assign(std::string(key), std::move(value));
  return *this;
}
State& State::set(std::string_view key, State value) {
  tree_->values.insert_or_assign(std::string(key), std::move(value));
  return *this;
}
State& State::set(std::string_view key, TensorSlice value) {
  tree_->values.insert_or_assign(std::string(key), std::move(value));
  return *this;
}
State& State::set(std::string_view key, Value value) {
  tree_->values.insert_or_assign(std::string(key), std::move(value));
  return *this;
}

template <class T>
const T& State::get(std::string_view key, std::string_view wanted) const {
  const auto found = tree_->values.find(key);
  if (found == tree_->values.end()) {
    std::string there;
    for (const auto& [name, value] : tree_->values) there += (there.empty() ? "" : ", ") + name;
    LEVIN_FAIL("base.state.missing", "the state has no '{}', only [{}]", key, printable(there));
  }
  static constexpr std::array<std::string_view, 7> kTypes = {
      "a boolean", "an integer", "a number", "a text", "a tensor", "a state", "a part of a tensor"};
  LEVIN_CHECK(std::holds_alternative<T>(found->second), "base.state.type", "'{}' is {}, wanted {}",
              key, kTypes[found->second.index()], wanted);
  return std::get<T>(found->second);
}

bool State::contains(std::string_view key) const { return tree_->values.contains(key); }
bool State::boolean(std::string_view key) const { return get<bool>(key, "a boolean"); }
int64_t State::integer(std::string_view key) const { return get<int64_t>(key, "an integer"); }
double State::number(std::string_view key) const { return get<double>(key, "a number"); }
const std::string& State::text(std::string_view key) const {
  return get<std::string>(key, "a text");
}
const at::Tensor& State::tensor(std::string_view key) const {
  return get<at::Tensor>(key, "a tensor");
}
const State& State::child(std::string_view key) const { return get<State>(key, "a state"); }
const TensorSlice& State::slice(std::string_view key) const {
  return get<TensorSlice>(key, "a part of a tensor");
}
const State::Value& State::tensor_or_slice(std::string_view key) const {
  const auto found = tree_->values.find(key);
  const bool is_slice =
      found != tree_->values.end() && std::holds_alternative<TensorSlice>(found->second);
  if (!is_slice) tensor(key);  // throws for what is no tensor
  return found->second;
}

const std::map<std::string, State::Value, std::less<>>& State::values() const {
  return tree_->values;
}

void State::erase(std::string_view key) {
  if (const auto found = tree_->values.find(key); found != tree_->values.end()) {
    tree_->values.erase(found);
  }
}

}  // namespace levin
