// ./05_gpt2 --text examples/05_gpt2.cpp --max-steps 200
// last line: bits_per_byte=2.94
//
// A small GPT-2 learns the bytes of a text: a per-sample data set, accumulated gradients, clipping,
// weight decay on some parameters only, a schedule with warm-up.

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include <levin/levin.h>

struct Options {
  std::string text = "examples/05_gpt2.cpp";
  int64_t length = 64;
  int64_t batch_size = 8;

  void fields(levin::FieldVisitor& field) {
    field("text", text, "text file to train on");
    field("length", length, "length of a sample, bytes");
    field("batch_size", batch_size, "samples per batch");
  }
};

struct Writer : levin::Module {
  levin::models::GPT2 net{nullptr};

  explicit Writer(int64_t length) {
    net = register_module(
        "net",
        levin::models::GPT2(levin::models::GPT2Config{
            .vocab_size = 256, .n_positions = length, .n_embd = 128, .n_layer = 4, .n_head = 4}));
  }
  torch::Tensor loss(const levin::Batch& batch) {
    const auto& ids = batch["bytes"];  // [B, T + 1]
    auto logits = net->forward(ids.slice(1, 0, -1));
    return torch::nn::functional::cross_entropy(logits.flatten(0, 1), ids.slice(1, 1).flatten());
  }
  torch::Tensor training_step(const levin::Batch& batch) override {
    auto value = loss(batch);
    log("train_loss", value, {.prog_bar = true});
    return value;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("bits_per_byte", loss(batch) / std::log(2.0));
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 1e-3, .betas = {0.9, 0.95}, .weight_decay = 0.1})
        .group("*.bias", {.weight_decay = 0.0})
        .group("*.ln_*", {.weight_decay = 0.0})
        .schedule(levin::optim::cosine({.warmup_steps = 20}));
  }
};

int main(int argc, char** argv) {
  Options text;
  levin::TrainerOptions options = {
      .max_steps = 200, .accumulate_grad_batches = 2, .gradient_clip_val = 1.0, .seed = 1};
  levin::parse_into(argc, argv, text, options);
  std::ifstream file(text.text, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto size = static_cast<int64_t>(bytes.size()) - text.length;
  if (size <= 0) {
    std::fprintf(stderr, "%s is missing or shorter than --length; name another --text\n",
                 text.text.c_str());
    return 2;
  }
  auto samples = levin::data::samples(size, [&](int64_t index) {
    const auto* first = reinterpret_cast<const uint8_t*>(bytes.data()) + index;
    auto sample = torch::from_blob(const_cast<uint8_t*>(first), {text.length + 1}, torch::kByte);
    return levin::data::Sample{{"bytes", sample.to(torch::kLong)}};
  });
  const levin::DataLoader loader(samples, {.batch_size = text.batch_size, .shuffle = true});
  levin::Trainer trainer(options);
  auto writer = std::make_shared<Writer>(text.length);
  trainer.fit(writer, loader);
  const double bits = trainer.validate(writer, loader).at("bits_per_byte");
  if (trainer.accelerator().is_main_process()) std::printf("bits_per_byte=%.3f\n", bits);
}
