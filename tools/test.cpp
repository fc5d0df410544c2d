// levin test: whether this installation trains, on all devices, in a minute.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <torch/torch.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "levin/accelerator/accelerator.h"
#include "levin/base/check.h"
#include "levin/data/sources/sources.h"
#include "levin/files/folder.h"
#include "levin/launch/launch.h"
#include "levin/optim/optim.h"
#include "tools/command.h"
#include "tools/command_line.h"

namespace levin::tools {
namespace {

/// Returns the problem that it found, or "".
using Check = std::function<std::string(Accelerator& accelerator, bool cpu)>;

constexpr int64_t kBatch = 24;  ///< of all processes together

std::string difference(std::string_view what, const at::Tensor& got, const at::Tensor& wanted,
                       double tolerance = 0.0) {
  const double by = (got.cpu() - wanted.cpu()).abs().max().item<double>();
  return by <= tolerance ? "" : fmt::format("{} differs by {:.3g}", what, by);
}

std::string collectives(Accelerator& accelerator, bool) {
  const auto size = static_cast<double>(accelerator.num_processes());
  const auto rank = static_cast<double>(accelerator.process_index());
  for (const int64_t count : {1, 1000, 1000000}) {
    const at::Tensor own = torch::full({count}, rank + 1, accelerator.device());
    const at::Tensor sum = torch::full({count}, size * (size + 1) / 2);
    const std::string wrong =
        difference("all_reduce", accelerator.reduce(own, ReduceOp::kSum), sum) +
        difference("all_gather", accelerator.gather(own),
                   torch::arange(1.0, size + 1).repeat_interleave(count));
    if (!wrong.empty()) return fmt::format("{} of {} numbers", wrong, count);
  }
  return "";
}

torch::nn::Sequential network() {
  torch::manual_seed(3);
  return torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::Tanh(),
                               torch::nn::Linear(32, 2));
}

/// Each process trains on its part of 20 batches.
template <class Model, class Step>
void train(Model& model, int64_t rank, int64_t size, at::Device device, const Step& step) {
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{5});
  for (int i = 0; i < 20; ++i) {
    const at::Tensor x = torch::randn({kBatch, 8}, generator);
    const at::Tensor y = torch::cat({x.sin().sum(1, true), x.cos().sum(1, true)}, 1);
    const auto mine = [&](const at::Tensor& all) {
      return all.slice(0, rank, kBatch, size).to(device);
    };
    step(torch::mse_loss(model->forward(mine(x)), mine(y)));
  }
}

std::string ranks_equal_one(Accelerator& accelerator, bool) {
  auto net = network(), alone = network();
  auto [model, optimizer] = accelerator.prepare(net, optim::sgd({.lr = 0.05}));
  train(model, accelerator.process_index(), accelerator.num_processes(), accelerator.device(),
        [&](const at::Tensor& loss) {
          optimizer.zero_grad();
          accelerator.backward(loss);
          optimizer.step();
        });
  torch::optim::SGD by_hand(alone->parameters(), 0.05);
  train(alone, 0, 1, at::kCPU, [&](const at::Tensor& loss) {
    by_hand.zero_grad();
    loss.backward();
    by_hand.step();
  });
  std::string wrong;
  for (size_t i = 0; wrong.empty() && i < alone->parameters().size(); ++i) {
    wrong = difference("a weight", net->parameters()[i].detach(), alone->parameters()[i].detach(),
                       accelerator.device().is_cpu() ? 1e-5 : 1e-3);
  }
  accelerator.free_memory();
  return wrong;
}

std::string half_precision(Accelerator&, bool cpu) {
  Accelerator mixed({.mixed_precision = "bf16", .cpu = cpu});
  auto net = network();
  auto [model, optimizer] = mixed.prepare(net, optim::sgd({.lr = 0.05}));
  double first = 0, last = 0;
  train(model, mixed.process_index(), mixed.num_processes(), mixed.device(),
        [&](const at::Tensor& loss) {
          optimizer.zero_grad();
          mixed.backward(loss);
          optimizer.step();
          last = loss.item<double>();
          if (first == 0) first = last;
        });
  return last < first ? "" : fmt::format("the loss went from {:.3g} to {:.3g}", first, last);
}

std::string checkpoint(Accelerator& accelerator, bool) {
  State told;
  accelerator.all_or_throw([&] {
    if (!accelerator.is_main_process()) return;
    std::string name = files::temporary_folder() / "levin_test_XXXXXX";
    LEVIN_CHECK(::mkdtemp(name.data()) != nullptr, "tools.test", "cannot make {}", name);
    told.set("folder", name);
  });
  const std::filesystem::path folder = accelerator.broadcast_object(told).text("folder");
  auto net = network();
  auto [model, optimizer, loader] = accelerator.prepare(
      net, optim::adamw({.lr = 0.01}),
      DataLoader(data::tensors({{"x", torch::ones({48, 8})}}), {.batch_size = 4}));
  const auto step = [&] {
    optimizer.zero_grad();
    accelerator.backward(model->forward(torch::ones({4, 8}, accelerator.device())).square().sum());
    optimizer.step();
  };
  step();
  accelerator.save_state(folder / "state");
  step();
  const at::Tensor after = net->parameters()[0].detach().clone();
  accelerator.load_state(folder / "state");
  step();
  const std::string wrong =
      difference("a step after loading", net->parameters()[0].detach(), after);
  accelerator.wait_for_everyone();
  std::error_code ignored;
  if (accelerator.is_main_process()) std::filesystem::remove_all(folder, ignored);
  accelerator.free_memory();
  return wrong;
}

struct Row {
  std::string_view name;
  Check check;
};

/// In a rank: true when all is well on all of them.
bool check_all(bool cpu) {
  at::set_num_threads(1);
  Accelerator accelerator({.cpu = cpu});
  accelerator.print(fmt::format("{} process{} on {}, over {}", accelerator.num_processes(),
                                accelerator.num_processes() == 1 ? "" : "es",
                                accelerator.device().is_cpu() ? "the CPU" : "GPUs",
                                accelerator.world().backend()));
  bool all_well = true;
  const std::vector<Row> rows = {
      {"collectives give the right results", collectives},
      {"training on all ranks equals training on one", ranks_equal_one},
      {"bf16-mixed learns", half_precision},
      {"a checkpoint resumes bit for bit", checkpoint},
  };
  for (const auto& [name, check] : rows) {
    const auto began = std::chrono::steady_clock::now();
    std::string wrong;
    try {
      wrong = check(accelerator, cpu);
    } catch (const std::exception& error) {
      if (accelerator.num_processes() > 1) throw;  // the others must not wait
      wrong = error.what();
    }
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    const bool is_well = !accelerator.any(!wrong.empty());
    all_well = all_well && is_well;
    accelerator.print(fmt::format("  {:<7}{} ({:.2f} s){}{}", is_well ? "ok" : "FAILED", name,
                                  took.count(), wrong.empty() ? "" : ": ", wrong));
  }
  return all_well;
}

int start_ranks(int64_t processes, bool cpu) {
  launch::LaunchOptions options;
  options.nproc_per_node = processes;
  options.first_rank_plain = true;
  options.command = {"/proc/self/exe", "test", "--in-rank"};
  if (cpu) options.command.emplace_back("--cpu");
  return launch::launch(options);
}

}  // namespace

int test(int argc, char** argv) {
  CLI::App app("Trains small networks on all devices and checks the results.", "levin test");
  int64_t processes = 0;
  bool cpu = false, in_rank = false;
  app.add_option("-n,--num-processes", processes,
                 "number of processes; 0: one for each GPU, or 2 on the CPU");
  app.add_flag("--cpu", cpu, "use the CPU even if there is a GPU");
  app.add_flag("--in-rank", in_rank)->group("");
  if (!parse_arguments(app, argc, argv, "tools.test")) return 0;
  if (in_rank) return check_all(cpu) ? 0 : 1;
  const int64_t gpus = !cpu && at::hasCUDA() ? static_cast<int64_t>(at::getNumGPUs()) : 0;
  if (processes == 0) processes = gpus > 0 ? gpus : 2;
  LEVIN_CHECK(processes > 0 && kBatch % processes == 0, "tools.test",
              "got -n {}, wanted a number that divides {}", processes, kBatch);
  const int code = start_ranks(processes, cpu || gpus == 0);
  std::cout << (code == 0 ? "levin trains on this machine\n" : "see what failed above\n");
  return code;
}

}  // namespace levin::tools
