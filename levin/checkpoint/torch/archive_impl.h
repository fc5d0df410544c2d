#pragma once
// One archive of torch.save: a zip of a pickle and of the storages of its tensors, or, before PyTorch
// 1.6, a file of both one after the other.
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
#include "levin/checkpoint/torch/zip_records.h"
#include "levin/files/memory_map.h"

namespace levin::detail {

void set_value(State& state, std::string_view key, State::Value value);

/// Returns whether these are the first bytes of a torch.save file of PyTorch before 1.6.
bool is_legacy_torch_file(std::span<const std::byte> bytes);
/// LibTorch's name of a storage's class, "torch FloatStorage"; none for others.
std::optional<at::ScalarType> type_of_storage(std::string_view name);

struct LegacyTorchFile {
  std::unique_ptr<Pickle> pickle;
  std::map<std::string_view, std::span<const std::byte>> storages;  ///< names lie in the file
};
/// Throws Error "checkpoint.torch".
LegacyTorchFile read_legacy_torch_file(std::span<const std::byte> bytes, const std::string& source);

class TorchArchive;
/// A whole module: LibTorch's torch::save(module, ...), TorchScript, Python's torch.save(model).
bool is_module(const PickleValue& value);
/// Its parameters and buffers by their names, as its state_dict().
State module_tensors(TorchArchive& archive, const PickleValue& module);
/// Limits the values that are made of a file, or of all files of a folder: pickles refer to a value by a few bytes, as
/// often as they like, and each time it becomes one of its own in a State.
class TorchBudget {
 public:
  /// For texts and names as long as the files, beside what small files may have.
  explicit TorchBudget(size_t bytes);

  /// Return false if that is more than the budget holds.
  [[nodiscard]] bool take_values(size_t count);
  [[nodiscard]] bool take_text(size_t bytes);

 private:
  size_t values_;
  size_t text_bytes_;
};

class TorchArchive {
 public:
  /// bytes: of the map, all of a file or a part of one. The budget outlives this. Throws Error
  /// "checkpoint.torch".
  TorchArchive(std::shared_ptr<const files::MemoryMap> map, std::span<const std::byte> bytes,
               std::string source, TorchBudget& budget);
  ~TorchArchive();
  TorchArchive(const TorchArchive&) = delete;
  TorchArchive& operator=(const TorchArchive&) = delete;

  const std::string& source() const { return source_; }
  TorchBudget& budget() { return budget_; }
  /// A copy of text, out of the budget.
  std::string own_text(std::string_view text);
  const PickleValue& top() const { return untagged(pickle_->top()); }
  /// Returns the value without the type that LibTorch's pickle_save writes beside a list or dict.
  static const PickleValue& untagged(const PickleValue& value);
  /// Returns nothing for Python's None.
  std::optional<State::Value> value_of(const PickleValue& value);
  /// Converts a dict.
  State state_of(const PickleValue& dict);
  /// Returns nothing for a value that is no tensor, or a tensor that reason_not_read() names.
  std::optional<at::Tensor> tensor_of(const PickleValue& value);
  /// Returns the kind of a tensor that levin does not read ("a sparse tensor"), else an empty text.
  static std::string reason_not_read(const PickleValue& value);
  /// The tensors that value_of and state_of skipped for such a reason, "path (a sparse tensor)".
  const std::vector<std::string>& left_out() const { return left_out_; }
  void leave_out(std::string_view name, std::string_view reason);
  /// Returns the bytes of a record that may be compressed, as TorchScript's code is; nothing if
  /// there is none.
  std::optional<std::string> text_record(const std::string& name);

 private:
  [[noreturn]] void fail(std::string_view what) const;
  void open_zip();
  void open_legacy();
  void count_value();
  /// Adds what value_of gives, with its name in the path while that is read.
  void add_item(State& state, std::string name, const PickleValue& value);
  bool has_flag(const PickleValue& dict, std::string_view name) const;
  std::span<const std::byte> record(const std::string& name);
  std::span<const std::byte> storage_bytes(const std::string& key);
  std::optional<at::Tensor> tensor_by(std::string_view function, const PickleValue& arguments);
  at::Tensor storage_of(const PickleValue& persistent, std::optional<at::ScalarType> type);
  at::Tensor rebuilt(const PickleValue& arguments, std::optional<at::ScalarType> type);
  std::optional<at::Tensor> made_of(const PickleValue& object);
  std::vector<int64_t> integers_of(const PickleValue& tuple) const;
  const PickleValue& item(const PickleValue& tuple, size_t place) const;
  std::optional<State::Value> object_value(const PickleValue& object);

  std::shared_ptr<const files::MemoryMap> map_;
  std::span<const std::byte> bytes_;
  std::string source_;
  std::unique_ptr<ZipRecords> records_;
  std::unique_ptr<Pickle> pickle_;
  /// The bytes of each storage of a legacy file.
  std::map<std::string_view, std::span<const std::byte>> legacy_;
  std::map<std::string, at::Tensor, std::less<>> storages_;
  std::vector<std::string> path_;  ///< path of the value that is read
  std::vector<std::string> left_out_;
  TorchBudget& budget_;
  int64_t depth_ = 0;
};

}  // namespace levin::detail
