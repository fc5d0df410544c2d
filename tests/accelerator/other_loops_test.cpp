// Loops of people who did not write for levin: networks with methods of their own, state that is
// carried from batch to batch, data without loaders, TorchScript. Each under every strategy gives the
// numbers of the same loop in plain LibTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <torch/script.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <thread>

#include "levin/accelerator/accelerator.h"
#include "levin/base/log_sink.h"
#include "levin/data/sources/sources.h"
#include "levin/module/jit_module.h"
#include "levin/module/parameters.h"
#include "levin/optim/optim.h"
#include "tests/support/cpu_plugin.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/world.h"

namespace {

using levin::Accelerator;
using levin::AcceleratorOptions;
using levin::test::error_of;
using levin::test::run_world;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int64_t kSteps = 8;

/// A step's rows, all ranks' together.
at::Tensor rows_of_step(int64_t step) {
  return torch::sin(torch::arange(4 * 6).view({4, 6}) * 0.7 + static_cast<double>(step));
}
at::Tensor targets_of(const at::Tensor& x) { return x.narrow(1, 0, 2).square(); }

/// A user's class with more than a forward.
struct OwnMethods {
  struct Net : torch::nn::Module {
    torch::nn::Linear in = register_module("in", torch::nn::Linear(6, 5));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(5, 2));
    double weight_of_penalty = 0.01;

    at::Tensor encode(const at::Tensor& x) { return in->forward(x).tanh(); }
    at::Tensor decode(const at::Tensor& code) { return out->forward(code); }
    at::Tensor penalty() { return weight_of_penalty * in->weight.square().sum(); }
    at::Tensor forward(const at::Tensor& x) { return decode(encode(x)); }
  };
  static std::shared_ptr<Net> make() { return std::make_shared<Net>(); }

  template <class Model>
  static at::Tensor loss(Model& model, const at::Tensor& x, at::Tensor& carried) {
    const at::Tensor code = model->encode(x);
    const at::Tensor own = torch::mse_loss(model->decode(code), targets_of(x)) + model->penalty();
    return own + torch::mse_loss(model->forward(x), targets_of(x)) + model->penalty();
  }
};

/// Truncated backpropagation through time.
struct CarriedState {
  struct Net : torch::nn::Module {
    torch::nn::GRUCell cell = register_module("cell", torch::nn::GRUCell(6, 5));
    torch::nn::Linear out = register_module("out", torch::nn::Linear(5, 2));
    at::Tensor first = register_parameter("first", torch::full({5}, 0.1));

    at::Tensor init_hidden(int64_t rows) { return first.expand({rows, 5}); }
    std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& hidden) {
      const at::Tensor next = cell->forward(x, hidden);
      return {out->forward(next), next};
    }
  };
  static std::shared_ptr<Net> make() { return std::make_shared<Net>(); }

  template <class Model>
  static at::Tensor loss(Model& model, const at::Tensor& x, at::Tensor& carried) {
    const at::Tensor hidden = carried.defined() ? carried : model->init_hidden(x.size(0));
    auto [y, next] = model->forward(x, hidden);
    carried = next.detach();
    return torch::mse_loss(y, targets_of(x));
  }
};

/// Nothing but a forward.
struct Plain {
  static torch::nn::Sequential make() {
    return torch::nn::Sequential(torch::nn::Linear(6, 5), torch::nn::Tanh(),
                                 torch::nn::Linear(5, 2));
  }
  template <class Model>
  static at::Tensor loss(Model& model, const at::Tensor& x, at::Tensor& carried) {
    return torch::mse_loss(model->forward(x), targets_of(x));
  }
};

/// Layers that get the same gradients, each its own.
struct Twins {
  struct Net : torch::nn::Module {
    torch::nn::Linear left = register_module("left", torch::nn::Linear(6, 2));
    torch::nn::Linear right = register_module("right", torch::nn::Linear(6, 2));
    at::Tensor forward(const at::Tensor& x) { return left->forward(x) + right->forward(x); }
  };
  static std::shared_ptr<Net> make() { return std::make_shared<Net>(); }
  template <class Model>
  static at::Tensor loss(Model& model, const at::Tensor& x, at::Tensor& carried) {
    return torch::mse_loss(model->forward(x), targets_of(x));
  }
};

/// TorchScript with parameters, and a buffer that each forward changes.
torch::jit::Module scripted() {
  torch::jit::Module in("In"), net("Net");
  in.register_parameter("weight", (torch::randn({5, 6}) * 0.4).requires_grad_(), false);
  in.register_parameter("bias", torch::zeros({5}).requires_grad_(), false);
  in.register_attribute("training", c10::BoolType::get(), true);
  in.define(
      "def forward(self, x):\n  return torch.tanh(torch.matmul(x, self.weight.t()) + self.bias)\n");
  net.register_module("in", in);
  net.register_parameter("out", (torch::randn({2, 5}) * 0.4).requires_grad_(), false);
  net.register_buffer("num_batches", torch::zeros({}));
  net.register_attribute("training", c10::BoolType::get(), true);
  net.define(R"(
def forward(self, x):
  if self.training:
    self.num_batches.add_(1.0)
  return torch.matmul(getattr(self, "in").forward(x), self.out.t())
)");
  return net;
}

struct Jit {
  static std::shared_ptr<levin::JitModule> make() {
    return std::make_shared<levin::JitModule>(scripted());
  }
  template <class Model>
  static at::Tensor loss(Model& model, const at::Tensor& x, at::Tensor& carried) {
    return torch::mse_loss(model->forward(x), targets_of(x));
  }
};

template <class Program>
levin::State trained_by_hand() {
  torch::manual_seed(2);
  auto net = Program::make();
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  at::Tensor carried;
  for (int64_t step = 0; step < kSteps; ++step) {
    optimizer.zero_grad();
    Program::loss(net, rows_of_step(step), carried).backward();
    optimizer.step();
  }
  return levin::full(*net);
}

template <class Program>
levin::State trained(const AcceleratorOptions& options, int64_t& replayed) {
  Accelerator accelerator(options);
  torch::manual_seed(2);
  auto net = Program::make();
  auto [prepared, sgd] = accelerator.prepare(net, levin::optim::sgd({.lr = 0.1, .momentum = 0.9}));
  auto& model = prepared;
  auto& optimizer = sgd;
  const auto step = [&](const at::Tensor& x, at::Tensor carried) {
    optimizer.zero_grad();
    const at::Tensor loss = Program::loss(model, x, carried);
    accelerator.backward(loss);
    optimizer.step();
    return carried.defined() ? carried : x;
  };
  auto compiled = accelerator.compile(step);
  at::Tensor carried;
  for (int64_t i = 0; i < kSteps; ++i) {
    const at::Tensor x =
        accelerator.split_between_processes(rows_of_step(i)).to(accelerator.device());
    const bool carries = std::is_same_v<Program, CarriedState>;
    if (!carries || i == 0) {
      carried = carries ? step(x, at::Tensor()) : compiled(x, x.clone());
    } else {
      carried = compiled(x, carried);
    }
  }
  replayed = compiled.report().replayed;
  return levin::full(*net);
}

std::string difference(const levin::State& got, const levin::State& wanted) {
  for (const auto& [name, value] : wanted.values()) {
    if (!got.contains(name)) return name + " is missing";
    const at::Tensor mine = got.tensor(name).cpu();
    if (!torch::allclose(mine, wanted.tensor(name), 1e-4, 1e-5)) {
      return c10::str(name, " is ", mine, ", wanted ", wanted.tensor(name));
    }
  }
  return "";
}

struct Conditions {
  std::string name;
  int64_t ranks = 1;
  std::string strategy = "auto";
  std::string backend = "auto";
  std::string compile = "no";
  std::string carrying =
      "";  ///< loops whose parameters are not all in each loss: the error's start
};
void PrintTo(const Conditions& conditions, std::ostream* out) { *out << conditions.name; }

class OtherLoopsUnder : public ::testing::TestWithParam<Conditions> {
 protected:
  template <class Program>
  static std::vector<std::string> differences() {
    const levin::State wanted = trained_by_hand<Program>();
    return run_world(GetParam().ranks, [&](int64_t, const auto&) {
      AcceleratorOptions options;
      options.cpu = true;
      options.strategy = GetParam().strategy;
      options.engine.comm.backend = GetParam().backend;
      options.engine.compile = GetParam().compile;
      options.engine.compile_check = "no";
      int64_t replayed = 0;
      const std::string off = difference(trained<Program>(options, replayed), wanted);
      const bool is_replayed = replayed > 0 || GetParam().compile == "no";
      return off.empty() && !is_replayed ? std::string("nothing was replayed") : off;
    });
  }
};

TEST_P(OtherLoopsUnder, OfANetworkWithMethodsOfItsOwnTrainAsPlainLibTorch) {
  EXPECT_THAT(differences<OwnMethods>(), Each(""));
}
TEST_P(OtherLoopsUnder, ThatCarryStateTrainAsPlainLibTorchOrSayWhyNot) {
  EXPECT_THAT(differences<CarriedState>(), Each(StartsWith(GetParam().carrying)));
  if (GetParam().carrying.empty()) EXPECT_THAT(differences<CarriedState>(), Each(""));
}
TEST_P(OtherLoopsUnder, WithoutLoadersTrainAsPlainLibTorch) {
  EXPECT_THAT(differences<Plain>(), Each(""));
}
TEST_P(OtherLoopsUnder, OfLayersWithTheSameGradientsTrainAsPlainLibTorch) {
  EXPECT_THAT(differences<Twins>(), Each(""));
}
TEST_P(OtherLoopsUnder, OfTorchScriptTrainAsPlainLibTorch) {
  EXPECT_THAT(differences<Jit>(), Each(""));
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, OtherLoopsUnder,
    ::testing::Values(Conditions{"Single"}, Conditions{"Ddp", 2, "ddp"},
                      Conditions{"Fsdp", 2, "fsdp"}, Conditions{"FsdpGathered", 2, "fsdp", "gloo"},
                      Conditions{"Zero", 2, "zero"},
                      Conditions{"Replay", 1, "auto", "auto", "replay"},
                      Conditions{"DdpReplay", 2, "ddp", "auto", "replay",
                                 "strategy.ddp.unused: parameter first got no gradient"}),
    [](const auto& info) { return info.param.name; });

/// What a process says on its end by an error that nobody catches. In a thread of its own, as here
/// there is somebody who would.
std::string last_words(const std::function<void()>& run) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    std::thread(run).join();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t count = 0; (count = ::read(ends[0], buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  return text;
}

// Rank 0 has no row of the second layer, which is a size error of LibTorch there.
TEST(OtherLoops, AParameterOutsideOfForwardIsTheSameErrorOnRanksWithoutRows) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) {
    AcceleratorOptions options;
    options.cpu = true;
    options.strategy = "fsdp";
    const std::string said = last_words([&] {
      Accelerator accelerator(options);
      torch::nn::Sequential net(torch::nn::Linear(6, 3), torch::nn::Linear(3, 1));
      auto [model, optimizer] = accelerator.prepare(net, levin::optim::sgd({.lr = 0.1}));
      const at::Tensor outside = net->parameters()[2];
      const at::Tensor row = outside.slice(0, 0, 1);
      const at::Tensor y = model->forward(torch::ones({4, 6}));
      accelerator.backward(y.matmul(row).mean());
    });
    const std::string wanted =
        "error: strategy.fsdp.outside: parameter 1.weight of unit 0 was used outside of a forward "
        "pass, where a rank holds only its shard";
    if (said.find(wanted) == std::string::npos) return said;
    return said.find(c10::str("[rank ", rank, "]")) == std::string::npos ? said : std::string();
  });
  EXPECT_THAT(words, Each(""));
}

struct Misuse {
  std::string name;
  std::function<void(Accelerator&)> run;
  std::string says;
};
class FsdpMisused : public ::testing::TestWithParam<Misuse> {};

TEST_P(FsdpMisused, IsNamedOnTheRankWhereLibTorchSpeaksOfSomethingElse) {
  const auto words = run_world(2, [&](int64_t, const auto&) {
    AcceleratorOptions options;
    options.cpu = true;
    options.strategy = "fsdp";
    const std::string said = last_words([&] {
      Accelerator accelerator(options);
      GetParam().run(accelerator);
    });
    return said.find(GetParam().says) == std::string::npos ? said : std::string();
  });
  EXPECT_THAT(words, Each(""));
}

INSTANTIATE_TEST_SUITE_P(
    OtherLoops, FsdpMisused,
    ::testing::Values(Misuse{"ForwardOfTheModuleItself",
                             [](Accelerator& accelerator) {
                               torch::nn::Sequential net(torch::nn::Linear(6, 3),
                                                         torch::nn::Linear(3, 1));
                               accelerator.prepare(net);
                               net->forward(torch::ones({4, 6}));
                             },
                             "error: strategy.fsdp.outside: "},
                      Misuse{"AnOptimizerThatWasNotPrepared",
                             [](Accelerator& accelerator) {
                               torch::nn::Sequential net(torch::nn::Linear(6, 3),
                                                         torch::nn::Linear(3, 1));
                               torch::optim::Adam optimizer(net->parameters());
                               auto [model] = accelerator.prepare(net);
                               accelerator.backward(model->forward(torch::ones({4, 6})).mean());
                               optimizer.step();
                               optimizer.zero_grad();
                             },
                             "error: strategy.fsdp.optimizer: zero_grad of an unprepared "
                             "torch::optim optimizer met"}),
    [](const auto& info) { return info.param.name; });

/// What rank 0 said to the user, in a loop of two steps over two processes.
std::vector<std::string> said_without_loader(bool splits, bool prepares) {
  const auto words = run_world(2, [&](int64_t rank, const auto&) {
    std::string said;
    levin::log::set_sink([&](levin::log::Level, std::string_view text) {
      if (text.find("accelerator.loaders") != text.npos) said.append(text).append(";");
    });
    AcceleratorOptions options;
    options.cpu = true;
    Accelerator accelerator(options);
    auto [model, optimizer] = accelerator.prepare(Plain::make(), levin::optim::sgd({.lr = 0.1}));
    if (prepares) {
      accelerator.prepare(
          levin::DataLoader(levin::data::tensors({{"x", rows_of_step(0)}}), {.batch_size = 2}));
    }
    for (int64_t step = 0; step < 3; ++step) {
      const at::Tensor x = rows_of_step(step);
      const at::Tensor own = splits ? accelerator.split_between_processes(x) : x;
      accelerator.backward(model->forward(own).mean());
      optimizer.step();
    }
    levin::log::set_sink({});
    return said;
  });
  return words;
}

TEST(OtherLoops, ThatReadTheSameDataOnAllRanksAreToldOnce) {
  const auto words = said_without_loader(false, false);
  EXPECT_THAT(words[0], HasSubstr("2 processes train but no loader was prepared"));
  EXPECT_EQ(std::ranges::count(words[0], ';'), 2);  // the text has one
  EXPECT_THAT(words[1], IsEmpty());
  EXPECT_THAT(said_without_loader(true, false), Each(""));
  EXPECT_THAT(said_without_loader(false, true), Each(""));
}

TEST(JitModule, HasTheScriptsTensorsUnderItsNames) {
  const torch::jit::Module script = scripted();
  levin::JitModule net(script);
  EXPECT_EQ(net.name(), "Net");
  std::vector<std::string> names;
  for (const auto& parameter : net.named_parameters()) names.push_back(parameter.key());
  EXPECT_THAT(names, ::testing::UnorderedElementsAre("out", "in.weight", "in.bias"));
  EXPECT_TRUE(net.named_parameters()["out"].is_same(script.attr("out").toTensor()));
  EXPECT_TRUE(net.named_buffers()["num_batches"].is_same(script.attr("num_batches").toTensor()));
  const at::Tensor x = rows_of_step(1);
  torch::jit::Module copy = script;
  EXPECT_TRUE(torch::equal(net.forward(x), copy.forward({x}).toTensor()));
}

TEST(JitModule, TrainAndEvalReachTheScript) {
  const torch::jit::Module script = scripted();
  levin::JitModule net(script);
  net.forward(rows_of_step(0));
  net.eval();
  EXPECT_FALSE(script.is_training());
  EXPECT_FALSE(script.attr("in").toModule().is_training());
  net.forward(rows_of_step(0));
  EXPECT_EQ(script.attr("num_batches").toTensor().item<double>(), 1);
  net.named_children()["in"]->train();
  EXPECT_TRUE(script.attr("in").toModule().is_training());
  EXPECT_FALSE(script.is_training());
}

TEST(JitModule, WhatGivesNoTensorIsAnErrorThatSaysWhatToDo) {
  torch::jit::Module pair("Pair");
  pair.define("def forward(self, x):\n  return x, x\n");
  levin::JitModule net(pair);
  EXPECT_THAT(error_of([&] { net.forward(torch::ones({})); }),
              HasSubstr("module.jit: forward returned Tuple, wanted a tensor"));
  EXPECT_TRUE(net.call("forward", {torch::ones({})}).isTuple());
  EXPECT_THAT(error_of([&] { net.call("encode", {}); }),
              HasSubstr("module.jit: Pair has no method 'encode'"));
}

TEST(JitModule, IsSavedWithItsBuffersAndGoesOn) {
  const levin::test::Scratch scratch;
  const auto run = [&](int64_t from, int64_t to) {
    torch::manual_seed(2);
    const torch::jit::Module script = scripted();
    AcceleratorOptions options;
    options.cpu = true;
    Accelerator accelerator(options);
    auto [model, optimizer] = accelerator.prepare(script, levin::optim::adam({.lr = 0.1}));
    if (from > 0) accelerator.load_state(scratch / "state");
    for (int64_t step = from; step < to; ++step) {
      optimizer.zero_grad();
      accelerator.backward(model->forward(rows_of_step(step)).square().mean());
      optimizer.step();
      if (step == 2) accelerator.save_state(scratch / "state");
    }
    return std::pair(script.attr("out").toTensor().detach().clone(),
                     script.attr("num_batches").toTensor().clone());
  };
  const auto [whole, batches] = run(0, 6);
  const auto [resumed, batches_of_resumed] = run(3, 6);
  EXPECT_TRUE(torch::equal(whole, resumed));
  EXPECT_EQ(batches.item<double>(), 6);
  EXPECT_EQ(batches_of_resumed.item<double>(), 6);
}

template <class Program>
void expect_same_on_xla() {
  AcceleratorOptions options;
  options.accelerator = "xla";
  options.engine.pjrt_plugin = "cpu";
  options.devices = 1;
  int64_t replayed = 0;
  EXPECT_EQ(difference(trained<Program>(options, replayed), trained_by_hand<Program>()), "");
}

TEST(OtherLoopsOnXla, TrainAsPlainLibTorch) {
  LEVIN_NEEDS_CPU_PLUGIN();
  expect_same_on_xla<OwnMethods>();
  expect_same_on_xla<CarriedState>();
  expect_same_on_xla<Plain>();
  expect_same_on_xla<Jit>();
}

}  // namespace
