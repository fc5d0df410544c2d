#pragma once
// Inferred: the types of an operator's results, by the operator and its arguments, as they were
// found before: the same call gives the same, and to find out costs more than to record it.

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/FunctionRef.h>

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "levin/xla/stablehlo/builder.h"
#include "levin/xla/stablehlo/key_words.h"

namespace levin::xla {

struct RuntimeImpl;

class Inferred {
 public:
  using Stack = std::vector<c10::IValue>;
  using Tensors = std::vector<const at::Tensor*>;
  enum class Source { kUndefined, kNew, kArgument, kView };
  struct Result {
    Source source = Source::kUndefined;
    size_t argument = 0;  ///< place among the tensors of the arguments, with lists flattened
    at::ScalarType dtype = at::kFloat;
    Dims sizes = {}, strides = {};
    int64_t offset = 0;
  };
  struct Return {
    bool is_list = false;
    std::vector<Result> results = {};
  };
  using Returns = std::vector<Return>;
  /// Memory for a result that has its own.
  using MakeNew = c10::function_ref<at::Tensor(const Result&)>;

  /// Replaces what is on the stack from `first` on by results, of a call with these tensors.
  static void put(const Returns& returns, const Tensors& tensors, Stack& stack, size_t first,
                  MakeNew make_new);

  /// Replaces arguments by results; false where this call is not known.
  bool find(const c10::OperatorHandle& op, Stack& stack,
            const std::shared_ptr<RuntimeImpl>& runtime);
  /// Stores the results of the call that find() did not know; these were its arguments.
  void add(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments,
           at::ArrayRef<c10::IValue> results);
  /// Returns the results of the last call that was found or added; nullptr if it is not known.
  /// Valid until the next call.
  const Returns* last() const { return last_; }

 private:
  static constexpr size_t kMostCalls = 4096;
  struct Hash {
    size_t operator()(const KeyWords& words) const { return hash_of(words); }
  };

  /// Makes the key. False for a call that may give something else the next time.
  bool read(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments);
  bool read_tensor(const at::Tensor& tensor);
  std::optional<Return> described(const c10::IValue& value) const;
  std::optional<Result> described(const at::Tensor& tensor) const;

  std::unordered_map<KeyWords, Returns, Hash> known_;
  KeyWords key_;  ///< key of the last call
  bool has_key_ = false;
  const Returns* last_ = nullptr;
  Tensors tensors_;                                ///< among its arguments
  std::vector<const c10::StorageImpl*> storages_;  ///< theirs
};

}  // namespace levin::xla
