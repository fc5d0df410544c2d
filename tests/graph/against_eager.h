#pragma once
// What every traced function is held to: the graph gives what the function gives, bit for bit.

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "levin/graph/graph.h"
#include "levin/graph/record/trace.h"
#include "levin/graph/replay/replay.h"

namespace levin::test {

using Tensors = std::vector<at::Tensor>;

/// A function of tensors and what it keeps across calls.
struct Subject {
  std::function<Tensors(const Tensors&)> function;
  Tensors inputs;
  Tensors other_inputs;  ///< for the second interpretation
  std::vector<NamedTensor> state = {};
  bool allow_host_reads = false;
};

inline bool same_bits(const at::Tensor& left, const at::Tensor& right) {
  if (left.defined() != right.defined()) return false;
  if (!left.defined()) return true;
  if (left.sizes() != right.sizes() || left.scalar_type() != right.scalar_type()) return false;
  const at::Tensor a = left.detach().resolve_conj().contiguous();
  const at::Tensor b = right.detach().resolve_conj().contiguous();
  return a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

inline void expect_same(const Tensors& came, const Tensors& wanted, const std::string& what) {
  ASSERT_EQ(came.size(), wanted.size()) << what;
  for (size_t i = 0; i < came.size(); ++i) {
    EXPECT_TRUE(same_bits(came[i], wanted[i])) << what << " " << i;
  }
}

inline Tensors copies_of(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.defined() ? tensor.detach().clone() : tensor);
  }
  return copies;
}

/// What a call leaves behind, to compare and to take back: contents and gradients of the state.
struct Kept {
  explicit Kept(const std::vector<NamedTensor>& state) {
    for (const NamedTensor& named : state) {
      contents.push_back(named.tensor.detach().clone());
      gradients.push_back(named.tensor.grad().defined() ? named.tensor.grad().clone()
                                                        : at::Tensor());
    }
  }
  void restore(const std::vector<NamedTensor>& state) const {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < state.size(); ++i) {
      state[i].tensor.copy_(contents[i]);
      state[i].tensor.mutable_grad() = gradients[i].defined() ? gradients[i].clone() : at::Tensor();
    }
  }
  Tensors contents;
  Tensors gradients;
};

struct Outcome {
  Tensors results;
  Tensors inputs;  ///< after the call
  Kept state;
};

inline Outcome outcome_of(const Subject& subject, const Tensors& inputs, uint64_t seed,
                          const std::function<Tensors(const Tensors&)>& call) {
  const Kept before(subject.state);
  const Tensors given = copies_of(inputs);
  torch::manual_seed(seed);
  Tensors results = copies_of(call(given));
  Outcome outcome{std::move(results), given, Kept(subject.state)};
  before.restore(subject.state);
  return outcome;
}

inline void expect_same(const Outcome& came, const Outcome& wanted, const std::string& what) {
  expect_same(came.results, wanted.results, what + ": result");
  expect_same(came.inputs, wanted.inputs, what + ": input after the call");
  expect_same(came.state.contents, wanted.state.contents, what + ": state");
  expect_same(came.state.gradients, wanted.state.gradients, what + ": gradient of state");
}

/// Traces it, and interprets the graph on the same inputs and on others, in place and not, and
/// after a way through text. The state is as before in the end.
inline graph::GraphModule expect_equals_eager(const Subject& subject) {
  const TraceOptions options{.state = subject.state, .allow_host_reads = subject.allow_host_reads};
  const Outcome eager = outcome_of(subject, subject.inputs, 1, subject.function);
  graph::GraphModule module{graph::Graph()};
  const Outcome traced = outcome_of(subject, subject.inputs, 1, [&](const Tensors& inputs) {
    Tensors results;
    module = trace([&](const Tensors& given) { return results = subject.function(given); }, inputs,
                   options);
    return results;
  });
  expect_same(traced, eager, "traced");
  module.graph().lint();

  const Outcome again =
      outcome_of(subject, subject.inputs, 1, [&](const Tensors& inputs) { return module(inputs); });
  expect_same(again, eager, "interpreted");
  const Tensors& others = subject.other_inputs;
  expect_same(outcome_of(subject, others, 2, [&](const Tensors& inputs) { return module(inputs); }),
              outcome_of(subject, others, 2, subject.function), "interpreted on other inputs");

  if (module.graph().host_reads().empty()) {
    graph::Replay replay(module.graph());
    const auto replayed = [&](const Tensors& inputs) { return replay(inputs); };
    expect_same(outcome_of(subject, subject.inputs, 1, replayed), eager, "replayed");
    expect_same(outcome_of(subject, others, 2, replayed),
                outcome_of(subject, others, 2, subject.function), "replayed on other inputs");
    expect_same(outcome_of(subject, subject.inputs, 1, replayed), eager, "replayed once more");
  }

  const Outcome pure = outcome_of(subject, subject.inputs, 1, [&](const Tensors& inputs) {
    const Kept before(subject.state);
    Tensors results = graph::interpret(module.graph(), inputs).outputs;
    expect_same(inputs, subject.inputs, "input that a pure interpretation left");
    expect_same(Kept(subject.state).contents, before.contents, "state that it left");
    return results;
  });
  expect_same(pure.results, eager.results, "purely interpreted: result");

  const std::string text = graph::to_text(module.graph());
  graph::Graph parsed = graph::parse(text);
  EXPECT_EQ(graph::to_text(parsed), text);
  parsed.lint();
  for (const NamedTensor& state : module.state()) {
    for (graph::Node* node : parsed.find_nodes(graph::Opcode::kGetAttr)) {
      if (node->name() == state.name) node->bind(state.tensor);
    }
  }
  if (module.graph().host_reads().empty()) {
    graph::Replay replay(parsed);  // whose types are looked at
    expect_same(outcome_of(subject, subject.inputs, 1,
                           [&](const Tensors& inputs) { return replay(inputs); }),
                eager, "replayed from text");
  }
  graph::GraphModule read_back(std::move(parsed));
  expect_same(outcome_of(subject, subject.inputs, 1,
                         [&](const Tensors& inputs) { return read_back(inputs); }),
              eager, "interpreted from text");
  return module;
}

}  // namespace levin::test
