#include "levin/strategy/backward.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <random>
#include <thread>

namespace {

using at::Tensor;
using ::testing::HasSubstr;

using Backward = std::function<void(const Tensor&)>;

void by_levin(const Tensor& loss) { levin::backward(loss); }
void by_libtorch(const Tensor& loss) { loss.backward(); }

/// What either says when it throws, without the C++ stack.
std::string says(const Backward& backward, const Tensor& loss) {
  try {
    backward(loss);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

/// Bit for bit, undefined ones included.
void expect_same(const std::vector<Tensor>& ours, const std::vector<Tensor>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].defined(), theirs[i].defined()) << "gradient " << i;
    if (!ours[i].defined()) continue;
    ASSERT_EQ(ours[i].layout(), theirs[i].layout()) << "gradient " << i;
    const bool dense = ours[i].layout() == at::kStrided;
    if (dense) {
      EXPECT_EQ(ours[i].strides(), theirs[i].strides()) << "gradient " << i;
    }
    EXPECT_TRUE(torch::equal(dense ? ours[i] : ours[i].to_dense(),
                             dense ? theirs[i] : theirs[i].to_dense()))
        << "gradient " << i;
  }
}

std::vector<Tensor> gradients_of(const std::vector<Tensor>& leaves) {
  std::vector<Tensor> gradients;
  for (const Tensor& leaf : leaves) gradients.push_back(leaf.grad());
  return gradients;
}

/// Two results, the second multiplied; its backward computes in the graph of a forward of its own,
/// as activation checkpointing does.
struct Recompute : torch::autograd::Function<Recompute> {
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const Tensor& x) {
    context->save_for_backward({x});
    return {x.sin(), x * 3};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::AutoGradMode with_grad(true);
    const Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const Tensor inner = (x.sin() * gradients[0]).sum() + (x * 3 * gradients[1]).sum();
    levin::backward(inner);
    return {x.grad()};
  }
};

/// Leaves, and a loss over a random graph of them: shared and unused tensors, views, operations of
/// several results, of which some are let fall, in-place ones, gradients that are cut off.
struct RandomGraph {
  std::vector<Tensor> leaves;
  Tensor loss;

  explicit RandomGraph(uint64_t seed) : random_(seed) {
    torch::manual_seed(seed);
    for (int i = 0; i < 6; ++i) leaves.push_back(torch::randn({4, 4}).requires_grad_());
    leaves.push_back(torch::randn({4, 4}).t().requires_grad_());
    leaves.push_back(torch::randn({4, 4}, at::kDouble).requires_grad_());
    values_ = leaves;
    values_.push_back(torch::randn({4, 4}));
    for (int i = 0; i < 40; ++i) values_.push_back(grow().to(at::kFloat));
    loss = values_.back().square().mean();
    for (int i = 0; i < 4; ++i) loss = loss + pick().to(at::kFloat).mean();
  }

 private:
  Tensor pick() { return values_[random_() % values_.size()]; }

  Tensor grow() {
    const Tensor a = pick().tanh(), b = pick();
    switch (random_() % 14) {
      case 0:
        return a + b;
      case 1:
        return a * b;
      case 2:
        return a.to(at::kFloat).matmul(b.to(at::kFloat));
      case 3:
        return a.t();
      case 4:
        return torch::cat(a.chunk(4), 1).view({4, 4});
      case 5:
        return a.split(2, 1)[random_() % 2].repeat({1, 2});
      case 6:
        return a.select(0, 1).expand({4, 4});
      case 7:
        return torch::relu(a) + a;
      case 8:
        return std::get<0>(a.max(1, true)) * b;
      case 9:
        return torch::log_softmax(a, 1);
      case 10:
        return a.detach() * b;
      case 11:
        return (a * 2).add_(b.to(a.scalar_type())).mul_(b);
      case 12:
        return a.index_select(0, torch::tensor({3, 1, 1, 0})).to(at::kDouble);
      default: {
        const auto both = Recompute::apply(a);
        return random_() % 2 == 0 ? both[0] + both[1] : both[1];
      }
    }
  }

  std::mt19937_64 random_;
  std::vector<Tensor> values_;
};

std::vector<Tensor> gradients_of_graph(uint64_t seed, const Backward& backward) {
  RandomGraph graph(seed);
  backward(graph.loss);
  return gradients_of(graph.leaves);
}

TEST(Backward, EqualsTheEnginesOverRandomGraphsBitForBit) {
  int reached = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    const auto gradients = gradients_of_graph(seed, by_levin);
    expect_same(gradients, gradients_of_graph(seed, by_libtorch));
    for (const Tensor& gradient : gradients) reached += gradient.defined();
  }
  EXPECT_GT(reached, 800);
}

/// Convolution, batch norm, dropout, recurrence, attention and an embedding with sparse gradients.
struct Net : torch::nn::Module {
  torch::nn::Embedding embedding{nullptr};
  torch::nn::Conv1d convolution{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::LSTM recurrent{nullptr};
  torch::nn::Linear head{nullptr};

  Net() {
    torch::manual_seed(5);
    embedding = register_module(
        "embedding", torch::nn::Embedding(torch::nn::EmbeddingOptions(20, 8).sparse(true)));
    convolution = register_module("convolution",
                                  torch::nn::Conv1d(torch::nn::Conv1dOptions(8, 8, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm1d(8));
    recurrent = register_module(
        "recurrent", torch::nn::LSTM(torch::nn::LSTMOptions(8, 8).num_layers(2).batch_first(true)));
    head = register_module("head", torch::nn::Linear(8, 20));
    head->weight.set_data(embedding->weight.detach().clone());
  }

  Tensor loss() {
    torch::manual_seed(6);
    const Tensor ids = torch::randint(0, 20, {3, 7});
    const Tensor again = embedding->forward(ids.flip(1));
    Tensor x = embedding->forward(ids) + again;
    x = torch::dropout(norm->forward(convolution->forward(x.transpose(1, 2))), 0.2, true);
    x = std::get<0>(recurrent->forward(x.transpose(1, 2)));
    x = at::scaled_dot_product_attention(x, x, again) + x;
    return torch::nn::functional::cross_entropy(head->forward(x).flatten(0, 1), ids.flatten());
  }
};

TEST(Backward, EqualsTheEnginesOverLayersAndAccumulates) {
  Net ours, theirs;
  for (int batch = 0; batch < 3; ++batch) {
    levin::backward(ours.loss());
    theirs.loss().backward();
    expect_same(gradients_of(ours.parameters()), gradients_of(theirs.parameters()));
  }
  EXPECT_TRUE(ours.embedding->weight.grad().is_sparse());
}

TEST(Backward, AddsSparseAndDenseGradientsOfOneWeight) {
  const auto gradient = [](const Backward& backward, bool dense_first) {
    torch::manual_seed(1);
    const Tensor weight = torch::randn({6, 3}).requires_grad_();
    const Tensor shared = weight * 2;
    const auto sparse = [&] {
      return torch::embedding(shared, torch::tensor({0, 5, 5}), -1, false, /*sparse=*/true).sum();
    };
    const auto dense = [&] { return shared.square().sum(); };
    const Tensor first = dense_first ? dense() : sparse();
    backward(first + (dense_first ? sparse() : dense()));
    return weight.grad();
  };
  for (const bool dense_first : {true, false}) {
    expect_same({gradient(by_levin, dense_first)}, {gradient(by_libtorch, dense_first)});
  }
}

TEST(Backward, KeepsAGradientThatNobodyElseHoldsWithoutACopy) {
  const Tensor x = torch::ones({8}).requires_grad_();
  const void* seen = nullptr;
  x.register_hook([&](const Tensor& gradient) { seen = gradient.const_data_ptr(); });
  levin::backward((x * 2).sum());
  EXPECT_EQ(x.grad().const_data_ptr(), seen);
}

/// Each hook that ran, in order, and the gradient that it saw.
std::vector<std::string> hooks_run(const Backward& backward) {
  std::vector<std::string> seen;
  const auto hook = [&](const std::string& name, double factor) {
    return [&seen, name, factor](const Tensor& gradient) {
      seen.push_back(name + " " + c10::str(gradient.sum().item<float>()));
      return gradient * factor;
    };
  };
  const Tensor a = torch::ones({2}).requires_grad_(), b = torch::full({2}, 2.0).requires_grad_();
  a.register_hook(hook("a first", 2));
  a.register_hook(hook("a second", 3));
  b.register_hook(hook("b", 1));
  const Tensor product = a * b, sum = product + a;
  product.register_hook(hook("product", 0.5));
  product.retain_grad();
  const Tensor loss = sum.square().sum();
  loss.register_hook(hook("loss", 10));

  struct NodeHook : torch::autograd::FunctionPreHook, torch::autograd::FunctionPostHook {
    std::vector<std::string>* seen;
    explicit NodeHook(std::vector<std::string>* seen) : seen(seen) {}
    std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) override {
      seen->push_back("before the node");
      return inputs;
    }
    std::vector<Tensor> operator()(const std::vector<Tensor>& outputs,
                                   const std::vector<Tensor>& inputs) override {
      seen->push_back("after the node " + c10::str(inputs[0].sum().item<float>()));
      return {outputs[0] * 2, outputs[1]};
    }
    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {}
  };
  product.grad_fn()->add_pre_hook(std::make_unique<NodeHook>(&seen));
  product.grad_fn()->add_post_hook(std::make_unique<NodeHook>(&seen));

  struct Accumulated : torch::autograd::PostAccumulateGradHook {
    std::vector<std::string>* seen;
    explicit Accumulated(std::vector<std::string>* seen) : seen(seen) {}
    void operator()(const Tensor& leaf) override {
      seen->push_back("accumulated " + c10::str(leaf.grad().sum().item<float>()));
    }
  };
  torch::autograd::impl::set_post_acc_grad_hooks(b, std::make_unique<Accumulated>(&seen));

  backward(loss);
  for (const Tensor& tensor : {a, b, product}) {
    seen.push_back("grad " + c10::str(tensor.grad().sum().item<float>()));
  }
  return seen;
}

TEST(Backward, RunsEveryHookInTheEnginesOrder) {
  const auto ours = hooks_run(by_levin);
  EXPECT_EQ(ours, hooks_run(by_libtorch));
  EXPECT_EQ(ours.size(), 11);
}

TEST(Backward, SaysWhatTheEngineSays) {
  const Tensor x = torch::ones({2, 2}).requires_grad_();
  const auto same_words = [](const std::function<Tensor()>& loss, const std::string& part) {
    const std::string words = says(by_levin, loss());
    EXPECT_EQ(words, says(by_libtorch, loss()));
    EXPECT_THAT(words, HasSubstr(part));
  };
  same_words([&] { return x * 2; }, "grad can be implicitly created only for scalar outputs");
  same_words([&] { return x.detach().sum(); }, "does not require grad");
  same_words(
      [&] {
        const Tensor y = x * 1;
        const Tensor loss = y.exp().sum();
        loss.backward();
        return loss;
      },
      "backward through the graph a second time");
  same_words(
      [&] {
        Tensor y = x * 1;
        const Tensor loss = y.square().sum();
        y.add_(1);
        return loss;
      },
      "modified by an inplace operation");

  struct Wrong : torch::autograd::Function<Wrong> {
    static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x, bool) {
      return x.sum();
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                   torch::autograd::variable_list gradients) {
      return {torch::ones({3}) * gradients[0], Tensor()};
    }
  };
  same_words([&] { return Wrong::apply(x, true); }, "returned an invalid gradient at index 0");
  EXPECT_FALSE(x.grad().isnan().any().item<bool>());
}

TEST(Backward, ThatThrewCanBeCalledOnTheNextGraph) {
  const Tensor x = torch::ones({3}).requires_grad_();
  const auto index = x.register_hook([](const Tensor&) { throw std::runtime_error("told to"); });
  EXPECT_EQ(says(by_levin, (x * 2).sum()), "told to");
  x.remove_hook(index);
  levin::backward((x * 2).sum());
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({3}, 2.0)));
}

TEST(Backward, RecordsNoGraphAndLeavesGradModeAsItWas) {
  const Tensor x = torch::ones({3}).requires_grad_();
  levin::backward((x * x).sum());
  EXPECT_FALSE(x.grad().requires_grad());
  EXPECT_TRUE(at::GradMode::is_enabled());
}

TEST(Backward, OfALeafAndOfAnotherDeviceAreTheEngines) {
  const Tensor leaf = torch::ones({1}).requires_grad_();
  levin::backward(leaf);
  EXPECT_TRUE(torch::equal(leaf.grad(), torch::ones({1})));

  const Tensor meta = torch::ones({2}, at::kMeta).requires_grad_();
  levin::backward((meta * 2).sum());
  EXPECT_TRUE(meta.grad().is_meta());
}

TEST(Backward, DetectsAnomalies) {
  torch::autograd::AnomalyMode::set_enabled(true);
  const Tensor x = torch::zeros({2}).requires_grad_();
  const std::string words = says(by_levin, (x.sqrt() * 0).sum());
  torch::autograd::AnomalyMode::set_enabled(false);
  EXPECT_THAT(words, HasSubstr("SqrtBackward0' returned nan values"));
}

TEST(Backward, OfAVeryDeepGraphNeedsNoStack) {
  const Tensor x = torch::ones({1}).requires_grad_();
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) y = y + 1;
  levin::backward(y.sum());
  EXPECT_EQ(x.grad().item<float>(), 1);
}

TEST(Backward, OfSeveralThreadsAddUp) {
  const Tensor x = torch::ones({64}).requires_grad_();
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&x] {
      for (int step = 0; step < 50; ++step) levin::backward((x * 2).sum());
    });
  }
  threads.clear();
  EXPECT_TRUE(torch::equal(x.grad(), torch::full({64}, 400.0)));
}

TEST(Backward, DoesNotLoseAGradientWhenAHookChangesTheGraph) {
  const Tensor x = torch::ones({2}).requires_grad_(), y = torch::ones({2}).requires_grad_();
  for (const int edges : {0, 1, 2}) {
    const Tensor product = x * y;
    product.register_hook([node = product.grad_fn().get(), edges, &x](const Tensor&) {
      if (edges == 0) node->next_edges().clear();
      if (edges == 1) node->next_edges().push_back({});
      if (edges == 2) node->next_edges()[1] = torch::autograd::impl::gradient_edge(x);
    });
    const std::string words = says(by_levin, product.sum());
    EXPECT_THAT(words, edges == 0   ? HasSubstr("Index out of range")
                       : edges == 1 ? HasSubstr("number of gradients")
                                    : HasSubstr("strategy.backward.graph: the edges of Mul"));
  }
}

}  // namespace
