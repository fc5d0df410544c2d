#pragma once
// CallTree: the calls of recordings before, so that one whose calls are the same runs their program
// without a graph being made. Recordings that begin alike share their beginning.
//
//   CallTree::Call* at = &tree.root();
//   at = at->find(key);                                // nullptr: such a call did not follow it
//   yet const CallTree::End* end = at->end_of(seen, numbers);

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "levin/xla/device/shapes/inferred.h"
#include "levin/xla/stablehlo/key_words.h"
#include "levin/xla/stablehlo/program.h"

namespace levin::xla {

/// The memory and geometry of a tensor among the arguments.
struct TensorPlace {
  enum class Kind : uint8_t { kUndefined, kDevice, kHostNumber, kWrappedNumber };
  Kind kind = Kind::kUndefined;
  at::ScalarType dtype = at::kFloat;
  uint32_t memory =
      0;  ///< kDevice, kHostNumber: which of these, in the order in which they were met
  int64_t offset = 0;
  at::DimVector sizes = {}, strides = {};
};

/// A single number among the arguments: a program may take one anew in each run.
struct CallNumber {
  uint64_t bits = 0;
  uint32_t argument = 0;
};

/// A call of an operator, as far as a program depends on it. Tensors are identified by their
/// memory, numbered in the order in which it is met, so that the same calls on other tensors are
/// equal.
struct CallKey {
  const c10::FunctionSchema* schema = nullptr;
  /// The arguments, tensors by their places, and how memory that is met here lies as a whole.
  KeyWords words = {};
  std::vector<CallNumber> numbers = {};

  void clear() {
    schema = nullptr;
    words.clear();
    numbers.clear();
  }
};

namespace pjrt {
class Executable;
}

class CallTree {
 public:
  /// The source of one of a program's numbers.
  struct NumberSource {
    enum class Kind : uint8_t { kFixed, kOfCall, kOfHost };
    Kind kind = Kind::kFixed;
    size_t place = 0;    ///< kOfCall: of all numbers of the calls; kOfHost: of the host's tensors
    double value = 0.0;  ///< kFixed
    bool is_integer = false;
  };

  /// A recording that ended here, and its program, by places in the memory that it met.
  struct End {
    std::vector<uint32_t> seen;       ///< memory that it made and that somebody held
    std::vector<uint64_t> numbers;    ///< numbers of its calls
    std::vector<bool> is_given_anew;  ///< by number: the program is the same whatever it is
    const pjrt::Executable* executable = nullptr;  ///< nullptr: there was nothing to compute
    bool draws_random_numbers = false;
    std::vector<uint32_t> inputs, outputs;
    std::vector<NumberSource> sources, wide_sources;
  };

  struct Call {
    Call* before = nullptr;
    CallKey key = {};
    std::vector<TensorPlace> tensors = {};  ///< among its arguments
    std::vector<bool> may_differ = {};      ///< by number: a program that ends below takes it anew
    std::vector<c10::IValue> arguments = {};  ///< tensors left out
    Inferred::Returns returns = {};
    bool fills = false;  ///< its result is memory that was there: nobody had written it
    bool is_optimizers = false;
    std::vector<uint32_t> written = {};  ///< tensors that it writes, by place in memory
    size_t num_numbers = 0;              ///< numbers in the calls before it
    std::vector<Call*> next = {};
    std::vector<End> ends = {};

    Call* find(const CallKey& call) const;
    const End* end_of(const std::vector<uint32_t>& seen, std::span<const uint64_t> numbers) const;
  };

  CallTree() { clear(); }
  Call& root() { return calls_.front(); }
  Call& add(Call& before, Call&& call);
  void add_end(Call& last, End&& end);
  /// The calls up to this one, in their order.
  static std::vector<const Call*> path_to(const Call& last);
  /// Returns whether it must be cleared when no recording is under way.
  bool is_full() const { return is_full_; }
  void clear();

 private:
  static constexpr size_t kMostCalls = 32768;
  static constexpr size_t kMostNext = 1024;

  std::deque<Call> calls_;
  bool is_full_ = false;
};

}  // namespace levin::xla
