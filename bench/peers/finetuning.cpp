// levin's side of finetuning.py: steps of an adapter, ranks on a frozen model, and an epoch of rows.
//
//   peer_finetuning --folder minilm --batches batches.safetensors --task text-classification --compile replay
//   peer_finetuning --folder large --batches one.safetensors --devices 2 --strategy fsdp
//   peer_finetuning --folder minilm --rows train.jsonl --packing --compile replay
#include <torch/torch.h>

#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <string>

#include "bench/peers/adapter.h"
#include <levin/levin.h>

namespace {

struct Options {
  std::string folder, batches, rows, cache;
  std::string task = "text-generation";
  std::string compile = "no";
  std::string strategy = "auto";
  std::string targets = "all-linear";
  int64_t devices = 1, steps = 10, warmup = 3, lora_r = 16;
  int64_t batch_size = 32;
  bool packing = false;
  double lr = 1e-3;

  void fields(levin::FieldVisitor& field) {
    field("folder", folder, "of a model");
    field("batches", batches, "tensors [batches, rows, ..] of what the model takes");
    field("rows", rows, "an epoch of a file's rows instead, of a text and a label");
    field("cache", cache, "folder of tokenized rows");
    field("task", task, "of the model");
    field("compile", compile, "as the Trainer's");
    field("strategy", strategy, "as the Trainer's");
    field("targets", targets, "end of the names of layers that get an adapter");
    field("devices", devices, "processes");
    field("steps", steps, "timed ones");
    field("warmup", warmup, "steps before them");
    field("lora_r", lora_r, "rank of the adapter");
    field("batch_size", batch_size, "rows of a step of the epoch");
    field("packing", packing, "several texts in one row of tokens");
    field("lr", lr, "learning rate");
  }
};

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

/// Of this process, in seconds: what others on the machine do is in the time on the wall alone.
double processor_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Of this process: a page that several have counts as a part to each (proportional set size).
double memory_mb() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:")) return std::stod(line.substr(4)) / 1024;
  }
  return 0;
}

struct Steps : levin::Module {
  std::shared_ptr<levin::models::Pretrained> net;
  levin::Accelerator* accelerator = nullptr;
  std::vector<double> times, processor_times;
  at::Tensor loss;
  double lr, memory = 0;

  explicit Steps(const Options& options) : lr(options.lr) {
    net = register_module("net", levin::models::from_pretrained(
                                     options.folder, {.task = options.task, .num_labels = 2}));
    peers::adapt(*net, options.lora_r, options.targets);
    peers::fill_adapter(*net);
  }
  bool on_train_batch_start(const levin::Batch&, int64_t) override {
    times.push_back(now());
    processor_times.push_back(processor_time());
    return true;
  }
  void on_train_batch_end(const at::Tensor& of_step, const levin::Batch&, int64_t) override {
    loss = of_step;
    if (times.size() != 1) return;
    std::printf("first step done\n");
    std::fflush(stdout);
  }
  void on_train_end() override {
    accelerator->wait_for_everyone();
    const at::Tensor all =
        accelerator->reduce(at::full({1}, memory_mb(), at::kDouble), levin::ReduceOp::kSum);
    memory = all.item<double>();
    accelerator->wait_for_everyone();
  }
  at::Tensor training_step(const levin::Batch& batch) override {
    return net->forward(batch, {.logits = false}).loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return levin::optim::adamw({.lr = lr}); }
};

/// Of the steps after the first ones, in milliseconds.
double median_step(const std::vector<double>& times, int64_t warmup) {
  std::vector<double> steps;
  for (size_t i = warmup + 1; i < times.size(); ++i) steps.push_back(times[i] - times[i - 1]);
  std::ranges::sort(steps);
  return 1e3 * steps[steps.size() / 2];
}

void run_steps(const Options& options) {
  levin::Trainer trainer({.accelerator = "cpu",
                          .strategy = options.strategy,
                          .devices = options.devices,
                          .max_epochs = -1,
                          .max_steps = options.warmup + options.steps + 1,
                          .barebones = true,
                          .engine = {.compile = options.compile}});
  const levin::State file = levin::load_weights(options.batches);
  levin::Batch fields;
  int64_t rows = 0;
  for (const auto& [name, value] : file.values()) {
    rows = file.tensor(name).size(1);
    fields.set(name, file.tensor(name).flatten(0, 1));
  }
  levin::DataLoader loader(levin::data::tensors(std::move(fields)), {.batch_size = rows});
  const auto module = std::make_shared<Steps>(options);
  module->accelerator = &trainer.accelerator();
  trainer.fit(module, loader);
  if (!trainer.accelerator().is_main_process()) return;
  std::printf("\n{\"step_ms\": %.6g, \"cpu_ms\": %.6g, \"last_loss\": %.6g, \"memory_mb\": %.6g}\n",
              median_step(module->times, options.warmup),
              median_step(module->processor_times, options.warmup), module->loss.item<double>(),
              module->memory);
}

/// When the epoch began and ended, and what was lost in it.
struct Epoch : levin::Callback {
  std::string state_key() const override { return "epoch"; }

  double began = 0, ended = 0, processor = 0;
  std::vector<at::Tensor> losses;

  void on_train_epoch_start(levin::Trainer&, levin::Module&) override {
    began = now();
    processor = -processor_time();
  }
  void on_train_batch_end(levin::Trainer&, levin::Module&, const at::Tensor& loss,
                          const levin::Batch&, int64_t) override {
    losses.push_back(loss.detach().clone());
  }
  void on_train_epoch_end(levin::Trainer&, levin::Module&) override {
    ended = now();
    processor += processor_time();
  }
};

void run_epoch(const Options& options) {
  const auto epoch = std::make_shared<Epoch>();
  levin::Trainer trainer({.accelerator = "cpu",
                          .callbacks = {epoch},
                          .max_epochs = 1,
                          .enable_checkpointing = false,
                          .enable_progress_bar = false,
                          .enable_model_summary = false,
                          .seed = 1,
                          .engine = {.compile = options.compile}});
  const auto tokenizer = levin::text::Tokenizer::from_pretrained(options.folder);
  const auto data = levin::text::rows(options.rows, tokenizer,
                                      {.packing = options.packing,
                                       .max_length = 64,
                                       .batch_size = options.batch_size,
                                       .cache_dir = options.cache});
  data->prepare_data();
  const auto net = levin::models::from_pretrained(
      options.folder, {.task = "text-classification", .label_names = data->label_names()});
  peers::adapt(*net, options.lora_r, options.targets);
  trainer.fit(levin::models::fine_tune(net, {.lr = options.lr}), data);
  const auto count = static_cast<int64_t>(epoch->losses.size());
  const int64_t last = std::max<int64_t>(count / 4, 1);
  const at::Tensor losses = at::stack(epoch->losses).to(at::kDouble).narrow(0, count - last, last);
  std::printf("\n{\"epoch_s\": %.6g, \"cpu_s\": %.6g, \"last_loss\": %.6g, \"steps\": %ld}\n",
              epoch->ended - epoch->began, epoch->processor, losses.mean().item<double>(),
              static_cast<long>(count));
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  at::set_num_threads(1);
  options.rows.empty() ? run_steps(options) : run_epoch(options);
}
