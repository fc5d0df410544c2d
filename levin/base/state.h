#pragma once
// State: a tree of named tensors and scalars, what a training run must remember to go on.
// Every stateful part fills one (state_dict) and reads one back (load_state_dict); checkpoint/
// writes the tree to disk.
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

/// A box of a tensor whose other parts are elsewhere, on other ranks or in a file.
struct TensorSlice {
  at::Tensor local;              ///< the box's elements
  std::vector<int64_t> sizes;    ///< of the whole
  std::vector<int64_t> offsets;  ///< where the box begins, one a dim of the whole
};

/// A value type; tensors are shared, not copied. Reading a key that is absent or of another type
/// throws Error "base.state.missing" or "base.state.type", both naming the key and what is there.
class LEVIN_API State {
 public:
  using Value = std::variant<bool, int64_t, double, std::string, at::Tensor, State, TensorSlice>;

  State();
  ~State();
  State(const State&);
  State(State&&) noexcept;
  State& operator=(const State&);
  State& operator=(State&&) noexcept;

  State& set(std::string_view key, bool value);
  State& set(std::string_view key, int64_t value);
  State& set(std::string_view key, double value);
  State& set(std::string_view key, std::string value);
  State& set(std::string_view key, const char* value);
  State& set(std::string_view key, at::Tensor value);
  State& set(std::string_view key, State value);
  State& set(std::string_view key, TensorSlice value);
  State& set(std::string_view key, Value value);

  bool contains(std::string_view key) const;
  bool boolean(std::string_view key) const;
  int64_t integer(std::string_view key) const;
  double number(std::string_view key) const;
  const std::string& text(std::string_view key) const;
  const at::Tensor& tensor(std::string_view key) const;
  const State& child(std::string_view key) const;
  const TensorSlice& slice(std::string_view key) const;
  /// A tensor or a part of one, whichever is there.
  const Value& tensor_or_slice(std::string_view key) const;

  /// Keys in the order of the alphabet, so that what is written is the same each time.
  const std::map<std::string, Value, std::less<>>& values() const;
  bool empty() const { return values().empty(); }
  void erase(std::string_view key);

 private:
  struct Tree;
  std::unique_ptr<Tree> tree_;

  template <class T>
  const T& get(std::string_view key, std::string_view wanted) const;
};

}  // namespace levin
