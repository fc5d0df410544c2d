#include "tests/xla/module_cases.h"

namespace levin::test {
namespace {

namespace nn = torch::nn;
namespace rnn = torch::nn::utils::rnn;
using at::Tensor;

constexpr int64_t kInput = 4;
constexpr int64_t kHidden = 3;

struct RecurrentForm {
  std::string name;
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;
  bool bidirectional = false;
  bool has_state = false;
  std::vector<int64_t> lengths = {};  ///< of packed sequences
  bool is_sorted = true;
  double dropout = 0.0;
  int64_t proj_size = 0;
};

/// All of them in few.
std::vector<RecurrentForm> few_forms() {
  return {{.name = "Bidirectional", .bidirectional = true},
          {.name = "StackedBatchFirstWithoutBias",
           .num_layers = 2,
           .bias = false,
           .batch_first = true,
           .has_state = true},
          {.name = "PackedUnsortedBothWaysOfState",
           .batch_first = true,
           .bidirectional = true,
           .has_state = true,
           .lengths = {2, 3},
           .is_sorted = false}};
}

std::vector<RecurrentForm> forms() {
  std::vector<RecurrentForm> all = {
      {.name = "Plain"},
      {.name = "BidirectionalOfState", .bidirectional = true, .has_state = true},
      {.name = "Stacked", .num_layers = 2},
      {.name = "BatchFirst", .batch_first = true},
      {.name = "BatchFirstBothWays", .batch_first = true, .bidirectional = true},
      {.name = "WithoutBias", .bias = false},
      {.name = "Packed", .lengths = {3, 2}},
      {.name = "PackedStacked", .num_layers = 2, .lengths = {3, 1}},
      {.name = "DropoutStacked", .num_layers = 2, .bidirectional = true, .dropout = 0.4},
      {.name = "AllDroppedStacked", .num_layers = 2, .dropout = 1.0}};
  for (const RecurrentForm& form : few_forms()) all.push_back(form);
  return all;
}

std::vector<RecurrentForm> relu_forms() {
  std::vector<RecurrentForm> all = few_forms();
  all.push_back({.name = "PackedStacked", .num_layers = 2, .lengths = {3, 1}});
  all.push_back({.name = "DropoutStacked", .num_layers = 2, .dropout = 0.4});
  all.push_back({.name = "AllDroppedStacked", .num_layers = 2, .dropout = 1.0});
  return all;
}

std::vector<RecurrentForm> projected_forms() {
  return {
      {.name = "Projected", .proj_size = 2},
      {.name = "ProjectedBothWaysOfState",
       .num_layers = 2,
       .bidirectional = true,
       .has_state = true,
       .proj_size = 2},
      {.name = "ProjectedBothWaysPacked", .bidirectional = true, .lengths = {3, 2}, .proj_size = 2},
      {.name = "ProjectedWithoutBiasPacked", .bias = false, .lengths = {3, 2}, .proj_size = 1}};
}

/// The sequence, then the states.
std::function<OperatorTensors()> inputs_of(const RecurrentForm& form, bool has_cell) {
  std::vector<std::vector<int64_t>> sizes = {form.batch_first ? std::vector<int64_t>{2, 3, kInput}
                                                              : std::vector<int64_t>{3, 2, kInput}};
  const int64_t rows = form.num_layers * (form.bidirectional ? 2 : 1);
  if (form.has_state) {
    sizes.push_back({rows, 2, form.proj_size > 0 ? form.proj_size : kHidden});
    if (has_cell) sizes.push_back({rows, 2, kHidden});
  }
  return drawn(sizes);
}

template <class Options>
Options shared_options(Options options, const RecurrentForm& form) {
  return options.num_layers(form.num_layers)
      .bias(form.bias)
      .batch_first(form.batch_first)
      .dropout(form.dropout)
      .bidirectional(form.bidirectional);
}

template <class Layer>
auto state_of(const Layer& /*layer*/, const OperatorTensors& t) {
  return t.size() > 1 ? t[1] : Tensor();
}
std::optional<std::tuple<Tensor, Tensor>> state_of(const nn::LSTM& /*layer*/,
                                                   const OperatorTensors& t) {
  if (t.size() < 3) return std::nullopt;
  return std::tuple(t[1], t[2]);
}

template <class Layer>
OperatorTensors run(Layer& layer, const RecurrentForm& form, const OperatorTensors& t) {
  if (form.lengths.empty()) return listed(layer->forward(t[0], state_of(layer, t)));
  const Tensor lengths = torch::tensor(form.lengths, at::kLong);
  const rnn::PackedSequence packed =
      rnn::pack_padded_sequence(t[0], lengths, form.batch_first, form.is_sorted);
  const auto [out, state] = layer->forward_with_packed_input(packed, state_of(layer, t));
  return listed(std::get<0>(rnn::pad_packed_sequence(out, form.batch_first, 0.5)), state);
}

template <class Layer>
ModuleCase recurrent(const std::string& kind, const RecurrentForm& form,
                     const std::function<Layer()>& make) {
  return {.name = kind + form.name,
          .inputs = inputs_of(form, std::is_same_v<Layer, nn::LSTM>),
          .make = [form, make]() -> ModuleCase::Made {
            Layer layer = make();
            return {layer.ptr(), [layer, form](const OperatorTensors& t) mutable {
                      return run(layer, form, t);
                    }};
          },
          .is_random = form.dropout > 0 && form.dropout < 1};
}

ModuleCases cells() {
  const auto one = drawn({{2, kInput}});
  const auto of_state = drawn({{2, kInput}, {2, kHidden}, {2, kHidden}});
  const auto unbatched = drawn({{kInput}, {kHidden}});
  const auto relu = nn::RNNCellOptions(kInput, kHidden).nonlinearity(torch::kReLU).bias(false);
  return {
      MODULE("RNNCellRelu", nn::RNNCell(relu), one, m->forward(t[0])),
      MODULE("RNNCellOfState", nn::RNNCell(kInput, kHidden), of_state, m->forward(t[0], t[1])),
      MODULE("RNNCellUnbatched", nn::RNNCell(relu), unbatched, m->forward(t[0], t[1])),
      MODULE("LSTMCellWithoutBias", nn::LSTMCell(nn::LSTMCellOptions(kInput, kHidden).bias(false)),
             one, m->forward(t[0])),
      MODULE("LSTMCellOfState", nn::LSTMCell(kInput, kHidden), of_state,
             m->forward(t[0], std::tuple(t[1], t[2]))),
      MODULE("LSTMCellUnbatched", nn::LSTMCell(kInput, kHidden), unbatched,
             m->forward(t[0], std::tuple(t[1], t[1]))),
      MODULE("GRUCellWithoutBias", nn::GRUCell(nn::GRUCellOptions(kInput, kHidden).bias(false)),
             one, m->forward(t[0])),
      MODULE("GRUCellOfState", nn::GRUCell(kInput, kHidden), of_state, m->forward(t[0], t[1])),
      MODULE("GRUCellUnbatched", nn::GRUCell(kInput, kHidden), unbatched, m->forward(t[0], t[1]))};
}

}  // namespace

ModuleCases recurrent_modules() {
  ModuleCases all = cells();
  for (const bool is_relu : {false, true}) {
    for (const RecurrentForm& form : is_relu ? relu_forms() : forms()) {
      all.push_back(recurrent<nn::RNN>(is_relu ? "RNNRelu" : "RNN", form, [=] {
        auto options = shared_options(nn::RNNOptions(kInput, kHidden), form);
        if (is_relu) options.nonlinearity(torch::kReLU);
        return nn::RNN(options);
      }));
    }
  }
  for (const RecurrentForm& form : forms()) {
    all.push_back(recurrent<nn::GRU>("GRU", form, [=] {
      return nn::GRU(shared_options(nn::GRUOptions(kInput, kHidden), form));
    }));
  }
  std::vector<RecurrentForm> long_forms = forms();
  for (const RecurrentForm& form : projected_forms()) long_forms.push_back(form);
  for (const RecurrentForm& form : long_forms) {
    all.push_back(recurrent<nn::LSTM>("LSTM", form, [=] {
      return nn::LSTM(
          shared_options(nn::LSTMOptions(kInput, kHidden), form).proj_size(form.proj_size));
    }));
  }
  return all;
}

}  // namespace levin::test
