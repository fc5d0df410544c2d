#include "levin/strategy/forecast/description.h"

#include <nlohmann/json.hpp>
#include <torch/nn/module.h>

#include <functional>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/module/parameters.h"
#include "levin/strategy/fsdp/plan_units.h"

namespace levin::forecast {
namespace {

using Json = nlohmann::json;

/// Writes each option as text.
class OptionWriter final : public FieldVisitor {
 public:
  explicit OptionWriter(Json& json) : json_(json) {}

 private:
  void visit(Field field) override {
    if (field.get && !field.name.empty()) json_[field.name] = field.get();
  }
  Json& json_;
};

class OptionReader final : public FieldVisitor {
 public:
  explicit OptionReader(const Json& json) : json_(json) {}

 private:
  void visit(Field field) override {
    if (json_.contains(field.name)) field.set(json_.at(field.name).get<std::string>());
  }
  const Json& json_;
};

template <class Options>
Json options_as_json(Options options) {
  Json json = Json::object();
  OptionWriter writer(json);
  options.fields(writer);
  return json;
}

template <class Options>
void read_options_of(const Json& json, Options& options) {
  OptionReader reader(json);
  options.fields(reader);
}

}  // namespace

int64_t PlannedParameter::numel() const {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies());
}

int64_t PlannedParameter::bytes() const {
  return numel() * static_cast<int64_t>(c10::elementSize(type));
}

Description describe(const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
                     const FsdpOptions& options) {
  Description description;
  description.fsdp = options;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (size_t number = 0; number < modules.size(); ++number) {
    const std::string prefix = modules.size() > 1 ? std::to_string(number) + "." : "";
    std::unordered_map<const c10::TensorImpl*, int64_t> units;
    for (const fsdp::UnitPlan& unit : fsdp::plan_units(*modules[number], options).units) {
      for (const NamedTensor& parameter : unit.parameters) {
        units[parameter.tensor.unsafeGetTensorImpl()] = std::ssize(description.units);
      }
      description.units.push_back(
          {.name = prefix + unit.name, .is_rest = unit.is_rest, .options = unit.options});
    }
    for (const NamedTensor& parameter : named_parameters(*modules[number])) {
      const at::Tensor& tensor = parameter.tensor;
      if (!seen.insert(tensor.unsafeGetTensorImpl()).second) continue;
      const auto unit = units.find(tensor.unsafeGetTensorImpl());
      description.parameters.push_back({.name = prefix + parameter.name,
                                        .sizes = tensor.sizes().vec(),
                                        .type = tensor.scalar_type(),
                                        .trains = tensor.requires_grad(),
                                        .unit = unit == units.end() ? -1 : unit->second});
    }
    for (const at::Tensor& buffer : modules[number]->buffers()) {
      if (buffer.defined()) description.buffer_bytes += static_cast<int64_t>(buffer.nbytes());
    }
  }
  return description;
}

std::string to_json(const Description& description) {
  Json json = {{"buffer_bytes", description.buffer_bytes},
               {"samples", description.samples},
               {"batches", description.batches},
               {"precision", description.precision},
               {"ddp", options_as_json(description.ddp)},
               {"fsdp", options_as_json(description.fsdp)},
               {"reads", description.reads},
               {"parameters", Json::array()},
               {"units", Json::array()}};
  for (const PlannedParameter& parameter : description.parameters) {
    json["parameters"].push_back({{"name", parameter.name},
                                  {"sizes", parameter.sizes},
                                  {"type", static_cast<int64_t>(parameter.type)},
                                  {"trains", parameter.trains},
                                  {"unit", parameter.unit}});
  }
  for (const PlannedUnit& unit : description.units) {
    const WrapOptions& options = unit.options;
    json["units"].push_back({{"name", unit.name},
                             {"is_rest", unit.is_rest},
                             {"reshard_after_forward", to_text(options.reshard_after_forward)}});
    if (!options.reduce_dtype) continue;
    json["units"].back()["reduce_dtype"] = static_cast<int64_t>(*options.reduce_dtype);
  }
  return json.dump(1) + "\n";
}

Description description_of(std::string_view text) {
  try {
    const Json json = Json::parse(levin::detail::shallow_json(text));
    Description description;
    json.at("buffer_bytes").get_to(description.buffer_bytes);
    json.at("samples").get_to(description.samples);
    json.at("batches").get_to(description.batches);
    json.at("precision").get_to(description.precision);
    json.at("reads").get_to(description.reads);
    read_options_of(json.at("ddp"), description.ddp);
    read_options_of(json.at("fsdp"), description.fsdp);
    for (const Json& unit : json.at("units")) {
      PlannedUnit& planned =
          description.units.emplace_back(PlannedUnit{unit.at("name"), unit.at("is_rest")});
      from_text(unit.at("reshard_after_forward").get<std::string>(),
                planned.options.reshard_after_forward);
      if (!unit.contains("reduce_dtype")) continue;
      planned.options.reduce_dtype =
          static_cast<at::ScalarType>(unit.at("reduce_dtype").get<int8_t>());
    }
    for (const Json& each : json.at("parameters")) {
      PlannedParameter parameter{.name = each.at("name"),
                                 .sizes = each.at("sizes").get<std::vector<int64_t>>(),
                                 .type = static_cast<at::ScalarType>(each.at("type").get<int8_t>()),
                                 .trains = each.at("trains"),
                                 .unit = each.at("unit")};
      LEVIN_CHECK(parameter.unit < std::ssize(description.units), "strategy.forecast.description",
                  "parameter {} is in unit {} of {}; let `levin plan` write the file",
                  parameter.name, parameter.unit, description.units.size());
      description.parameters.push_back(std::move(parameter));
    }
    return description;
  } catch (const Json::exception& error) {
    LEVIN_FAIL("strategy.forecast.description",
               "got a description of a model that cannot be read: {}; let `levin plan` write it",
               error.what());
  }
}

}  // namespace levin::forecast
