#include "levin/checkpoint/state_json.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/options.h"

namespace levin {
namespace {

using nlohmann::json;

constexpr const char* kTensorKey = "$tensor";
constexpr const char* kNumberKey = "$number";  // inf and nan, which JSON lacks

void set_tensor(State& state, const std::string& key, const State::Value& value) {
  if (const auto* slice = std::get_if<TensorSlice>(&value)) {
    state.set(key, *slice);
  } else {
    state.set(key, std::get<at::Tensor>(value));
  }
}

json encode(const State& state, const std::string& path, State& tensors, int64_t depth = 1) {
  // A tensor is an object of its own in the file.
  LEVIN_CHECK(
      depth < detail::kMaxJsonDepth, "checkpoint.path",
      "the state '{}' is nested {} levels deep, which is more than a load accepts; flatten it",
      path, depth);
  json object = json::object();
  for (const auto& [key, value] : state.values()) {
    const std::string here = path.empty() ? key : path + "/" + key;
    LEVIN_CHECK(key != kTensorKey && key != kNumberKey, "checkpoint.path",
                "the state has the name '{}', which the format reserves; rename it", here);
    if (const auto* child = std::get_if<State>(&value)) {
      object[key] = encode(*child, here, tensors, depth + 1);
    } else if (std::holds_alternative<at::Tensor>(value) ||
               std::holds_alternative<TensorSlice>(value)) {
      LEVIN_CHECK(!tensors.contains(here), "checkpoint.path",
                  "two tensors of the state have the path '{}'; a name must not hold a slash",
                  here);
      set_tensor(tensors, here, value);
      object[key] = {{kTensorKey, here}};
    } else if (const auto* number = std::get_if<double>(&value)) {
      object[key] = std::isfinite(*number) ? json(*number) : json{{kNumberKey, to_text(*number)}};
    } else if (const auto* integer = std::get_if<int64_t>(&value)) {
      object[key] = *integer;
    } else if (const auto* flag = std::get_if<bool>(&value)) {
      object[key] = *flag;
    } else {
      object[key] = std::get<std::string>(value);
    }
  }
  return object;
}

[[noreturn]] void fail_no_state(const std::string& file, std::string_view reason) {
  LEVIN_FAIL("checkpoint.corrupt", "{} is not a training state: {}; load another checkpoint", file,
             printable(reason));
}

double special_number(const std::string& text, const std::string& file) {
  double number = 0.0;
  try {
    from_text(text, number);
  } catch (const Error& error) {
    fail_no_state(file, error.what());
  }
  return number;
}

/// tensors: nullptr where they are left out.
State decode(const json& object, const State* tensors, const std::string& file);

void decode_object(State& state, const std::string& key, const json& value, const State* tensors,
                   const std::string& file) {
  if (value.contains(kTensorKey)) {
    if (tensors == nullptr) return;
    const std::string path = value.at(kTensorKey).get<std::string>();
    LEVIN_CHECK(tensors->contains(path), "checkpoint.corrupt",
                "{} names a tensor '{}' that is missing in the checkpoint; load another checkpoint",
                file, printable(path));
    set_tensor(state, key, tensors->values().find(path)->second);
  } else if (value.contains(kNumberKey)) {
    state.set(key, special_number(value.at(kNumberKey).get<std::string>(), file));
  } else {
    state.set(key, decode(value, tensors, file));
  }
}

State decode(const json& object, const State* tensors, const std::string& file) {
  State state;
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      decode_object(state, key, value, tensors, file);
    } else if (value.is_boolean()) {
      state.set(key, value.get<bool>());
    } else if (value.is_number_integer()) {
      constexpr uint64_t kLargest = std::numeric_limits<int64_t>::max();
      const bool fits = !value.is_number_unsigned() || value.get<uint64_t>() <= kLargest;
      if (!fits) fail_no_state(file, "the number '" + key + "' has more than 64 bits");
      state.set(key, value.get<int64_t>());
    } else if (value.is_number_float()) {
      state.set(key, value.get<double>());
    } else {
      state.set(key, value.get<std::string>());
    }
  }
  return state;
}

State state_of(const std::string& text, const State* tensors, const std::string& file) {
  try {
    const json object =
        json::parse(detail::shallow_json(text), nullptr, /*allow_exceptions=*/false);
    if (object.is_discarded()) {
      fail_no_state(file, fmt::format("it is not JSON, or is nested deeper than {} levels",
                                      detail::kMaxJsonDepth));
    }
    if (!object.is_object()) fail_no_state(file, "it is not a JSON object");
    return decode(object, tensors, file);
  } catch (const json::exception& error) {
    fail_no_state(file, error.what());
  }
}

}  // namespace

StateJson state_to_json(const State& state) {
  StateJson parts;
  parts.json = encode(state, "", parts.tensors).dump(1, ' ', false, json::error_handler_t::replace);
  return parts;
}

State state_from_json(const StateJson& parts, const std::string& file) {
  return state_of(parts.json, &parts.tensors, file);
}

State scalars_from_json(const std::string& text, const std::string& file) {
  return state_of(text, nullptr, file);
}

}  // namespace levin
