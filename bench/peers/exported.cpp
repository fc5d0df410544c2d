// Networks in C++ and the same as programs of torch.export, for exported.py.
//
//   peer_exported --work gpt --program net.pt2     # trains as many steps as a line of its input says
//   peer_exported --mode nodes --program add.pt2   # a program of small operators beside the same calls
//   peer_exported --mode load --program net.pt2    # loading, first reads and first writes of the weights
//   peer_exported --mode infer [--program net.pt2] # one forward pass, whose peak memory exported.py reads
//   peer_exported --mode export --program net.pt2  # GPT-2 small by export_program, and back

#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "bench/peers/work.h"
#include "levin/accelerator/accelerator.h"
#include "levin/interchange/export_program.h"
#include "levin/interchange/load_exported.h"
#include "levin/optim/optim.h"

namespace {

struct Options {
  std::string mode = "train";
  std::string work = "mlp_sgd";
  std::string program;
  std::string compile = "no";
  std::string calls = "add";
  int64_t nodes = 200;
  int64_t rounds = 30;
  bool gradients = false;

  void fields(levin::FieldVisitor& field) {
    field("mode", mode, "train, nodes, load, infer, export");
    field("work", work, "mlp_sgd, mlp_adam, cnn, gpt");
    field("program", program, "file of torch.export; without one the network is C++'s");
    field("compile", compile, "no or replay");
    field("calls", calls, "what the program consists of: add, scale or view");
    field("nodes", nodes, "operators of the program");
    field("rounds", rounds, "repetitions");
    field("gradients", gradients, "whether autograd records the operators");
  }
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

levin::OptimizerConfig optimizer_of(const std::string& work) {
  if (work == "mlp_sgd") return levin::optim::sgd({.lr = 0.01});
  if (work == "gpt") return levin::optim::adamw({.lr = 3e-4});
  return levin::optim::adam({.lr = 1e-3});
}

template <class Net>
void serve(Net net, const Options& options) {
  constexpr int64_t kBatches = 32;
  const peers::Data data = peers::data_of(options.work, kBatches);
  const auto xs = data.x.split(data.batch_size), ys = data.y.split(data.batch_size);
  levin::Accelerator accelerator({.cpu = true, .engine = {.compile = options.compile}});
  auto [model, optimizer] = accelerator.prepare(net, optimizer_of(options.work));
  const bool is_gpt = options.work == "gpt";
  auto step = accelerator.compile([&](const at::Tensor& x, const at::Tensor& y) {
    optimizer.zero_grad();
    const at::Tensor out = model->forward(x);
    const at::Tensor loss = is_gpt ? torch::cross_entropy_loss(out.flatten(0, 1), y.flatten())
                                   : torch::cross_entropy_loss(out, y);
    accelerator.backward(loss);
    optimizer.step();
    return loss;
  });
  int64_t done = 0, count = 0;
  while (std::cin >> count) {
    at::Tensor loss;
    const auto began = Clock::now();
    for (int64_t i = 0; i < count; ++i, ++done) {
      loss = step(xs[done % kBatches], ys[done % kBatches]);
    }
    const double us = seconds_since(began) * 1e6 / static_cast<double>(count);
    std::printf("{\"step_us\": %.9g, \"loss\": %.9g}\n", us, loss.item<double>());
    std::fflush(stdout);
  }
}

void train(const Options& options) {
  if (options.program.empty()) {
    peers::with_net(options.work, [&](const auto& net) { serve(net, options); });
  } else {
    serve(levin::load_exported(options.program), options);
  }
}

at::Tensor call(const std::string& calls, const at::Tensor& x, const at::Tensor& y) {
  if (calls == "add") return at::add(x, y);
  if (calls == "scale") return at::mul(x, 1.001);
  return x.view({x.size(0), 1});
}

void measure_nodes(const Options& options) {
  constexpr int kCalls = 50;
  const auto net = levin::load_exported(options.program);
  const at::AutoGradMode mode(options.gradients);
  const at::Tensor x = torch::ones({4, 1}).requires_grad_(options.gradients);
  const at::Tensor y = torch::full({4, 1}, 1e-3);
  const auto per_node = [&](const auto& body) {
    const auto began = Clock::now();
    for (int i = 0; i < kCalls; ++i) body();
    return seconds_since(began) * 1e6 / static_cast<double>(kCalls * options.nodes);
  };
  const auto by_calls = [&] {
    at::Tensor out = x;
    for (int64_t i = 0; i < options.nodes; ++i) out = call(options.calls, out, y);
    return out;
  };
  TORCH_CHECK(at::equal(by_calls(), net->forward(x, y)), "not the same work");
  std::string calls, nodes;
  for (int64_t i = 0; i < options.rounds; ++i) {
    calls += (i == 0 ? "" : ", ") + std::to_string(per_node(by_calls));
    nodes += (i == 0 ? "" : ", ") + std::to_string(per_node([&] { return net->forward(x, y); }));
  }
  std::printf("{\"calls_us\": [%s], \"nodes_us\": [%s]}\n", calls.c_str(), nodes.c_str());
}

/// Seconds that the first access to each page of the weights takes.
double touch(const torch::nn::Module& net, bool writes) {
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const auto began = Clock::now();
  for (const at::Tensor& parameter : net.parameters()) {
    auto* bytes = static_cast<volatile char*>(parameter.data_ptr());
    for (int64_t i = 0; i < static_cast<int64_t>(parameter.nbytes()); i += page) {
      const char value = bytes[i];
      if (writes) bytes[i] = value;
    }
  }
  return seconds_since(began);
}

void measure_load(const Options& options) {
  const auto began = Clock::now();
  const auto net = levin::load_exported(options.program);
  const double loaded = seconds_since(began);
  const double read = touch(*net, /*writes=*/false);
  const double written = touch(*net, /*writes=*/true);
  std::printf("{\"load_s\": %.9g, \"read_s\": %.9g, \"write_s\": %.9g}\n", loaded, read, written);
}

/// The network of exported_work.py's "chain".
torch::nn::Sequential chain() {
  torch::nn::Sequential net;
  for (int i = 0; i < 12; ++i) {
    net->push_back(torch::nn::Linear(512, 512));
    net->push_back(torch::nn::ReLU());
  }
  return net;
}

/// MB of resident memory: the most since reset_peak().
double peak_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stod(line.substr(6)) / 1024;
  }
  return 0;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

template <class Net>
void infer(Net net) {
  const at::NoGradGuard no_grad;
  net->eval();
  const at::Tensor x = torch::ones({16384, 512});  // 32 MB, as each value between two layers
  net->forward(x.narrow(0, 0, 2));
  reset_peak();
  const double before = peak_mb();
  const at::Tensor out = net->forward(x);
  std::printf("{\"more_mb\": %.9g, \"sum\": %.9g}\n", peak_mb() - before,
              out.sum().template item<double>());
}

void measure_inference(const Options& options) {
  if (options.program.empty()) {
    infer(chain());
  } else {
    infer(levin::load_exported(options.program));
  }
}

void measure_export(const Options& options) {
  levin::models::GPT2 net(levin::models::GPT2Config{});
  const at::Tensor ids = peers::integers(128, 1, 50257).view({2, 64});
  double weights_mb = 0;
  for (const at::Tensor& parameter : net->parameters()) {
    weights_mb += static_cast<double>(parameter.nbytes()) / 1e6;
  }
  {
    const at::NoGradGuard no_grad;
    net->forward(ids);  // what a first forward pass allocates for good
  }
  reset_peak();
  const double before = peak_mb();
  auto began = Clock::now();
  levin::export_program(net, {{"ids", ids}}, options.program,
                        {.dynamic = {{.input = "ids", .dim = 0, .max = 64}}});
  const double exported = seconds_since(began);
  const double more = peak_mb() - before;
  began = Clock::now();
  const auto back = levin::load_exported(options.program);
  const double loaded = seconds_since(began);
  TORCH_CHECK(back->parameters().size() == net->parameters().size(), "not the same network");
  std::printf(
      "{\"weights_mb\": %.9g, \"export_s\": %.9g, \"export_more_mb\": %.9g, \"load_s\": %.9g}\n",
      weights_mb, exported, more, loaded);
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  at::set_num_threads(1);
  if (options.mode == "train") train(options);
  if (options.mode == "nodes") measure_nodes(options);
  if (options.mode == "load") measure_load(options);
  if (options.mode == "infer") measure_inference(options);
  if (options.mode == "export") measure_export(options);
}
