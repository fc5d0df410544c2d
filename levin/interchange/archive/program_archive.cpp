#include "levin/interchange/archive/program_archive.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/interchange/program/json_value.h"
#include "levin/interchange/program/read_operand.h"

namespace levin::interchange {
namespace {

/// Returns whether all elements lie within `count` of them.
bool fits(const TensorPlace& place, int64_t count) {
  int64_t last = place.offset, numel = 1;
  for (size_t i = 0; i < place.sizes.size(); ++i) {
    if (place.sizes[i] == 0) return true;
    int64_t step = 0;
    if (__builtin_mul_overflow(place.sizes[i] - 1, place.strides[i], &step) ||
        __builtin_add_overflow(last, step, &last) ||
        __builtin_mul_overflow(numel, place.sizes[i], &numel)) {
      return false;
    }
  }
  return last < count && numel <= count;
}

}  // namespace

std::vector<int64_t> whole_numbers(const std::vector<Expression>& sizes, const std::string& name) {
  std::vector<int64_t> numbers;
  for (const Expression& each : sizes) {
    const auto number = each.value({});
    if (!number || *number < 0)
      fail_reading(fmt::format("the sizes of '{}' are not integers of 0 or more", printable(name)));
    numbers.push_back(*number);
  }
  return numbers;
}

ProgramArchive::ProgramArchive(const std::filesystem::path& path)
    : map_(std::make_shared<files::MemoryMap>(path)) {
  try {
    records_ = std::make_unique<detail::ZipRecords>(map_->bytes());
  } catch (const std::exception&) {
    LEVIN_FAIL("interchange.archive", "{} is not a complete archive of torch.export.save",
               path.string());
  }
  LEVIN_CHECK(records_->contains("archive_format"), "interchange.archive",
              "{} is not a torch.export program; use load_torchscript for a file of "
              "torch.jit.save, or load_weights for a state dict of torch.save",
              path.string());
  const auto order = records_->find("byteorder");
  LEVIN_CHECK(
      !order ||
          std::string_view(reinterpret_cast<const char*>(order->data()), order->size()) == "little",
      "interchange.archive", "{} was written on a machine with another byte order", path.string());
  std::vector<std::string> models;
  for (const std::string& name : records_->names()) {
    constexpr std::string_view kFolder = "models/", kEnding = ".json";
    if (name.starts_with(kFolder) && name.ends_with(kEnding)) {
      models.push_back(name.substr(kFolder.size(), name.size() - kFolder.size() - kEnding.size()));
    }
  }
  LEVIN_CHECK(models.size() == 1, "interchange.archive",
              "{} has {} programs (models/*.json), wanted one", path.string(), models.size());
  model_ = models.front();
}

std::string ProgramArchive::program() const {
  const auto record = records_->find("models/" + model_ + ".json");
  if (!record) fail_reading("models/" + model_ + ".json is damaged");
  return {reinterpret_cast<const char*>(record->data()), record->size()};
}

std::map<std::string, TensorPlace> ProgramArchive::places(const std::string& kind) const {
  const std::string folder = "data/" + kind + "/";
  const std::string file = folder + model_ + "_" + kind + "_config.json";
  if (!records_->contains(file)) return {};
  const auto record = records_->find(file);
  if (!record) fail_reading(file + " is damaged");
  const std::string_view text(reinterpret_cast<const char*>(record->data()), record->size());
  const JsonDocument document(text, file);
  std::map<std::string, TensorPlace> places;
  for (const auto& [name, entry] : document.top().field("config").fields("config")) {
    const TensorMeta meta = read_tensor_meta(entry.field("tensor_meta"));
    places[name] = {.record = folder + entry.field("path_name").text("path_name"),
                    .is_pickle = entry.field("use_pickle").flag("use_pickle"),
                    .dtype = meta.dtype,
                    .sizes = whole_numbers(meta.sizes, name),
                    .strides = whole_numbers(meta.strides, name),
                    .offset = meta.storage_offset};
  }
  return places;
}

Tensors ProgramArchive::tensors(const std::string& kind) const {
  std::map<std::string, at::Tensor> storages;  // tensors of bytes, by record
  Tensors tensors;
  for (const auto& [name, place] : places(kind)) {
    LEVIN_CHECK(!place.is_pickle, "interchange.unsupported",
                "'{}' is stored as a pickle, because it is sparse or a tensor subclass; levin "
                "reads plain dense tensors only",
                printable(name));
    const auto bytes = records_->find(place.record);
    if (!bytes) {
      fail_reading(fmt::format("the record {} of '{}' is missing or damaged", place.record, name));
    }
    const auto width = static_cast<int64_t>(c10::elementSize(place.dtype));
    const auto count = static_cast<int64_t>(bytes->size()) / width;
    if (place.sizes.size() != place.strides.size() || place.offset < 0 || !fits(place, count)) {
      fail_reading(fmt::format("'{}' is larger than its record of {} bytes", name, bytes->size()));
    }
    at::Tensor& storage = storages[place.record + c10::toString(place.dtype)];
    if (!storage.defined()) {
      const bool is_aligned = reinterpret_cast<uintptr_t>(bytes->data()) % width == 0;
      if (count > 0 && is_aligned) {
        auto* address = const_cast<std::byte*>(bytes->data());
        storage =
            at::from_blob(address, {count}, [map = map_](void*) {}, at::TensorOptions(place.dtype));
      } else {
        storage = at::empty({count}, place.dtype);
        if (count > 0) std::memcpy(storage.mutable_data_ptr(), bytes->data(), count * width);
      }
    }
    // Not as a view that autograd knows of: they are leaves of their own.
    const at::AutoDispatchBelowADInplaceOrView guard;
    tensors[name] = storage.as_strided(place.sizes, place.strides, place.offset);
  }
  return tensors;
}

}  // namespace levin::interchange
