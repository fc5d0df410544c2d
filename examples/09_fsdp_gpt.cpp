// ./09_fsdp_gpt --devices 2 --max-steps 300
// last line: bits_per_byte=3.05
//
// FSDP: a GPT whose parameters, gradients and optimizer state are sharded over processes learns C++
// from the headers of LibTorch. Compared with one process, two things change: the strategy, and the
// calls of levin::wrap, which mark the units that are gathered and reduced together. No process ever
// holds the full model: it is built on the meta device (deferred initialization), and the strategy
// gives each process its rows.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <levin/levin.h>

using torch::nn::functional::cross_entropy;

std::string libtorch_headers();  // the folder of c10's, in libtorch_headers.cpp

struct Options {
  std::string text = libtorch_headers();
  int64_t length = 64;
  int64_t width = 128;  ///< a multiple of 32

  void fields(levin::FieldVisitor& field) {
    field("text", text, "folder with the headers (*.h) to train on");
    field("length", length, "length of a sample, bytes");
    field("width", width, "width of the network, a multiple of 32");
  }
};

struct BlockImpl : torch::nn::Module {
  torch::nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  torch::nn::Linear qkv{nullptr}, out{nullptr}, up{nullptr}, down{nullptr};
  int64_t heads;

  explicit BlockImpl(int64_t width) : heads(width / 32) {
    ln_1 = register_module("ln_1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
    out = register_module("out", torch::nn::Linear(width, width));
    ln_2 = register_module("ln_2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    up = register_module("up", torch::nn::Linear(width, 4 * width));
    down = register_module("down", torch::nn::Linear(4 * width, width));
  }
  torch::Tensor forward(torch::Tensor x) {  // [B, T, C]
    const auto parts = qkv->forward(ln_1->forward(x)).unflatten(-1, {3, heads, 32}).unbind(2);
    const auto attended = at::scaled_dot_product_attention(
        parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2), {}, 0.0,
        /*is_causal=*/true);
    x = x + out->forward(attended.transpose(1, 2).flatten(2));
    return x + down->forward(torch::gelu(up->forward(ln_2->forward(x))));
  }
};
TORCH_MODULE(Block);

struct Gpt : levin::Module {
  torch::nn::Embedding bytes{nullptr}, places{nullptr};
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm{nullptr};

  explicit Gpt(const Options& options) {
    bytes = register_module("bytes", torch::nn::Embedding(256, options.width));
    places = register_module("places", torch::nn::Embedding(options.length, options.width));
    register_module("blocks", blocks);
    for (int i = 0; i < 4; ++i) blocks->push_back(levin::wrap(Block(options.width)));  // units
    norm =
        register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
  }
  torch::Tensor loss(const levin::Batch& batch) {
    const auto& ids = batch["bytes"];  // [B, T + 1]
    auto x = bytes->forward(ids.slice(1, 0, -1)) +
             places->forward(torch::arange(ids.size(1) - 1, ids.options()));
    for (const auto& block : *blocks) x = block->as<Block>()->forward(x);
    const auto logits = torch::matmul(norm->forward(x), bytes->weight.t());  // tied
    return cross_entropy(logits.flatten(0, 1), ids.slice(1, 1).flatten());
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
    return levin::optim::adamw({.lr = 1e-3}).schedule(levin::optim::cosine({.warmup_steps = 20}));
  }
};

std::string read_headers(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".h") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  std::string text;
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    text.append(std::istreambuf_iterator<char>(file), {});
  }
  return text;
}

int main(int argc, char** argv) {
  Options gpt;
  levin::TrainerOptions options = {.strategy = "fsdp", .max_steps = 300, .seed = 1};
  levin::parse_into(argc, argv, gpt, options);
  const std::string text = read_headers(gpt.text);
  const auto samples_of = [&](int64_t begin, int64_t end) {
    return levin::data::samples((end - begin) / gpt.length - 1, [=, &text](int64_t index) {
      const auto* first =
          reinterpret_cast<const uint8_t*>(text.data()) + begin + index * gpt.length;
      auto sample = torch::from_blob(const_cast<uint8_t*>(first), {gpt.length + 1}, torch::kByte);
      return levin::data::Sample{{"bytes", sample.to(torch::kLong)}};
    });
  };
  const auto size = static_cast<int64_t>(text.size()), held_out = size / 20;
  levin::Trainer trainer(options);
  const int64_t batch_size = 32 / trainer.accelerator().num_processes();
  const levin::DataLoader training(samples_of(0, size - held_out),
                                   {.batch_size = batch_size, .shuffle = true});
  const levin::DataLoader validation(samples_of(size - held_out, size), {.batch_size = batch_size});
  auto net = levin::init_on_meta([&] { return std::make_shared<Gpt>(gpt); });
  trainer.fit(net, training);
  const auto bits = trainer.validate(net, validation).at("bits_per_byte");
  if (trainer.accelerator().is_main_process()) std::printf("bits_per_byte=%.3f\n", bits);
}
