#pragma once
// BuildLog: a constructor's operators on tensors that have no memory yet. Running a part of them
// again finds the tensors' values. Written by the BuildHandler, read by the Evaluation.

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/intrusive_ptr.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "levin/graph/meta/draw_place_impl.h"
#include "levin/graph/operator_info.h"

namespace levin::graph::meta {

struct BuildLog;

/// The layout of a tensor in a storage.
struct Part {
  at::ScalarType dtype = at::kFloat;
  at::DimVector sizes, strides;
  int64_t offset = 0;
  bool operator==(const Part&) const = default;

  static Part of(const at::Tensor& tensor);
  /// Bytes of the storage up to its last element.
  size_t reach() const;
  bool is_contiguous() const;
};

/// The contents of a storage from one write to the next.
struct ValueRef {
  BuildLog* log = nullptr;
  int32_t index = -1;
  bool operator==(const ValueRef&) const = default;
};

struct Value {
  int32_t step = -1;  ///< the step that wrote it
  ValueRef root;      ///< the first value of the storage, that is, the storage
  size_t bytes = 0;
};

/// A tensor among an operator's arguments: of a storage without memory, or one that has some.
struct StepTensor {
  ValueRef value;
  Part part;
  at::Tensor real;
  size_t parameter = 0;  ///< place in the schema
  bool is_written = false;
  bool is_replaced = false;  ///< nothing of what it held is left, nor read
};

struct Step {
  const OperatorInfo* info = nullptr;
  torch::jit::Stack stack;  ///< the arguments, with undefined tensors for those of `tensors`
  std::vector<StepTensor> tensors;
  std::optional<DrawPlace> place;
  at::ScalarType default_dtype = at::kFloat;
  /// New storages, each by the number of the tensor among the results that shows it.
  struct Result {
    size_t number;
    int32_t value;
    Part part;
  };
  std::vector<Result> results;
};

struct BuildLog {
  BuildLog();

  uint64_t order;  ///< later ones are higher
  uint64_t seed;   ///< seed of the default generator when the building began
  std::deque<Step> steps;
  std::deque<Value> values;
  std::unordered_set<std::shared_ptr<BuildLog>> earlier;  ///< logs whose values it reads
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> made;
  bool has_names = false;  ///< parameters and buffers of the resulting module have names
};

/// Hangs on the storage of a tensor without memory.
struct Contents {
  std::shared_ptr<BuildLog> log;
  ValueRef value;
  std::string name;  ///< name of a parameter or buffer, once it is known
};

/// nullptr for any other tensor.
Contents* contents_of(const at::Tensor& tensor);
void attach(const at::Tensor& tensor, Contents contents);

/// From now on, a request for the address of the tensor's data throws an error with this text.
void refuse_pointers(const at::Tensor& tensor, std::string text);
void allow_pointers(const at::Tensor& tensor);

constexpr std::string_view kPointerRefused = "a constructor asks levin for the data of a tensor: ";

/// "[3, 4] of Float", with the name where it is known.
std::string describe(const at::Tensor& tensor);

/// Visits all tensors of an argument or result, undefined ones too; change() may return others.
template <class Change>
void change_tensors(c10::IValue& value, const Change& change) {
  if (value.isTensor()) {
    value = change(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(change(tensor));
    value = std::move(list);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      const at::Tensor changed = change(tensor.value_or(at::Tensor()));
      list.push_back(changed.defined() ? std::optional(changed) : std::nullopt);
    }
    value = std::move(list);
  }
}

/// Calls each(tensor) for all of them.
template <class Each>
void each_tensor(const c10::IValue& value, const Each& each) {
  c10::IValue copy = value;
  change_tensors(copy, [&](const at::Tensor& tensor) {
    each(tensor);
    return tensor;
  });
}

}  // namespace levin::graph::meta
