#pragma once
// Value: a value that a template computes with. A template cannot tell it from Python's. Not for
// users.
//
//   Value value = run.text("a");
//   if (value.is_text() && truth(value)) ...

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace levin::text::jinja {

class Run;
struct Dict;
struct List;
struct Missing;
struct Namespace;
struct Callable;
struct Loop;

/// A text's bytes, which are counted among a run's memory while they live.
struct Text {
  Text(std::string bytes, bool safe, Run* run) : bytes(std::move(bytes)), safe(safe), run(run) {}
  ~Text();
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  std::string bytes;
  bool safe;  // markupsafe's Markup: what is added to it is escaped
  Run* run;   // null for a text of the template
};

struct None {
  bool operator==(const None&) const = default;
};

template <class Type, class... Types>
concept IsOneOf = (std::is_same_v<Type, Types> || ...);

/// Lists, dicts and other values that hold values belong to the run, which drops all of them at its
/// end.
class Value {
 public:
  using Variant =
      std::variant<const Missing*, None, bool, int64_t, double, std::shared_ptr<const Text>, List*,
                   Dict*, Namespace*, Callable*, Loop*>;

  /// Undefined without words about why.
  Value() : held_(static_cast<const Missing*>(nullptr)) {}
  template <class Held>
    requires IsOneOf<Held, const Missing*, None, bool, int64_t, double, std::shared_ptr<const Text>,
                     List*, Dict*, Namespace*, Callable*, Loop*>
  Value(Held held)  // NOLINT(google-explicit-constructor)
      : held_(std::in_place_type<Held>, std::move(held)) {}

  template <class Held>
  const Held* get() const {
    return std::get_if<Held>(&held_);
  }
  template <class Held>
  Held* pointer() const {
    const auto* held = std::get_if<Held*>(&held_);
    return held == nullptr ? nullptr : *held;
  }
  bool is_undefined() const { return held_.index() == 0; }
  bool is_none() const { return held_.index() == 1; }
  bool is_bool() const { return held_.index() == 2; }
  bool is_text() const { return held_.index() == 5; }
  /// An int or a bool, which is one in Python.
  std::optional<int64_t> whole() const;
  /// Any number.
  std::optional<double> number() const;
  List* list() const { return pointer<List>(); }
  Dict* dict() const { return pointer<Dict>(); }
  std::string_view text() const {
    return (*std::get_if<std::shared_ptr<const Text>>(&held_))->bytes;
  }
  bool is_safe() const {
    return is_text() && (*std::get_if<std::shared_ptr<const Text>>(&held_))->safe;
  }
  const Missing* missing() const { return *std::get_if<const Missing*>(&held_); }
  const Variant& held() const { return held_; }

 private:
  Variant held_;
};

/// A value's data that a run owns.
struct Object {
  virtual ~Object() = default;
};

/// Why there is no value.
struct Missing : Object {
  explicit Missing(std::string why) : why(std::move(why)) {}
  std::string why;
};

struct List : Object {
  enum class Kind {
    kList,
    kTuple,
    kRange,
    kView,  // keys, values and items of a dict
    kIterator
  };
  static constexpr const char kGroup[] = "_GroupTuple";  // name of a tuple that groupby makes
  Kind kind = Kind::kList;
  std::vector<Value> items;
  size_t next = 0;             // next item of an iterator, which gives each item once
  std::exception_ptr failure;  // error of an iterator behind its last item
  int64_t depth = 1;
  const char* name = "list";
  std::string shown;  // Python's text for a range
};

/// In the order in which keys came.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> items;
  int64_t depth = 1;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// A key that is there keeps its place.
  void put(Value key, Value value);
  void erase(std::string_view key);

 private:
  std::optional<size_t> place_of(const Value& key) const;
  std::unordered_multimap<size_t, size_t> places_;  // by hash, where there are many items
};

struct Namespace : Object {
  std::vector<std::pair<std::string, Value>> items;
  const Value* find(std::string_view name) const;
  void put(std::string_view name, Value value);
};

/// Python's name of a value's type.
std::string_view type_name(const Value& value);
bool truth(const Value& value);
bool equal(const Value& left, const Value& right);
/// Returns -1, 0 or 1; nothing if the values have no order. A value that is no number counts as
/// above none (2).
std::optional<int> order(const Value& left, const Value& right);
/// Returns whether the value may be a key.
bool hashable(const Value& value);
size_t hash(const Value& value);
int64_t depth_of(const Value& value);

}  // namespace levin::text::jinja
