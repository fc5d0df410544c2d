// --offload optimizer against the same training in memory, each in a process of its own, in one run: seconds a step,
// memory (PSS), bytes to and from the disk, and the part of the disk's bandwidth that they are. Then the same under a
// limit of memory that is half of parameters and state, where a control group for it can be made. Then the Trainer with
// fsdp on one rank: in memory, with --offload optimizer and with --offload parameters.
//
//   bench_offload [millions of parameters] [folder]
#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <torch/torch.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/offload_watch.h"
#include "levin/base/random.h"
#include "levin/data/sources/sources.h"
#include "levin/files/checksum.h"
#include "levin/files/scratch/scratch_file.h"
#include "levin/files/scratch/swapper.h"
#include "levin/graph/meta/init_on_meta.h"
#include "levin/module/parameters.h"
#include "levin/module/wrap.h"
#include "levin/optim/offload/state_memory.h"
#include "levin/optim/optim.h"
#include "levin/optim/optimizer.h"
#include "levin/trainer/trainer.h"

namespace {

using namespace offload_bench;  // NOLINT
namespace fs = std::filesystem;
using levin::files::ByteRanges;
using levin::files::ScratchFile;
using levin::files::Swapper;

/// Trains bfloat16 layers with master weights and AdamW: 2 bytes a parameter, 2 of gradients, 12 of state.
void train(bool offloads, int64_t layers, const std::string& folder) {
  torch::manual_seed(1);
  torch::nn::Sequential net;
  for (int64_t i = 0; i < layers; ++i) {
    torch::nn::Linear layer(torch::nn::LinearOptions(kWidth, kWidth).bias(false));
    layer->to(at::kBFloat16);
    net->push_back(layer);
  }
  levin::OptimizerConfig config = levin::optim::adamw({.lr = 1e-3});
  config.master_weights();
  std::shared_ptr<ScratchFile> file;
  if (offloads) {
    file = ScratchFile::create({.folder = folder});
    config.keep_state_in(levin::optim::make_file_memory(file, kMemory));
  }
  Watch watch;
  auto optimizer = levin::optim::build_optimizer(config, levin::named_parameters(*net));
  std::vector<double> seconds, updates;
  int64_t read = 0, written = 0;
  for (int step = 0; step < kSteps; ++step) {
    if (offloads && step == 1) {
      read = -file->bytes_read();
      written = -file->bytes_written();
    }
    const double begin = now();
    torch::manual_seed(step);
    const at::Tensor x = torch::randn({16, kWidth}).to(at::kBFloat16);
    net->forward(x).square().mean().backward();
    const double middle = now();
    optimizer->step();
    optimizer->zero_grad();
    if (step == 0) continue;  // memory is touched for the first time
    updates.push_back(now() - middle);
    seconds.push_back(now() - begin);
  }
  if (offloads) {
    read += file->bytes_read();
    written += file->bytes_written();
  }
  uint64_t digest = 0;
  for (const at::Tensor& parameter : net->parameters()) {
    const auto* data = static_cast<const std::byte*>(parameter.const_data_ptr());
    digest = digest * 31 + levin::files::xxh3({data, parameter.nbytes()});
  }
  fmt::print("{} {} {} {} {} {}\n", median(seconds), median(updates), watch.end(),
             read / (kSteps - 1), written / (kSteps - 1), digest);
}

/// The layers of train(), each a unit, with the times of its steps.
struct Layers : levin::Module {
  torch::nn::Sequential net{nullptr};
  std::vector<double> seconds, updates;
  double begin = 0, middle = 0;
  int step = 0;
  std::array<int64_t, 2> before = {};

  explicit Layers(int64_t layers) {
    net = register_module("net", torch::nn::Sequential());
    for (int64_t i = 0; i < layers; ++i) {
      net->push_back(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)));
      levin::wrap(net->ptr(static_cast<size_t>(i)));
    }
  }
  bool on_train_batch_start(const levin::Batch&, int64_t) override {
    if (step == 1) before = disk_bytes();
    begin = now();
    return true;
  }
  at::Tensor training_step(const levin::Batch&) override {
    torch::manual_seed(step);
    return net->forward(torch::randn({16, kWidth}).to(at::kBFloat16)).square().mean();
  }
  void on_after_backward() override { middle = now(); }
  void on_train_batch_end(const at::Tensor&, const levin::Batch&, int64_t) override {
    if (step++ == 0) return;
    updates.push_back(now() - middle);
    seconds.push_back(now() - begin);
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-3});
  }
};

/// The same training by the Trainer, under fsdp on one rank. offload: no, optimizer or parameters.
void train_by_trainer(const std::string& offload, int64_t layers, const std::string& folder) {
  levin::seed_everything(1);
  const auto net = levin::init_on_meta([&] { return std::make_shared<Layers>(layers); });
  levin::TrainerOptions options;
  options.strategy = "fsdp";
  options.devices = 1;
  options.precision = "bf16-true";
  options.barebones = true;
  options.max_epochs = 1;
  options.seed = 1;
  options.engine.master_weights = true;
  options.engine.offload.state = offload;
  if (offload != "no") {
    options.engine.offload.folder = folder;
    options.engine.offload.memory_mb = kMemory / kMiB;
  }
  Watch watch;
  levin::Trainer trainer(options);
  const auto data = levin::data::tensors({{"x", torch::zeros({kSteps, 1})}});
  trainer.fit(net, levin::DataLoader(data, {.batch_size = 1}));
  const auto after = disk_bytes();
  const int64_t most = watch.end();
  uint64_t digest = 0;
  const levin::State weights = levin::full(*net);
  for (const auto& [name, value] : weights.values()) {
    const at::Tensor& tensor = weights.tensor(name);
    const auto* bytes = static_cast<const std::byte*>(tensor.const_data_ptr());
    digest = digest * 31 + levin::files::xxh3({bytes, tensor.nbytes()});
  }
  fmt::print("{} {} {} {} {} {}\n", median(net->seconds), median(net->updates), most,
             (after[0] - net->before[0]) / (kSteps - 1), (after[1] - net->before[1]) / (kSteps - 1),
             digest);
}

/// Reads and writes a file of that size once in blocks, as the swapper does, and computes nothing; or by a mapping,
/// whose pages are read ahead and written back in the background.
void disk(bool is_mapped, int64_t bytes, const std::string& folder) {
  const int64_t block = kMemory / 4;
  const int64_t blocks = bytes / block;
  const auto file = ScratchFile::create({.folder = folder});
  const int64_t first = file->take(blocks * block);
  const at::Tensor mapped = file->tensor(first, {blocks * block / 4}, {1}, at::kFloat);
  Swapper swapper(file, kMemory);
  Watch watch;
  std::vector<double> seconds;
  for (int pass = 0; pass < 3; ++pass) {
    const double begin = now();
    if (is_mapped) {
      std::atomic<int64_t> ahead = 0, done = 0;
      std::thread io([&] {
        for (int64_t read = 0, written = 0; written < blocks;) {
          if (read < blocks && read < done + 2 && read < written + 4) {
            file->will_need(first + read * block, block);
            file->populate(first + read * block, block, /*to_write=*/true);
            ahead = ++read;
          } else if (written < done) {
            file->drop(first + written++ * block, block);
          } else {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
          }
        }
      });
      for (int64_t i = 0; i < blocks; ++i) {
        while (ahead <= i) std::this_thread::sleep_for(std::chrono::microseconds(50));
        mapped.narrow(0, i * block / 4, block / 4).add_(1);
        done = i + 1;
      }
      io.join();
    } else {
      const auto ranges = [&](int64_t i) {
        return ByteRanges{{first + i * block, first + (i + 1) * block}};
      };
      for (int64_t i = 0; i < blocks; ++i) {
        Swapper::Lease lease = swapper.lease(ranges(i));
        for (int64_t next = i + 1; next < std::min(i + 3, blocks); ++next) {
          swapper.read_ahead(ranges(next));
        }
        at::from_blob(lease.bytes(0).data(), {block / 4}, at::kFloat).add_(1);
        lease.write_back();
      }
      swapper.wait();
    }
    if (pass > 0)
      seconds.push_back(now() - begin);  // the first reads blocks that were never written
  }
  fmt::print("{} {}\n", static_cast<double>(blocks * block) / median(seconds), watch.end());
}

/// A control group with a limit of memory, version 1 or 2; empty where it cannot be made.
fs::path make_group(int64_t bytes) {
  std::error_code error;
  for (const char* parent : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
    const fs::path group = fs::path(parent) / fmt::format("levin_bench_{}", ::getpid());
    if (!fs::create_directory(group, error)) continue;
    for (const char* name : {"memory.limit_in_bytes", "memory.max"}) {
      if (!fs::exists(group / name)) continue;
      std::ofstream(group / name) << bytes << std::flush;
      return group;
    }
    fs::remove(group, error);
  }
  return {};
}

/// Runs this program with other words, in a group where one is given, and returns what it wrote.
std::vector<std::string> run(const std::vector<std::string>& words, const fs::path& group = {}) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    if (!group.empty()) std::ofstream(group / "cgroup.procs") << ::getpid() << std::flush;
    ::dup2(ends[1], STDOUT_FILENO);
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.insert(arguments.begin(), const_cast<char*>("bench_offload"));
    arguments.push_back(nullptr);
    ::execv("/proc/self/exe", arguments.data());
    ::_exit(127);
  }
  ::close(ends[1]);
  std::string text;
  char buffer[256];
  for (ssize_t size = 0; (size = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<size_t>(size));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return {fmt::format("killed by signal {}", WTERMSIG(status))};
  std::istringstream stream(text);
  std::vector<std::string> fields;
  for (std::string field; stream >> field;) fields.push_back(field);
  return fields.empty() ? std::vector<std::string>{"failed"} : fields;
}

constexpr const char* kHead =
    "| training | s a step | s of it update | PSS, MiB | MiB read a step | written | part of the "
    "disk | digest of the "
    "weights |\n|---|---|---|---|---|---|---|---|\n";

/// by_step: the disk works in the whole step, else in the update alone.
void print_row(const std::string& name, const std::vector<std::string>& row, double disk_rate,
               bool by_step = false) {
  if (row.size() < 6) {
    fmt::print("| {} | {} | | | | | | |\n", name, row.front());
    return;
  }
  const double update = std::stod(row[1]);
  const double read = std::stod(row[3]), written = std::stod(row[4]);
  const double seconds = by_step ? std::stod(row[0]) : update;
  const std::string part =
      read == 0 ? "" : fmt::format("{:.2f}", (read + written) / 2 / seconds / disk_rate);
  fmt::print("| {} | {:.2f} | {:.2f} | {} | {:.0f} | {:.0f} | {} | {} |\n", name, std::stod(row[0]),
             update, std::stoll(row[2]) / kMiB, read / kMiB, written / kMiB, part, row[5]);
}

/// A limit of memory that is half of parameters and state.
void compare_under_limit(int64_t all, const std::string& layers, const std::string& folder,
                         double rate) {
  const fs::path group = make_group(all / 2);
  if (group.empty()) {
    fmt::print("\nNo control group can be made here: nothing was run under a limit of memory.\n");
    return;
  }
  const std::string limit =
      fmt::format(" under {} MiB, half of parameters and state", all / 2 / kMiB);
  print_row("offloaded" + limit, run({"train", "offload", layers, folder}, group), rate);
  print_row("in memory" + limit, run({"train", "memory", layers, folder}, group), rate);
  std::error_code ignored;
  fs::remove(group, ignored);
}

int compare(int64_t millions, const std::string& folder) {
  const int64_t layers = std::max<int64_t>(millions * 1'000'000 / (kWidth * kWidth), 1);
  const int64_t parameters = layers * kWidth * kWidth;
  const int64_t state = parameters * 12, all = parameters * 14;
  fmt::print(
      "{:.0f} M parameters in bfloat16, {} MiB of state (AdamW, master weights) in {}, {} MiB of "
      "memory for it\n\n",
      static_cast<double>(parameters) / 1e6, state / kMiB, folder, kMemory / kMiB);
  const std::string size = std::to_string(state);
  const auto swapped = run({"disk", "swapped", size, folder});
  const auto mapped = run({"disk", "mapped", size, folder});
  const double rate = std::stod(swapped[0]);
  fmt::print(
      "| through the file once | MB/s read, and as many written | PSS, MiB |\n|---|---|---|\n");
  fmt::print("| pread and pwrite (swapper) | {:.0f} | {} |\n", rate / 1e6,
             std::stoll(swapped[1]) / kMiB);
  fmt::print("| mapping | {:.0f} | {} |\n\n", std::stod(mapped[0]) / 1e6,
             std::stoll(mapped[1]) / kMiB);
  fmt::print("{}", kHead);
  const std::string number = std::to_string(layers);
  print_row("in memory", run({"train", "memory", number, folder}), rate);
  print_row("offloaded", run({"train", "offload", number, folder}), rate);
  compare_under_limit(all, number, folder, rate);
  fmt::print("\nThe Trainer, fsdp on one rank:\n\n{}", kHead);
  for (const char* offload : {"no", "optimizer", "parameters"}) {
    print_row(fmt::format("--offload {}", offload), run({"trainer", offload, number, folder}), rate,
              /*by_step=*/true);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 4 && words[0] == "train") {
    train(words[1] == "offload", std::stoll(words[2]), words[3]);
    return 0;
  }
  if (words.size() == 4 && words[0] == "trainer") {
    train_by_trainer(words[1], std::stoll(words[2]), words[3]);
    return 0;
  }
  if (words.size() == 4 && words[0] == "disk") {
    disk(words[1] == "mapped", std::stoll(words[2]), words[3]);
    return 0;
  }
  const int64_t millions = words.empty() ? 256 : std::stoll(words[0]);
  return compare(millions, words.size() > 1 ? words[1] : fs::temp_directory_path().string());
}
