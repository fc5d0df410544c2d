#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/options.h"
#include "levin/checkpoint/torch/archive_impl.h"

namespace levin::detail {
namespace {

using Kind = PickleValue::Kind;
constexpr int64_t kDeepest = 200;
constexpr size_t kMostValues = 1 << 20;  // a list may hold itself, or a list twice that holds ...
constexpr size_t kFreeTextBytes = size_t{1} << 24;

bool take(size_t& left, size_t count) {
  if (count > left) return false;
  left -= count;
  return true;
}

}  // namespace

void set_value(State& state, std::string_view key, State::Value value) {
  std::visit([&](auto&& own) { state.set(key, std::forward<decltype(own)>(own)); },
             std::move(value));
}

TorchBudget::TorchBudget(size_t bytes)
    : values_(kMostValues), text_bytes_(kFreeTextBytes + bytes) {}

bool TorchBudget::take_values(size_t count) { return take(values_, count); }
bool TorchBudget::take_text(size_t bytes) { return take(text_bytes_, bytes); }

TorchArchive::TorchArchive(std::shared_ptr<const files::MemoryMap> map,
                           std::span<const std::byte> bytes, std::string source,
                           TorchBudget& budget)
    : map_(std::move(map)), bytes_(bytes), source_(std::move(source)), budget_(budget) {
  if (is_legacy_torch_file(bytes_)) {
    open_legacy();
  } else {
    open_zip();
  }
}

void TorchArchive::open_legacy() {
  LegacyTorchFile file = read_legacy_torch_file(bytes_, source_);
  pickle_ = std::move(file.pickle);
  legacy_ = std::move(file.storages);
}

void TorchArchive::open_zip() {
  try {
    records_ = std::make_unique<ZipRecords>(bytes_);
  } catch (const std::exception&) {
    fail("it is not a complete archive of torch.save (of PyTorch 1.6 or newer)");
  }
  if (records_->contains("archive_format")) {
    fail(
        "it is a program of torch.export (.pt2); load it as a module with levin::load_exported, or "
        "save its weights in Python with torch.save(program.state_dict, ...)");
  }
  if (records_->contains("byteorder")) {
    const auto order = record("byteorder");
    const std::string text(reinterpret_cast<const char*>(order.data()), order.size());
    if (text != "little") fail("it was written on a machine of another byte order");
  }
  pickle_ = std::make_unique<Pickle>(record("data.pkl"), source_);
}

TorchArchive::~TorchArchive() = default;

const PickleValue& TorchArchive::untagged(const PickleValue& value) {
  const bool is_tagged =
      value.is_object_of("torch.jit._pickle restore_type_tag") && !value.arguments->items.empty();
  return is_tagged
             ? *value.arguments->items.front()
             : value;  // NOLINT(bugprone-return-const-ref-from-parameter): both are the pickle's own
}

void TorchArchive::fail(std::string_view what) const {
  LEVIN_FAIL("checkpoint.torch", "{} cannot be read: {}", source_, printable(what));
}

std::string TorchArchive::own_text(std::string_view text) {
  if (!budget_.take_text(text.size())) fail("it refers to long texts too many times");
  return std::string(text);
}

void TorchArchive::count_value() {
  if (!budget_.take_values(1) || depth_ > kDeepest)
    fail("its lists and dicts contain themselves or are nested too deep");
}

// Records are stored uncompressed, so that their bytes lie in the map.
std::span<const std::byte> TorchArchive::record(const std::string& name) {
  if (!records_->contains(name)) fail(fmt::format("it has no record {}", name));
  const auto found = records_->find(name);
  if (!found) fail(fmt::format("its record {} is damaged", name));
  return *found;
}

std::span<const std::byte> TorchArchive::storage_bytes(const std::string& key) {
  if (records_ != nullptr) return record("data/" + key);
  const auto found = legacy_.find(key);
  if (found == legacy_.end()) fail(fmt::format("it has no storage {}", key));
  return found->second;
}

// Its size is what the archive says: no more of it is taken than code has.
std::optional<std::string> TorchArchive::text_record(const std::string& name) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  if (records_ == nullptr || !records_->contains(name)) return std::nullopt;
  const auto bytes = records_->size(name);
  if (bytes && *bytes > kMostBytes) return std::nullopt;
  if (bytes && !budget_.take_text(*bytes)) fail("its code is longer than its other records");
  auto text = records_->text(name);
  if (!text) fail(fmt::format("its record {} is damaged", name));
  return text;
}

void TorchArchive::leave_out(std::string_view name, std::string_view reason) {
  count_value();
  left_out_.push_back(fmt::format("{} ({})", printable(own_text(name)), reason));
}

std::optional<State::Value> TorchArchive::object_value(const PickleValue& object) {
  if (auto tensor = tensor_of(object)) return *std::move(tensor);
  if (object.is_object_of("collections OrderedDict")) return state_of(object);
  const bool has_one = object.arguments->items.size() == 1;
  if (object.is_object_of("torch Size") && has_one) return value_of(item(*object.arguments, 0));
  // LibTorch's pickle_save wraps lists and dicts in these calls to record their types.
  for (const char* name : {"torch.jit._pickle restore_type_tag", "torch.jit._pickle build_intlist",
                           "torch.jit._pickle build_doublelist", "torch.jit._pickle build_boollist",
                           "torch.jit._pickle build_tensorlist"}) {
    if (object.is_object_of(name)) return value_of(item(*object.arguments, 0));
  }
  if (object.is_object_of("torch device") && !object.arguments->items.empty()) {
    return own_text(item(*object.arguments, 0).text);
  }
  if (is_module(object)) return module_tensors(*this, object);
  fail(
      fmt::format("it holds an object of {}, which levin cannot read; save dicts and lists of "
                  "tensors, numbers and text",
                  object.of->text.empty() ? "no class" : object.of->text));
}

std::optional<State::Value> TorchArchive::value_of(const PickleValue& value) {
  count_value();
  switch (value.kind) {
    case Kind::kNone:
      return std::nullopt;
    case Kind::kBool:
      return value.boolean;
    case Kind::kInteger:
      return value.integer;
    case Kind::kNumber:
      return value.number;
    case Kind::kText:
    case Kind::kBytes:
      return own_text(value.text);
    case Kind::kGlobal: {
      std::string name = own_text(value.text);
      std::ranges::replace(name, ' ', '.');
      return name;
    }
    case Kind::kDict:
      return state_of(value);
    case Kind::kTuple:
    case Kind::kList: {
      ++depth_;
      State list;
      for (size_t i = 0; i < value.items.size(); ++i) {
        add_item(list, std::to_string(i), *value.items[i]);
      }
      --depth_;
      return list;
    }
    case Kind::kObject: {
      if (const std::string reason = reason_not_read(value); !reason.empty()) {
        leave_out(fmt::format("{}", fmt::join(path_, ".")), reason);
        return std::nullopt;
      }
      ++depth_;
      auto object = object_value(value);
      --depth_;
      return object;
    }
    case Kind::kPersistent:
      break;
  }
  fail("it has a storage outside of a tensor");
}

void TorchArchive::add_item(State& state, std::string name, const PickleValue& value) {
  path_.push_back(std::move(name));
  if (auto own = value_of(value)) set_value(state, path_.back(), *std::move(own));
  path_.pop_back();
}

State TorchArchive::state_of(const PickleValue& dict) {
  ++depth_;
  State state;
  for (const auto& [key, value] : dict.entries) {
    const bool is_named = key->is(Kind::kText) || key->is(Kind::kInteger);
    if (!is_named) fail("it has a dict key that is neither text nor a number");
    add_item(state, key->is(Kind::kText) ? own_text(key->text) : std::to_string(key->integer),
             *value);
  }
  --depth_;
  return state;
}

}  // namespace levin::detail
