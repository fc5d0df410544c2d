#pragma once
// PickleWriter: the few values that a state dict consists of, as Python's pickle protocol 2.
// Not for users.
//
//   PickleWriter pickle;
//   pickle.global("collections", "OrderedDict").empty_tuple().call();   // OrderedDict()
//   const std::string bytes = std::move(pickle).end();
//
// Each call pushes a value on the reader's stack, or makes one of those on it. LibTorch's own
// torch::jit::Pickler cannot write what torch.load(weights_only=True) reads for each dtype: it names
// storage classes that Python lacks (torch.UInt16Storage).

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "levin/base/export.h"

namespace levin::detail {

enum class PickleOp : uint8_t;

class LEVIN_API PickleWriter {
 public:
  PickleWriter();

  PickleWriter& global(std::string_view module, std::string_view name);
  /// UTF-8 of less than 4 GB.
  PickleWriter& text(std::string_view utf8);
  PickleWriter& integer(int64_t value);
  PickleWriter& integers(std::span<const int64_t> values);  ///< a tuple
  PickleWriter& boolean(bool value);

  /// tuple() and entries() take the values that are pushed from here on.
  PickleWriter& mark();
  PickleWriter& tuple();  ///< a tuple of all values since the mark
  PickleWriter& empty_tuple();
  PickleWriter& empty_dict();
  PickleWriter& call();        ///< the function below the tuple that is on top, with it
  PickleWriter& persistent();  ///< the object that the reader finds by the value on top
  PickleWriter& entries();     ///< keys and values since the mark, into the dict below it

  /// The value that is left on the stack, pickled.
  std::string end() &&;

 private:
  using Op = PickleOp;
  PickleWriter& add(Op op) {
    bytes_ += static_cast<char>(op);
    return *this;
  }
  PickleWriter& add_number(uint64_t value, size_t num_bytes);

  std::string bytes_;
};

}  // namespace levin::detail
