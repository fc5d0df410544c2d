// levin plan --fits 80GB --mesh dp=256 ./19_plan_a_cluster --size 70b; ./19_plan_a_cluster
// last line: loss=0.02
//
// Planning a cluster: `levin plan` tells what a training needs on machines that are not there yet.
// It runs this program until a training step is recorded. The Llama of 70 billion parameters is
// built on the meta device (deferred initialization), so neither the model nor its step takes
// memory, and nothing is computed. `levin plan --compare` prints a table of strategies, `--fits
// 80GB` the fastest one that fits.
//
// Without `levin plan` it is an ordinary training program. The default size is small enough for one
// CPU: the model learns to count.

#include <cstdio>
#include <map>
#include <string>

#include <levin/levin.h>

struct Options {
  std::string size = "tiny";
  int64_t length = 0;
  int64_t batch_size = 0;
  bool checkpointing = false;

  void fields(levin::FieldVisitor& field) {
    field("size", size, "model: tiny, 1b, 8b, 13b, 70b or 70b-2 (Llama 2)");
    field("length", length, "tokens of a sample; 0: the model's usual length");
    field("batch_size", batch_size, "samples of a batch on each process; 0: 16 for tiny, else 1");
    field("checkpointing", checkpointing,
          "true: recompute each block in backward (gradient checkpointing); 70b does");
  }
};

struct Size {
  int64_t vocabulary, width, inner, layers, heads, key_value_heads, length;
};

// The sizes are those in config.json of Llama 3.2 1B, Llama 3.1 8B and 70B, and Llama 2 13B and 70B.
const std::map<std::string, Size>& sizes() {
  static const std::map<std::string, Size> kSizes = {
      {"tiny", {32, 64, 128, 2, 4, 2, 16}},
      {"1b", {128256, 2048, 8192, 16, 32, 8, 8192}},
      {"8b", {128256, 4096, 14336, 32, 32, 8, 8192}},
      {"13b", {32000, 5120, 13824, 40, 40, 40, 4096}},
      {"70b", {128256, 8192, 28672, 80, 64, 8, 8192}},
      {"70b-2", {32000, 8192, 28672, 80, 64, 8, 4096}}};
  return kSizes;
}

std::string config_of(const Size& size) {
  const auto number = [](const char* key, int64_t value) {
    return ", \"" + std::string(key) + "\": " + std::to_string(value);
  };
  return R"({"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 500000.0)" +
         number("vocab_size", size.vocabulary) + number("hidden_size", size.width) +
         number("intermediate_size", size.inner) + number("num_hidden_layers", size.layers) +
         number("num_attention_heads", size.heads) +
         number("num_key_value_heads", size.key_value_heads) +
         number("max_position_embeddings", size.length) + "}";
}

struct Llama : levin::Module {
  std::shared_ptr<levin::models::Pretrained> net;
  torch::Tensor last_loss;

  explicit Llama(std::shared_ptr<levin::models::Pretrained> model)
      : net(register_module("net", std::move(model))) {}
  torch::Tensor training_step(const levin::Batch& batch) override {
    const auto output = net->forward({{"input_ids", batch["ids"]}, {"labels", batch["ids"]}});
    log("train_loss", output.loss, {.prog_bar = true});
    last_loss = output.loss.detach();
    return output.loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 3e-3}).schedule(levin::optim::cosine({.warmup_steps = 10}));
  }
};

int main(int argc, char** argv) {
  Options chosen;
  levin::TrainerOptions options = {.max_steps = 150, .log_every_n_steps = 10, .seed = 1};
  levin::parse_into(argc, argv, chosen, options);
  const auto found = sizes().find(chosen.size);
  if (found == sizes().end()) {
    std::fprintf(stderr, "got --size %s, wanted tiny, 1b, 8b, 13b, 70b or 70b-2\n",
                 chosen.size.c_str());
    return 2;
  }
  const Size& size = found->second;
  const int64_t length = chosen.length > 0 ? chosen.length : size.length;
  const auto samples = levin::data::samples(4096, [&](int64_t index) {
    return levin::data::Sample{{"ids", (torch::arange(length) + index).remainder(size.vocabulary)}};
  });
  const bool is_tiny = chosen.size == "tiny";
  levin::Trainer trainer(options);
  const int64_t batch_size = chosen.batch_size > 0 ? chosen.batch_size : is_tiny ? 16 : 1;
  const levin::DataLoader loader(samples, {.batch_size = batch_size, .shuffle = true});
  const auto config = levin::models::Config::from_json(config_of(size));
  auto net = levin::init_on_meta([&] {
    return std::make_shared<Llama>(levin::models::from_config(
        config, {.task = "text-generation",
                 .activation_checkpointing = chosen.checkpointing || size.layers == 80}));
  });
  trainer.fit(net, loader);
  if (trainer.accelerator().is_main_process()) {
    std::printf("loss=%.2f\n", net->last_loss.item<double>());
  }
}
