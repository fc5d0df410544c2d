#pragma once
// One archive of torch.save: a zip of a pickle and of the storages of its tensors.
// Not for users.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "levin/base/state.h"
#include "levin/checkpoint/torch/pickle.h"
#include "levin/files/memory_map.h"

namespace caffe2::serialize {
class PyTorchStreamReader;
}  // namespace caffe2::serialize

namespace levin::detail {

void set_value(State& state, std::string_view key, State::Value value);

class TorchArchive {
 public:
  /// bytes: of the map, all of a file or a part of one. Throws Error "checkpoint.torch".
  TorchArchive(std::shared_ptr<const files::MemoryMap> map, std::span<const std::byte> bytes,
               std::string source);
  ~TorchArchive();
  TorchArchive(const TorchArchive&) = delete;
  TorchArchive& operator=(const TorchArchive&) = delete;

  const PickleValue& top() const { return untagged(pickle_->top()); }
  /// Without the type that LibTorch's pickle_save writes beside a list or dict.
  static const PickleValue& untagged(const PickleValue& value);
  /// None for Python's None.
  std::optional<State::Value> value_of(const PickleValue& value);
  /// Of a dict.
  State state_of(const PickleValue& dict);
  /// None where it is no tensor.
  std::optional<at::Tensor> tensor_of(const PickleValue& value);

 private:
  [[noreturn]] void fail(std::string_view what) const;
  std::span<const std::byte> record(const std::string& name);
  at::Tensor storage_of(const PickleValue& persistent, std::optional<at::ScalarType> type);
  at::Tensor rebuilt(const PickleValue& arguments, std::optional<at::ScalarType> type);
  std::vector<int64_t> integers_of(const PickleValue& tuple) const;
  const PickleValue& item(const PickleValue& tuple, size_t place) const;
  std::optional<State::Value> object_value(const PickleValue& object);

  std::shared_ptr<const files::MemoryMap> map_;
  std::span<const std::byte> bytes_;
  std::string source_;
  std::unique_ptr<caffe2::serialize::PyTorchStreamReader> reader_;
  std::unique_ptr<Pickle> pickle_;
  std::map<std::string, at::Tensor> storages_;
  int64_t depth_ = 0;
  int64_t num_values_ = 0;
};

}  // namespace levin::detail
