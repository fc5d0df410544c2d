#include "levin/data/batch.h"

#include <ATen/Context.h>

#include <algorithm>

#include "levin/base/check.h"

namespace levin {
namespace {

const at::Tensor* find(const std::vector<Batch::Field>& fields, std::string_view name) {
  const auto found = std::ranges::find(fields, name, &Batch::Field::first);
  return found == fields.end() ? nullptr : &found->second;
}

std::string names_of(const std::vector<Batch::Field>& fields) {
  std::string names;
  for (const auto& field : fields) names += (names.empty() ? "" : ", ") + field.first;
  return names;
}

template <class Change>
Batch changed(const Batch& batch, Change change) {
  Batch result;
  for (const auto& [name, tensor] : batch) result.set(name, change(tensor));
  return result;
}

}  // namespace

Batch::Batch(std::initializer_list<Field> fields) : fields_(fields) {
  for (const auto& [name, tensor] : fields_) {
    LEVIN_CHECK(std::ranges::count(fields_, name, &Field::first) == 1, "data.batch.field",
                "got the field '{}' twice; give each field another name", name);
  }
}

const at::Tensor& Batch::operator[](std::string_view name) const {
  if (const at::Tensor* tensor = find(fields_, name)) return *tensor;
  LEVIN_FAIL("data.batch.field", "this batch has no '{}'; it holds [{}]", name, names_of(fields_));
}

bool Batch::contains(std::string_view name) const { return find(fields_, name) != nullptr; }

Batch Batch::part(std::string_view part) const {
  const std::string prefix = std::string(part) + "/";
  Batch own;
  for (const auto& [name, tensor] : fields_) {
    if (name.starts_with(prefix)) own.set(name.substr(prefix.size()), tensor);
  }
  LEVIN_CHECK(!own.empty(), "data.batch.field", "this batch has no part '{}'; it holds [{}]", part,
              names_of(fields_));
  return own;
}

bool Batch::has_part(std::string_view part) const {
  const std::string prefix = std::string(part) + "/";
  return std::ranges::any_of(fields_,
                             [&](const Field& field) { return field.first.starts_with(prefix); });
}

void Batch::set(std::string_view name, at::Tensor tensor) {
  const auto found = std::ranges::find(fields_, name, &Field::first);
  if (found == fields_.end()) {
    fields_.emplace_back(name, std::move(tensor));
  } else {
    found->second = std::move(tensor);
  }
}

int64_t Batch::size() const {
  if (fields_.empty()) return 0;
  const at::Tensor& first = fields_.front().second;
  return first.defined() && first.dim() > 0 ? first.size(0) : 0;
}

Batch Batch::to(at::Device device, bool non_blocking) const {
  return changed(*this, [&](const at::Tensor& tensor) {
    return tensor.device() == device ? tensor : tensor.to(device, non_blocking);
  });
}

Batch Batch::pin_memory() const {
  LEVIN_CHECK(at::hasCUDA(), "data.batch.pin_memory",
              "got pin_memory = true but there is no CUDA device; set pin_memory = false");
  return changed(*this, [](const at::Tensor& tensor) { return tensor.pin_memory(); });
}

Batch Batch::narrow(int64_t start, int64_t length) const {
  return changed(*this, [&](const at::Tensor& tensor) {
    const int64_t there = tensor.dim() > 0 ? tensor.size(0) : 0;
    LEVIN_CHECK(start >= 0 && length >= 0 && start <= there - length, "data.batch.narrow",
                "got samples [{}, {} + {}), wanted a range within the {} samples of the batch",
                start, start, length, there);
    return tensor.narrow(0, start, length);
  });
}

}  // namespace levin
