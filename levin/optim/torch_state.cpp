#include "levin/optim/torch_state.h"

#include <torch/optim/optimizer.h>
#include <torch/serialize.h>

#include <sstream>
#include <unordered_map>
#include <utility>

#include "levin/base/check.h"

namespace levin::optim {
namespace {

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

std::string bytes_of(OutputArchive& archive) {
  std::ostringstream stream;
  archive.save_to(stream);
  return std::move(stream).str();
}

InputArchive archive_of(const std::string& bytes) {
  InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  return archive;
}

c10::IValue value_in(InputArchive& archive, const std::string& key) {
  c10::IValue value;
  archive.read(key, value);
  return value;
}

InputArchive archive_in(InputArchive& archive, const std::string& key) {
  InputArchive inner;
  archive.read(key, inner);
  return inner;
}

/// An archive of values alone.
void copy(InputArchive from, OutputArchive& to) {
  for (const std::string& key : from.keys()) to.write(key, value_in(from, key));
}

/// Returns nothing if one of its values is neither a tensor nor a number.
std::optional<State> values_of(InputArchive archive) {
  State values;
  for (const std::string& key : archive.keys()) {
    const c10::IValue value = value_in(archive, key);
    if (value.isTensor()) {
      values.set(key, value.toTensor());
    } else if (value.isInt()) {
      values.set(key, value.toInt());
    } else if (value.isDouble()) {
      values.set(key, value.toDouble());
    } else if (value.isBool()) {
      values.set(key, value.toBool());
    } else if (!value.isNone()) {
      return std::nullopt;
    }
  }
  return values;
}

void write_values(const State& values, OutputArchive& to) {
  for (const auto& [key, value] : values.values()) {
    if (const auto* tensor = std::get_if<at::Tensor>(&value)) {
      to.write(key, c10::IValue(tensor->clone()));  // for a view, the full storage would be written
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      to.write(key, c10::IValue(*integer));
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      to.write(key, c10::IValue(*flag));
    } else {
      to.write(key, c10::IValue(values.number(key)));
    }
  }
}

/// The archive's groups, whose parameters get other keys than their addresses.
template <class KeyOf>
void copy_groups(InputArchive from, OutputArchive& to, const KeyOf& key_of) {
  const c10::IValue size = value_in(from, "param_groups/size");
  to.write("param_groups/size", size);
  for (int64_t i = 0; i < size.toTensor().item<int64_t>(); ++i) {
    const std::string name = "param_groups/" + std::to_string(i);
    InputArchive group = archive_in(from, name);
    OutputArchive copied(to.compilation_unit());
    const c10::IValue members = value_in(group, "params/size");
    copied.write("params/size", members);
    for (int64_t member = 0; member < members.toTensor().item<int64_t>(); ++member) {
      const std::string key = "params/" + std::to_string(member);
      copied.write(key, c10::IValue(key_of(value_in(group, key).toStringRef())));
    }
    OutputArchive options(to.compilation_unit());
    copy(archive_in(group, "options"), options);
    copied.write("options", options);
    to.write(name, copied);
  }
}

/// The class' archive with other keys of parameters, and with that state.
template <class KeyOf, class WriteState>
std::string rewritten(InputArchive& from, const KeyOf& key_of, const WriteState& write_state) {
  OutputArchive to;
  to.write("pytorch_version", value_in(from, "pytorch_version"));
  OutputArchive state(to.compilation_unit());
  write_state(state);
  to.write("state", state);
  OutputArchive groups(to.compilation_unit());
  copy_groups(archive_in(from, "param_groups"), groups, key_of);
  to.write("param_groups", groups);
  return bytes_of(to);
}

/// Returns the key of a position: torch::optim reads keys as addresses, and address 0 is none.
std::string key_of_position(size_t position) { return std::to_string(position + 1); }

}  // namespace

std::optional<TorchState> take_apart(const torch::optim::Optimizer& optimizer,
                                     const std::vector<NamedTensor>& parameters) {
  OutputArchive saved;
  optimizer.save(saved);
  InputArchive archive = archive_of(bytes_of(saved));
  std::unordered_map<std::string, size_t> positions;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto address = reinterpret_cast<size_t>(parameters[i].tensor.unsafeGetTensorImpl());
    positions.emplace(std::to_string(address), i);
  }
  TorchState state;
  state.parameters.resize(parameters.size());
  InputArchive kept = archive_in(archive, "state");
  for (const std::string& key : kept.keys()) {
    const auto position = positions.find(key);
    std::optional<State> values = values_of(archive_in(kept, key));
    if (position == positions.end() || !values) return std::nullopt;
    state.parameters[position->second] = std::move(*values);
  }
  state.options = rewritten(
      archive, [&](const std::string& key) { return key_of_position(positions.at(key)); },
      [](OutputArchive&) {});
  return state;
}

void put_together(torch::optim::Optimizer& optimizer, const TorchState& state) {
  InputArchive options = archive_of(state.options);
  InputArchive archive = archive_of(rewritten(
      options, [](const std::string& key) { return key; },
      [&](OutputArchive& to) {
        for (size_t i = 0; i < state.parameters.size(); ++i) {
          if (state.parameters[i].empty()) continue;
          OutputArchive values(to.compilation_unit());
          write_values(state.parameters[i], values);
          to.write(key_of_position(i), values);
        }
      }));
  optimizer.load(archive);
}

}  // namespace levin::optim
