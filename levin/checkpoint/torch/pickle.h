#pragma once
// Pickle: what Python's pickle wrote, as a tree to look at. Nothing in it is ever called: a class or a
// function is its name, and an object is that name with its arguments and its state.
// Not for users.
//
//   const Pickle pickle(bytes, "model.pt");
//   const PickleValue& top = pickle.top();

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"

namespace levin::detail {

/// One value. Children belong to the Pickle; a value may be the child of several, and of itself.
struct LEVIN_API PickleValue {
  enum class Kind {
    kNone,
    kBool,
    kInteger,
    kNumber,
    kText,
    kBytes,
    kTuple,
    kList,
    kDict,
    kGlobal,      ///< text: "module name"
    kObject,      ///< of: the called kGlobal; arguments, state, and entries or items set on it
    kPersistent,  ///< of: a value outside of the pickle, "storage" of a tensor
  };

  Kind kind = Kind::kNone;
  bool boolean = false;
  int64_t integer = 0;
  double number = 0;
  std::string_view text;  ///< text of kText, kBytes and kGlobal; lies in the pickle's bytes
  std::vector<const PickleValue*> items;
  std::vector<std::pair<const PickleValue*, const PickleValue*>> entries;
  const PickleValue* of = nullptr;
  const PickleValue* arguments = nullptr;
  const PickleValue* state = nullptr;

  bool is(Kind wanted) const { return kind == wanted; }
  /// An object of that class or of that function: "torch.distributed.checkpoint.metadata Metadata".
  bool is_object_of(std::string_view global) const;
  /// Returns the value of a dict, or of an object whose state is a dict, under that key; nullptr if
  /// there is none.
  const PickleValue* find(std::string_view key) const;
};

class LEVIN_API Pickle {
 public:
  /// Protocols 0 to 5 without what is of protocol 0 alone. The bytes outlive this object. None, truth
  /// values, small integers and empty tuples are one value each, and no more values are made than a
  /// pickle of that size has that Python wrote: memory is bounded by the number of bytes. Throws Error
  /// "checkpoint.torch" with source, the byte and what was wrong there.
  Pickle(std::span<const std::byte> bytes, std::string_view source);
  Pickle(const Pickle&) = delete;
  Pickle& operator=(const Pickle&) = delete;

  const PickleValue& top() const { return *top_; }
  /// Returns all of its values, in the order in which they were made.
  const std::deque<PickleValue>& values() const { return values_; }
  /// Bytes up to its end, where others may follow.
  size_t size() const { return size_; }

 private:
  class Machine;

  // No value is destroyed by another: a tree may be deep, or a ring.
  std::deque<PickleValue> values_;
  std::deque<std::string> names_;  // names of globals, each once
  const PickleValue* top_ = nullptr;
  size_t size_ = 0;
};

}  // namespace levin::detail
