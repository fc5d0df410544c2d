#pragma once
// State: a tree of named tensors and scalars, such as a state dict or the contents of a checkpoint.
// Objects with state return a State from state_dict() and read one in load_state_dict();
// checkpoint/ writes the tree to disk.
//
//   State state;
//   state.set("step", int64_t{12}).set("exp_avg", tensor);
//   int64_t step = state.integer("step");

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "levin/base/export.h"

namespace levin {

/// Rows [begin, end) of a tensor, along dim 0.
struct RowRange {
  int64_t begin = 0;  ///< first row
  int64_t end = 0;    ///< row after the last one
};

/// A shard of a tensor: one box of its elements. The rest is on other ranks or in a file.
struct TensorSlice {
  at::Tensor local;              ///< elements of the box
  std::vector<int64_t> sizes;    ///< sizes of the full tensor
  std::vector<int64_t> offsets;  ///< first index of the box in each dim of the full tensor
};

/// A tree of values by key. It is a value type, but copies share their tensors. Reading a key that
/// is absent throws Error "base.state.missing"; reading a value of another type throws Error
/// "base.state.type". Both name the key and what is there.
class LEVIN_API State {
 public:
  /// The types that a value may have; State is a subtree.
  using Value = std::variant<bool, int64_t, double, std::string, at::Tensor, State, TensorSlice>;

  /// Makes an empty state.
  State();
  ~State();
  /// Copies the tree; the tensors are shared.
  State(const State&);
  /// Moves the tree; the other state is empty afterwards.
  State(State&&) noexcept;
  State& operator=(const State&);      ///< copies the tree; the tensors are shared
  State& operator=(State&&) noexcept;  ///< moves the tree

  /// Sets a boolean. Every set() replaces the value that the key had, and returns this state.
  State& set(std::string_view key, bool value);
  /// Sets an integer.
  State& set(std::string_view key, int64_t value);
  /// Sets a number.
  State& set(std::string_view key, double value);
  /// Sets a string.
  State& set(std::string_view key, std::string value);
  /// Sets a string.
  State& set(std::string_view key, const char* value);
  /// Sets a tensor, which is shared and not copied.
  State& set(std::string_view key, at::Tensor value);
  /// Sets a subtree.
  State& set(std::string_view key, State value);
  /// Sets a shard of a tensor.
  State& set(std::string_view key, TensorSlice value);
  /// Sets a value of any of the types.
  State& set(std::string_view key, Value value);

  /// Returns whether the key is present.
  bool contains(std::string_view key) const;
  /// Returns a boolean. This and the functions below throw Error "base.state.missing" and
  /// "base.state.type".
  bool boolean(std::string_view key) const;
  /// Returns an integer.
  int64_t integer(std::string_view key) const;
  /// Returns a number that was set as a double.
  double number(std::string_view key) const;
  /// Returns a string.
  const std::string& text(std::string_view key) const;
  /// Returns a full tensor.
  const at::Tensor& tensor(std::string_view key) const;
  /// Returns a subtree.
  const State& child(std::string_view key) const;
  /// Returns a shard of a tensor.
  const TensorSlice& slice(std::string_view key) const;
  /// Returns a tensor or a shard of one, whichever the key has.
  const Value& tensor_or_slice(std::string_view key) const;

  /// Returns all values by key. The keys are sorted, so that files are the same each time.
  const std::map<std::string, Value, std::less<>>& values() const;
  /// Returns whether there is no value.
  bool empty() const { return values().empty(); }
  /// Removes a key; does nothing if it is absent.
  void erase(std::string_view key);

 private:
  struct Tree;
  std::unique_ptr<Tree> tree_;

  template <class T>
  const T& get(std::string_view key, std::string_view wanted) const;
};

}  // namespace levin
