// ./17_chat --folder chat
// last line: validation_loss=2.3 answer_loss=1.9
//
// A small Qwen 3 learns C++ from LibTorch's headers, and then, by LoRA, to answer questions about Debian
// packages in the words of its chat template. What it writes is printed before and after. The folder
// then has a model and an adapter, which `levin generate --chat` and transformers open.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <levin/levin.h>
#include <levin/text/bpe_trainer.h>

namespace models = levin::models;

struct Options {
  std::string text = LIBTORCH_INCLUDE "/c10";
  std::string packages = "/var/lib/dpkg/status";
  std::string folder = "chat";
  int64_t steps = 600;
  int64_t chat_steps = 400;
  int64_t length = 128;
  int64_t width = 128;  ///< a multiple of 32

  void fields(levin::FieldVisitor& field) {
    field("text", text, "folder whose headers (*.h) to learn");
    field("packages", packages, "what dpkg or `apt-cache dumpavail` lists");
    field("folder", folder, "where model and adapter go");
    field("steps", steps, "on headers");
    field("chat_steps", chat_steps, "on questions");
    field("length", length, "tokens of a sample");
    field("width", width, "of the network, a multiple of 32");
  }
};

std::vector<std::string> headers_in(const std::string& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".h") paths.push_back(entry.path());
  }
  std::ranges::sort(paths);
  std::vector<std::string> texts;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return texts;
}

/// A question and its answer: what a package is.
std::vector<levin::text::Messages> questions_about(const std::string& path) {
  std::ifstream file(path);
  std::vector<levin::text::Messages> chats;
  std::string name;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Package: ")) name = line.substr(9);
    if (!line.starts_with("Description: ")) continue;
    chats.push_back({{"user", "What is " + name + "?"}, {"assistant", line.substr(13)}});
  }
  if (chats.empty()) throw std::runtime_error("no package is in " + path + "; name a list by --packages");
  return chats;
}

/// Tokenizer's files, with a chat template whose answers training finds.
levin::text::Tokenizer make_tokenizer(const Options& options, const std::vector<std::string>& texts) {
  std::vector<levin::text::AddedToken> special;
  for (const char* token : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
    special.push_back({.content = token, .normalized = false, .special = true});
  std::filesystem::create_directories(options.folder);
  std::ofstream(options.folder + "/tokenizer.json") << levin::text::train_bpe(
      R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "decoder": {"type": "ByteLevel"}})",
      texts, {.vocab_size = 2048, .special_tokens = special, .initial_alphabet = levin::text::byte_alphabet()});
  std::ofstream(options.folder + "/tokenizer_config.json")
      << R"({"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"})";
  std::ofstream(options.folder + "/chat_template.jinja")
      << "{% for message in messages %}<|im_start|>{{ message.role }}\n"
         "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}"
         "{% else %}{{ message.content }}<|im_end|>{% endif %}\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  return levin::text::Tokenizer::from_pretrained(options.folder);
}
