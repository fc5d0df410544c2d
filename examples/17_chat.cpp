// ./17_chat --folder chat
// last line: answer_loss=3.98
//
// Pretraining and chat fine-tuning: a small Qwen 3 learns C++ from LibTorch's headers. Then, by LoRA,
// it learns to answer questions about Debian packages in its chat template. The program prints
// generated text after each stage; the losses are of headers and packages that it has not seen. `levin
// generate` and transformers open the folder that it writes.

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <levin/levin.h>
#include <levin/text/tokenizer.h>

namespace models = levin::models;
using levin::text::Tokenizer;
using Rows = std::vector<nlohmann::json>;

std::string libtorch_headers();  // the folder of c10's, in libtorch_headers.cpp

struct Options {
  std::string text = libtorch_headers();
  std::string packages = "/var/lib/dpkg/status";
  std::string folder = "chat";
  int64_t steps = 700;
  int64_t chat_steps = 500;

  void fields(levin::FieldVisitor& field) {
    field("text", text, "folder with the headers (*.h) to train on");
    field("packages", packages, "list of packages, as dpkg or `apt-cache dumpavail` writes it");
    field("folder", folder, "folder to write the model and the adapter to");
    field("steps", steps, "training steps on the headers");
    field("chat_steps", chat_steps, "training steps on the questions");
  }
};

Rows headers_in(const std::string& folder) {
  Rows rows;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".h") continue;
    std::ifstream file(entry.path(), std::ios::binary);
    rows.push_back({{"text", std::string(std::istreambuf_iterator<char>(file), {})}});
  }
  std::ranges::sort(rows);
  return rows;
}

Rows packages_in(const std::string& path) {
  std::ifstream file(path);
  Rows rows;
  std::string name;
  const auto said = [](const char* role, const std::string& text) {
    return nlohmann::json{{"role", role}, {"content", text}};
  };
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Package: ")) name = line.substr(9);
    if (!line.starts_with("Description: ")) continue;
    rows.push_back({{"messages",
                     {said("user", "What is " + name + "?"), said("assistant", line.substr(13))}}});
  }
  return rows;
}

Tokenizer make_tokenizer(const std::string& folder, const std::vector<std::string>& texts) {
  std::vector<levin::text::AddedToken> special;
  for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    special.push_back({.content = token, .normalized = false, .special = true});
  const std::string level = R"({"type": "ByteLevel", "add_prefix_space": false,
                                "trim_offsets": true, "use_regex": true})";
  const std::string bytes = R"({"pre_tokenizer": )" + level + R"(, "decoder": )" + level + "}";
  std::ofstream(folder + "/tokenizer.json")
      << levin::text::train_bpe(bytes, texts,
                                {.vocab_size = 2048,
                                 .special_tokens = special,
                                 .initial_alphabet = levin::text::byte_alphabet()});
  std::ofstream(folder + "/tokenizer_config.json")
      << R"({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
             "tokenizer_class": "PreTrainedTokenizerFast"})";
  std::ofstream(folder + "/chat_template.jinja") << R"({% for m in messages -%}
<|im_start|>{{ m.role }}
{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}
{%- else %}{{ m.content }}<|im_end|>
{%- endif %}

{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %})";
  return Tokenizer::from_pretrained(folder);
}

struct Learner : levin::Module {
  std::shared_ptr<models::Pretrained> net;

  explicit Learner(std::shared_ptr<models::Pretrained> given)
      : net(register_module("net", given)) {}
  torch::Tensor training_step(const levin::Batch& batch) override {
    set_loss_weight(levin::text::counted_labels(batch, /*shifted=*/true));
    return net->forward(batch).loss;
  }
  void validation_step(const levin::Batch& batch, int64_t) override {
    log("val_loss", net->forward(batch).loss);
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adamw({.lr = 2e-3}).schedule(levin::optim::cosine({.warmup_steps = 20}));
  }
};

/// The loss on each tenth row, which is left out of training.
double train(const std::shared_ptr<models::Pretrained>& net, const Tokenizer& tokenizer,
             const Rows& rows, const std::string& file, levin::TrainerOptions options) {
  {
    std::ofstream seen(file + ".jsonl"), unseen(file + "_unseen.jsonl");
    for (size_t i = 0; i < rows.size(); ++i) (i % 10 == 0 ? unseen : seen) << rows[i] << '\n';
  }
  const auto data = levin::text::rows(file + ".jsonl", tokenizer,
                                      {.validation_file = file + "_unseen.jsonl",
                                       .packing = true,
                                       .packing_strategy = "bfd_split",
                                       .max_length = 128,
                                       .assistant_only_loss = file.ends_with("packages"),
                                       .batch_size = 16,
                                       .cache_dir = file + "_tokens"});
  levin::Trainer trainer(options);
  const auto module = std::make_shared<Learner>(net);
  trainer.fit(module, data);
  return trainer.validate(module, data).at("val_loss");
}

void show(models::Pretrained& net, const Tokenizer& tokenizer) {
  const auto write = [&](const std::string& prompt, const levin::Batch& batch) {
    const auto written = net.generate(batch, {.max_new_tokens = 32, .tokenizer = &tokenizer});
    std::printf("> %s %s\n", prompt.c_str(), written.texts.front().c_str());
  };
  write("class C10_API", models::to_prompts(tokenizer, {"class C10_API"}));
  for (const char* asked : {"What is libpng-dev?", "What is python3-yaml?", "What is vim-doc?"}) {
    const auto chat =
        tokenizer.apply_chat_template({{"user", asked}}, {.add_generation_prompt = true});
    write(asked, models::to_prompts(tokenizer, std::span(&chat.encoding, 1)));
  }
}

int main(int argc, char** argv) {
  Options chat;
  levin::TrainerOptions options = {
      .enable_checkpointing = false, .seed = 1, .engine = {.compile = "replay"}};
  levin::parse_into(argc, argv, chat, options);
  const std::string model = chat.folder + "/model", adapter = chat.folder + "/adapter";
  std::filesystem::create_directories(model);
  const Rows headers = headers_in(chat.text), packages = packages_in(chat.packages);
  std::vector<std::string> texts;
  for (const auto& row : headers) texts.push_back(row["text"]);
  for (const auto& row : packages) texts.push_back(row["messages"][1]["content"]);
  const Tokenizer tokenizer = make_tokenizer(model, texts);

  levin::seed_everything(1);
  const auto net = models::from_config(models::Config::from_json(R"({"model_type": "qwen3",
      "vocab_size": 2048, "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "eos_token_id": 2,
      "pad_token_id": 0, "tie_word_embeddings": true})"),
                                       {.task = "text-generation"});
  options.max_steps = chat.steps;
  const double header_loss = train(net, tokenizer, headers, chat.folder + "/headers", options);
  net->save_pretrained(model);
  show(*net, tokenizer);

  levin::lora::add(net, {.r = 16, .lora_alpha = 32, .target_modules = {"all-linear"}});
  options.max_steps = chat.chat_steps;
  const double answer_loss = train(net, tokenizer, packages, chat.folder + "/packages", options);
  levin::lora::save(*net, adapter);
  show(*net, tokenizer);
  std::printf("header_loss=%.2f\nanswer_loss=%.2f\n", header_loss, answer_loss);
}
