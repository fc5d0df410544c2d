// levin's side of models.py: steps of fine-tuning a folder on batches of a file, and how long a folder takes to open.
//
//   peer_model --folder minilm --batches batches.safetensors --mode replay --steps 20
//   peer_model --folder minilm --batches batches.safetensors --lora-r 16
//   peer_model --folder large --mode open
#include <torch/torch.h>

#include <chrono>
#include <cstdio>

#include <levin/levin.h>

namespace {

struct Options {
  std::string folder, batches, mode;
  int64_t steps = 20;
  int64_t warmup = 5;
  int64_t lora_r = 0;

  void fields(levin::FieldVisitor& field) {
    field("folder", folder, "of a model");
    field("batches", batches,
          "input_ids, attention_mask [batches, rows, tokens], labels [batches, rows]");
    field("mode", mode, "replay, open, or empty");
    field("steps", steps, "timed ones");
    field("warmup", warmup, "steps before them");
    field("lora_r", lora_r, "rank of an adapter of all linear layers; 0: the whole is trained");
  }
};

double now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

struct Classifier : levin::Module {
  std::shared_ptr<levin::models::Pretrained> net;
  std::vector<double> times;
  at::Tensor loss;

  Classifier(const std::string& folder, int64_t lora_r)
      : net(register_module("net", levin::models::from_pretrained(
                                       folder, {.task = "text-classification", .num_labels = 2}))) {
    // As the Python side: a head of equal numbers.
    const at::NoGradGuard no_grad;
    for (auto& parameter : net->named_parameters()) {
      if (parameter.key().starts_with("classifier")) parameter.value().fill_(0.01);
      if (parameter.key() == "classifier.weight") parameter.value()[1].neg_();
    }
    if (lora_r == 0) return;
    levin::lora::add(net,
                     {.r = lora_r, .lora_alpha = 2.0 * lora_r, .target_modules = {"all-linear"}});
    for (auto& parameter : net->named_parameters()) {
      if (parameter.key().find("lora_A") == std::string::npos) continue;
      at::Tensor& matrix = parameter.value();
      matrix.copy_(torch::arange(matrix.numel()).to(torch::kFloat).sin().mul(0.05).view_as(matrix));
    }
  }
  bool on_train_batch_start(const levin::Batch&, int64_t) override {
    times.push_back(now());
    return true;
  }
  void on_train_batch_end(const torch::Tensor& of_step, const levin::Batch&, int64_t) override {
    loss = of_step;
  }
  torch::Tensor training_step(const levin::Batch& batch) override {
    return net->forward(batch).loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 2e-5});
  }
};

void open(const Options& options) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double begin = now();
    const auto net = levin::models::from_pretrained(options.folder);
    best = std::min(best, now() - begin);
  }
  std::printf("{\"open_s\": %.6g}\n", best);
}

}  // namespace

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  at::set_num_threads(1);
  if (options.mode == "open") {
    open(options);
    return 0;
  }
  const levin::State file = levin::load_weights(options.batches);
  const auto flat = [&](const char* name) { return file.tensor(name).flatten(0, 1); };
  const int64_t rows = file.tensor("input_ids").size(1);
  levin::DataLoader loader(levin::data::tensors({{"input_ids", flat("input_ids")},
                                                 {"attention_mask", flat("attention_mask")},
                                                 {"labels", flat("labels")}}),
                           {.batch_size = rows});
  levin::Trainer trainer({.accelerator = "cpu",
                          .max_epochs = -1,
                          .max_steps = options.warmup + options.steps + 1,
                          .barebones = true,
                          .engine = {.compile = options.mode == "replay" ? "replay" : "no"}});
  const auto module = std::make_shared<Classifier>(options.folder, options.lora_r);
  trainer.fit(module, loader);
  std::vector<double> steps;
  for (size_t i = options.warmup + 1; i < module->times.size(); ++i)
    steps.push_back(module->times[i] - module->times[i - 1]);
  std::ranges::sort(steps);
  std::printf("\n{\"step_ms\": %.6g, \"last_loss\": %.6g}\n", 1e3 * steps[steps.size() / 2],
              module->loss.item<double>());
}
