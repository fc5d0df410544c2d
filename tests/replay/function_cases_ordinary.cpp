// Functions and loops of one's own, as they are written every day.
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_function_ordinary {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;

std::tuple<Tensor> drawn(int64_t) { return {fresh({4, 6})}; }

template <class Function>
FunctionCase of_one(const std::string& name, const Function& function) {
  return {.name = name,
          .make = [function](
                      Accelerator& accelerator) { return subject(accelerator, function, drawn); },
          .wanted = Wanted::kReplayed};
}

nn::Sequential small_net() {
  return nn::Sequential(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::ReLU(), nn::Dropout(0.2),
                        nn::Linear(8, 3));
}

Batch batch_of(int64_t size) {
  const Tensor x = fresh({size, 6});
  return {{"x", x}, {"y", x.sum(1).gt(0).to(torch::kLong)}};
}

using Loop = std::function<Tensor(Accelerator&, PreparedModel<nn::SequentialImpl>&,
                                  PreparedOptimizer&, const Batch&)>;

/// A training loop whose step is compiled; weights are compared after each call.
FunctionCase loop(
    const std::string& name, const Loop& step, const OptimizerConfig& config,
    const std::function<int64_t(int64_t)>& size = [](int64_t) { return 8; },
    Wanted wanted = Wanted::kReplayed) {
  return {.name = name,
          .make =
              [=](Accelerator& accelerator) {
                nn::Sequential net = small_net();
                auto [model, optimizer] = accelerator.prepare(net, config);
                return subject(
                    accelerator,
                    [step, model = model, optimizer = optimizer,
                     &accelerator](const Batch& batch) mutable {
                      return step(accelerator, model, optimizer, batch);
                    },
                    [size](int64_t i) { return std::tuple(batch_of(size(i))); },
                    [net] {
                      Tensors state = net->parameters();
                      for (const Tensor& buffer : net->buffers()) state.push_back(buffer);
                      return state;
                    });
              },
          .wanted = wanted,
          .calls = 20};
}

Tensor plain_step(Accelerator& accelerator, PreparedModel<nn::SequentialImpl>& model,
                  PreparedOptimizer& optimizer, const Batch& batch) {
  optimizer.zero_grad();
  const Tensor loss = F::cross_entropy(model.forward(batch["x"]), batch["y"]);
  accelerator.backward(loss);
  optimizer.step();
  return loss;
}

std::vector<FunctionCase> loops() {
  const OptimizerConfig adam = optim::adam({.lr = 1e-2});
  return {
      loop("Loop", plain_step, adam),
      loop("LoopOfSgd", plain_step, optim::sgd({.lr = 0.1, .momentum = 0.9})),
      loop("LoopOfASchedule", plain_step,
           optim::adamw({.lr = 1e-2})
               .schedule(optim::cosine({.warmup_steps = 5, .total_steps = 20}))),
      loop("LoopOfTwoShapes", plain_step, adam, [](int64_t i) { return i % 5 == 4 ? 5 : 8; }),
      loop(
          "LoopThatClips",
          [](Accelerator& accelerator, auto& model, auto& optimizer, const Batch& batch) {
            optimizer.zero_grad();
            const Tensor loss = F::cross_entropy(model.forward(batch["x"]), batch["y"]);
            accelerator.backward(loss);
            const Tensor norm = accelerator.clip_grad_norm(0.1);
            optimizer.step();
            return torch::stack({loss.detach(), norm.to(torch::kFloat)});
          },
          adam),
      loop(
          "LoopThatZeroesLast",
          [](Accelerator& accelerator, auto& model, auto& optimizer, const Batch& batch) {
            const Tensor loss = F::cross_entropy(model.forward(batch["x"]), batch["y"]);
            accelerator.backward(loss);
            optimizer.step();
            optimizer.zero_grad();
            return loss;
          },
          adam),
      loop(
          "LoopByItsRate",
          [](Accelerator& accelerator, auto& model, auto& optimizer, const Batch& batch) {
            optimizer.zero_grad();
            const Tensor loss = F::cross_entropy(model.forward(batch["x"]), batch["y"]) *
                                (1 + optimizer.learning_rate());
            accelerator.backward(loss);
            optimizer.step();
            return loss;
          },
          optim::adam({.lr = 1e-2}).schedule(optim::cosine({.warmup_steps = 3, .total_steps = 20})),
          [](int64_t) { return 8; }, Wanted::kEqual),
      loop(
          "LoopByItsSteps",
          [](Accelerator& accelerator, auto& model, auto& optimizer, const Batch& batch) {
            optimizer.zero_grad();
            Tensor loss = F::cross_entropy(model.forward(batch["x"]), batch["y"]);
            if (optimizer.steps() >= 8) loss = loss * 2;
            accelerator.backward(loss);
            optimizer.step();
            return loss;
          },
          adam, [](int64_t) { return 8; }, Wanted::kEqual),
      loop(
          "LoopEveryFifthStep",
          [](Accelerator& accelerator, auto& model, auto& optimizer, const Batch& batch) {
            optimizer.zero_grad();
            Tensor loss = F::cross_entropy(model.forward(batch["x"]), batch["y"]);
            if (optimizer.steps() % 5 == 4) loss = loss * 2;
            accelerator.backward(loss);
            optimizer.step();
            return loss;
          },
          adam, [](int64_t) { return 8; }, Wanted::kEqual),
      loop(
          "LoopOfOnesOwnUpdate",
          [](Accelerator& accelerator, auto& model, auto& optimizer, const Batch& batch) {
            optimizer.zero_grad();
            const Tensor loss = F::cross_entropy(model.forward(batch["x"]), batch["y"]);
            accelerator.backward(loss);
            const at::NoGradGuard no_grad;
            for (Tensor& parameter : model->parameters()) parameter.sub_(parameter.grad(), 0.1);
            return loss.detach();
          },
          adam),
  };
}

}  // namespace rows_of_function_ordinary

std::vector<FunctionCase> ordinary_functions() {
  using namespace rows_of_function_ordinary;  // NOLINT
  std::vector<FunctionCase> all = {
      of_one("Product", [](const Tensor& x) { return x * 2; }),
      of_one("Chain", [](const Tensor& x) { return (x.tanh() * 2 + 1).softmax(1); }),
      of_one("Tuple", [](const Tensor& x) { return std::tuple(x.sum(), x.mean(), x * 3); }),
      of_one("Vector", [](const Tensor& x) { return Tensors{x.sum(), x.relu()}; }),
      of_one("Reductions",
             [](const Tensor& x) {
               return std::tuple(x.sum(0), x.argmax(1), std::get<0>(x.max(1)), x.std());
             }),
      of_one("Sorts", [](const Tensor& x) { return std::get<0>(x.sort(1)).cumsum(1); }),
      of_one("InPlace",
             [](const Tensor& x) {
               Tensor y = x.clone();
               y.slice(1, 0, 3).mul_(2);
               y[0].zero_();
               return y;
             }),
      of_one("InputInPlace",
             [](const Tensor& x) {
               x.mul_(2);
               return x.sum();
             }),
      of_one("Spectrum", [](const Tensor& x) { return torch::fft::rfft(x).abs(); }),
      of_one("Complex", [](const Tensor& x) { return torch::complex(x, x * 2) * 3; }),
      of_one("Products", [](const Tensor& x) { return x.matmul(x.t()).matmul(x); }),
      of_one("Indexed",
             [](const Tensor& x) { return x.index_select(1, torch::arange(5, -1, -1)); }),
      of_one("Random", [](const Tensor& x) { return x + torch::randn_like(x); }),
      of_one("Bf16",
             [](const Tensor& x) { return (x.to(torch::kBFloat16) * 3).to(torch::kFloat); }),
      of_one("Inverse",
             [](const Tensor& x) { return torch::linalg_inv(x.t().matmul(x) + torch::eye(6)); }),
      {.name = "Nothing",
       .make =
           [](Accelerator& accelerator) {
             const Tensor sum = torch::zeros({});
             return subject(
                 accelerator, [sum](const Tensor& x) { sum.add_(x.sum()); }, drawn,
                 [sum] { return Tensors{sum}; });
           },
       .wanted = Wanted::kReplayed},
      {.name = "TwoShapesInTurns",
       .make =
           [](Accelerator& accelerator) {
             return subject(
                 accelerator, [](const Tensor& x) { return x.softmax(1); },
                 [](int64_t i) { return std::tuple(fresh({i % 2 == 0 ? 4 : 3, 6})); });
           },
       .wanted = Wanted::kReplayed},
      {.name = "TwoTypesInTurns",
       .make =
           [](Accelerator& accelerator) {
             return subject(
                 accelerator, [](const Tensor& x) { return x.exp(); },
                 [](int64_t i) {
                   return std::tuple(fresh({3}).to(i % 2 == 0 ? torch::kFloat : torch::kDouble));
                 });
           },
       .wanted = Wanted::kReplayed},
      {.name = "EvaluationInTurns",
       .make =
           [](Accelerator& accelerator) {
             nn::Sequential net = small_net();
             auto [model] = accelerator.prepare(net);
             auto compiled = std::make_shared<Subject>(subject(
                 accelerator,
                 [model = model](const Tensor& x) mutable { return model.forward(x).detach(); },
                 drawn));
             return Subject{.call =
                                [compiled, net](int64_t i) mutable {
                                  net->train(i % 4 < 2);
                                  return compiled->call(i);
                                },
                            .report = compiled->report};
           },
       .wanted = Wanted::kReplayed},
  };
  for (const FunctionCase& one : loops()) all.push_back(one);
  return all;
}

}  // namespace levin::test
