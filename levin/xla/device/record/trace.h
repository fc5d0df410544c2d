#pragma once
// Trace: the recording that is under way as places, and where in the tree of those before it is.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "levin/xla/device/remember/call_tree.h"

namespace levin::xla {

struct Contents;

class Trace {
 public:
  explicit Trace(CallTree& tree) : tree_(tree), at_(&tree.root()) {}

  /// Describes a call, whose tensors are on the device or numbers of the host; memory that was not
  /// met before gets its place. False for a call that cannot be compared.
  bool read(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments);
  const CallKey& key() const { return key_; }
  /// tensors of its call
  const std::vector<const at::Tensor*>& tensors() const { return tensors_; }
  /// Returns the place of a tensor among its arguments.
  TensorPlace place_of(const at::Tensor& argument) const;

  /// nullptr: it is not compared with others any more.
  CallTree::Call* at() const { return at_; }
  bool is_empty() const { return at_ == nullptr || at_->before == nullptr; }
  void stop() { at_ = nullptr; }
  /// The call that was read is this one.
  void go(CallTree::Call& call);
  /// Its results, where they are new, get their places.
  void meet_results(at::ArrayRef<c10::IValue> results);
  void meet(Contents& contents);

  /// By place; nullptr: nobody holds it any more.
  const std::vector<Contents*>& memory() const { return memory_; }
  std::optional<uint32_t> place_of(const Contents& contents) const;
  std::optional<uint32_t> place_of_host_number(const at::Tensor& number) const;
  const std::vector<at::Tensor>& host_numbers() const { return host_numbers_; }
  const std::vector<uint64_t>& numbers() const { return numbers_; }
  /// Places of what it made that somebody holds.
  const std::vector<uint32_t>& seen();
  void forget(const Contents& contents);

  /// The next begins.
  void reset();

 private:
  bool read_argument(const c10::IValue& argument, uint32_t place);
  bool read_tensor(const at::Tensor& tensor, uint32_t argument);
  bool read_host_tensor(const at::Tensor& tensor, uint32_t argument);
  void add_whole(const Contents& contents);
  void add_number(uint64_t bits, uint32_t argument);

  CallTree& tree_;
  CallTree::Call* at_;
  uint64_t number_ = 1;
  std::vector<Contents*> memory_;
  std::vector<c10::Storage> inputs_;  ///< memory that was there before: kept as a graph keeps it
  std::vector<at::Tensor> host_numbers_;
  std::vector<uint64_t> numbers_;
  CallKey key_;
  std::vector<const at::Tensor*> tensors_;
  std::vector<uint32_t> seen_;
};

}  // namespace levin::xla
