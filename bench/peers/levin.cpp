// levin's Trainer with its defaults and one logged value on the bar, and levin's DataLoader.
// --mode barebones turns logging, bar, checkpoints and summary off; --mode replay records the step,
// --mode replay_every checks each call of it and --mode replay_unchecked none; --mode xla runs it on
// a CPU's XLA devices, --mode xla_replay records it there; --mode fsdp divides the model, each of
// its layers or blocks a unit, and --mode fsdp_replay records that; --mode zero1, zero2 and zero3 likewise, and
// --mode hsdp with two copies of the parameters.
//
//   peer_levin --work mlp_sgd --steps 2000 --warmup 100
//   peer_levin --work loader --workers 2
//   levin run -n 2 --max-restarts 3 peer_levin --work mlp_10m --devices 2 --trace FOLDER

#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "bench/peers/work.h"
#include <levin/levin.h>
#include <levin/xla/device/runtime.h>

namespace {

levin::OptimizerConfig optimizer_of(const std::string& work) {
  if (work.starts_with("gpt")) return levin::optim::adamw({.lr = 3e-4});
  if (work.ends_with("_sgd")) return levin::optim::sgd({.lr = 0.01});
  return levin::optim::adam({.lr = 1e-3});
}

template <class Net>
struct Peer : levin::Module {
  Net net;
  peers::StepClock& clock;
  std::string work;
  bool logs;

  Peer(Net& given, peers::StepClock& clock, const peers::Options& options)
      : net(register_module("net", given)),
        clock(clock),
        work(options.work),
        logs(options.mode != "barebones") {}

  // Not in the step, which a recorded one does not come to again.
  bool on_train_batch_start(const levin::Batch&, int64_t) override {
    clock();
    return true;
  }
  void on_train_batch_end(const torch::Tensor& loss, const levin::Batch&, int64_t) override {
    clock.keep(loss);
  }
  torch::Tensor training_step(const levin::Batch& batch) override {
    auto loss = peers::loss_of(net, batch["x"], batch["y"]);
    if (logs) log("train_loss", loss, {.prog_bar = true});
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override { return optimizer_of(work); }
};

std::string check_of(const std::string& mode) {
  if (mode.ends_with("_every")) return "every";
  return mode.ends_with("_unchecked") ? "no" : "auto";
}

/// What kills.py reads: FOLDER/RANK has "ATTEMPT PID" where training begins, FOLDER/steps a line
/// "ATTEMPT STEP SECONDS" for each step that rank 0 has finished, on the clock of time.monotonic().
struct Trace : levin::Callback {
  std::string folder, attempt;
  std::ofstream steps;

  explicit Trace(const std::string& folder) : folder(folder) {
    const char* count = std::getenv("TORCHELASTIC_RESTART_COUNT");
    attempt = count == nullptr ? "0" : count;
  }
  std::string state_key() const override { return "trace"; }
  void on_train_start(levin::Trainer& trainer, levin::Module&) override {
    const auto rank = std::to_string(trainer.accelerator().rank().rank);
    std::ofstream(folder + "/" + rank, std::ios::app) << attempt << ' ' << ::getpid() << std::endl;
    if (rank == "0") steps.open(folder + "/steps", std::ios::app);
  }
  void on_train_batch_end(levin::Trainer& trainer, levin::Module&, const at::Tensor&,
                          const levin::Batch&, int64_t) override {
    if (!steps.is_open()) return;
    const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
    steps << attempt << ' ' << trainer.global_step() << ' ' << std::fixed << now.count()
          << std::endl;
  }
};

void train(const peers::Options& options) {
  const bool traced = !options.trace.empty();
  std::vector<std::shared_ptr<levin::Callback>> callbacks;
  if (traced) {
    callbacks = {std::make_shared<Trace>(options.trace),
                 levin::model_checkpoint(
                     {.dirpath = options.trace + "/checkpoints", .every_n_train_steps = 10})};
  }
  const bool on_xla = options.mode.starts_with("xla");
  const bool is_zero = options.mode.starts_with("zero");
  const bool is_hybrid = options.mode == "hsdp";
  const bool divides = options.mode.starts_with("fsdp") || is_zero || is_hybrid;
  const bool replays = options.mode.find("replay") != std::string::npos;
  levin::Trainer trainer(
      {.accelerator = on_xla ? "xla" : "cpu",
       .strategy = is_zero   ? "zero"
                   : divides ? "fsdp"
                             : "auto",
       .devices = options.devices,
       .precision = options.precision == "bf16" ? "bf16-mixed" : "32-true",
       .callbacks = callbacks,
       .max_epochs = traced ? -1 : 1,
       .accumulate_grad_batches = options.accumulate,
       .barebones = options.mode == "barebones",
       .ckpt_path = traced ? "last" : "",
       .engine = {.comm = {.backend = options.backend},
                  .use_distributed_sampler = false,
                  .fsdp = {.mesh = is_hybrid ? "replicate=2" : "",
                           .zero_stage = is_zero ? options.mode.back() - '0' : 2},
                  .compile = replays ? "replay" : "no",
                  .compile_check = check_of(options.mode),
                  .pjrt_plugin = on_xla ? "cpu" : ""}});
  peers::StepClock clock(options);
  if (const auto& runtime = trainer.accelerator().xla()) {
    clock.settle_by([runtime] { runtime->wait(); });
  }
  peers::with_net(options.work, [&]<class Net>(Net& net) {
    if constexpr (!std::is_same_v<Net, levin::models::GPT2>) levin::wrap_all(*net);
    const auto rank = trainer.accelerator().rank().rank;
    const auto data = peers::data_of(options.work, clock.last(), rank, options.batch_size);
    levin::DataLoader loader(levin::data::tensors({{"x", data.x}, {"y", data.y}}),
                             {.batch_size = data.batch_size});
    trainer.fit(std::make_shared<Peer<Net>>(net, clock, options), loader);
  });
  if (!traced && trainer.accelerator().is_main_process()) clock.report();
}

/// Seconds that one epoch takes, and through `mean` the mean of its normalised pixels.
double epoch(levin::DataLoader& loader, double* mean) {
  const auto began = std::chrono::steady_clock::now();
  double total = 0;
  int64_t count = 0;
  for (const auto& batch : loader) {
    count += batch.size();
    if (mean != nullptr) total += batch["image"].sum(at::kDouble).item<double>();
  }
  if (mean != nullptr) *mean = total / static_cast<double>(count * 784);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

void load(const peers::Options& options) {
  const auto images = at::arange(options.images * 784, at::kInt)
                          .mul_(31)
                          .bitwise_right_shift_(3)
                          .bitwise_and_(255)
                          .to(at::kByte)
                          .view({options.images, 1, 28, 28});
  const auto labels = at::arange(options.images).remainder_(10);
  const auto dataset =
      levin::data::tensors({{"image", images}, {"label", labels}}, {{"image", 0.2860, 0.3530}});
  levin::DataLoader loader(dataset,
                           {.batch_size = 64, .shuffle = true, .num_workers = options.workers});
  double mean = 0, seconds = 0;
  epoch(loader, &mean);
  int64_t epochs = 0;
  for (; seconds < 1.0; ++epochs) seconds += epoch(loader, nullptr);
  std::printf("\n{\"images_per_s\": %.9g, \"mean\": %.9g}\n",
              static_cast<double>(options.images * epochs) / seconds, mean);
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = levin::parse<peers::Options>(argc, argv);
  at::set_num_threads(1);
  if (options.work == "loader") {
    load(options);
  } else {
    train(options);
  }
}
