// levin generate --model DIR: a model of a folder writes on from prompts, or chats.
#include <ATen/Parallel.h>
#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "levin/base/check.h"
#include "levin/models/generate/options.h"
#include "levin/models/lora.h"
#include "levin/models/pretrained.h"
#include "levin/text/tokenizer.h"
#include "tools/command.h"
#include "tools/command_line.h"

namespace levin::tools {
namespace {

constexpr int64_t kNewTokens = 256;

struct GenerateCommand {
  std::string model, adapter, tokenizer, dtype = "auto";
  std::vector<std::string> prompts;
  std::string system;
  bool chat = false, greedy = false, sample = false, speed = false;
  int threads = 0;
  models::GenerateOptions options;
};

void add_options(CLI::App& app, GenerateCommand& command) {
  models::GenerateOptions& options = command.options;
  const auto maybe = [&](const char* name, auto& field, const char* help) {
    using Number = typename std::decay_t<decltype(field)>::value_type;
    app.add_option_function<Number>(name, [&field](const Number& value) { field = value; }, help);
  };
  app.get_formatter()->column_width(34);
  app.option_defaults()->group("Model");
  app.add_option("--model", command.model, "folder of the model, as transformers saves it")
      ->required()
      ->type_name("DIR");
  app.add_option("--adapter", command.adapter, "folder of a LoRA adapter, as PEFT saves it")
      ->type_name("DIR");
  app.add_option("--tokenizer", command.tokenizer,
                 "folder of the tokenizer; else that of the model")
      ->type_name("DIR");
  app.option_defaults()->group("Prompts");
  app.add_option(
         "--prompt", command.prompts,
         "prompt, or with --chat a message; repeat for several texts. Without it, prompts "
         "come from standard input, one per line; on a terminal they are asked for one by one")
      ->type_name("TEXT")
      ->expected(1)
      ->allow_extra_args(false)  // or "[a,b]" would be two
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_flag("--chat", command.chat, "format prompts as messages with the chat template");
  app.add_option("--system", command.system, "system message of the chat")->type_name("TEXT");
  app.option_defaults()->group("Tokens");
  maybe("--max-new-tokens", options.max_new_tokens,
        "maximum number of new tokens; else as in generation_config.json, or 256");
  app.add_flag("--greedy", command.greedy, "greedy decoding: take the most likely token each time");
  app.add_flag("--sample", command.sample,
               "sample tokens; implied by each of the next four options");
  maybe("--temperature", options.temperature, "divide the logits by this");
  maybe("--top-k", options.top_k, "sample from the k most likely tokens; 0: all");
  maybe("--top-p", options.top_p,
        "sample from the most likely tokens whose probabilities sum up to p");
  maybe("--min-p", options.min_p,
        "sample from tokens with at least this fraction of the top token's probability");
  maybe("--repetition-penalty", options.repetition_penalty,
        "penalty on tokens that occurred before; 1: none");
  maybe("--seed", options.seed, "seed of sampling, to get the same text again");
  app.add_option("--stop", options.stop_strings, "text that stops generation; may be repeated")
      ->type_name("TEXT")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.option_defaults()->group("Computation");
  app.add_option("--dtype", command.dtype,
                 "dtype of the weights: auto, float32, bfloat16 or float16")
      ->capture_default_str()
      ->type_name("");
  app.add_option("--threads", command.threads, "threads per operator; 0: LibTorch's default")
      ->type_name("N");
  app.add_flag("--speed", command.speed,
               "print to standard error the tokens per second, and how many prompt tokens the "
               "model computed (the KV cache has the others)");
}

/// Completes the options with those of the model's folder, and checks them.
void settle(GenerateCommand& command, const models::Pretrained& net,
            const text::Tokenizer& tokenizer) {
  models::GenerateOptions& options = command.options;
  LEVIN_CHECK(!(command.greedy && command.sample), "tools.generate",
              "got --greedy and --sample; give one of them");
  const bool shapes = options.temperature || options.top_k || options.top_p || options.min_p;
  if (command.greedy) options.do_sample = false;
  if (command.sample || (shapes && !command.greedy)) options.do_sample = true;
  if (!options.max_new_tokens && !net.generation_config().has("max_new_tokens"))
    options.max_new_tokens = kNewTokens;
  options.tokenizer = &tokenizer;
  if (!command.chat) {
    LEVIN_CHECK(command.system.empty(), "tools.generate",
                "--system is a message of a chat, but there is no --chat; add --chat");
    return;
  }
  LEVIN_CHECK(tokenizer.chat_template(), "tools.generate",
              "'{}' has no chat template; leave out --chat, or name a --tokenizer that has one",
              command.tokenizer.empty() ? command.model : command.tokenizer);
  // A folder may name another end than that of a turn.
  if (const auto end = tokenizer.special_token_id("eos_token"))
    options.stop_token_ids.push_back(*end);
}

class Writer {
 public:
  Writer(models::Pretrained& net, const text::Tokenizer& tokenizer, const GenerateCommand& command)
      : net_(net), tokenizer_(tokenizer), command_(command) {
    forget();
  }

  /// Writes to standard output as it comes.
  void answer(const std::string& prompt) {
    const auto begin = std::chrono::steady_clock::now();
    models::GenerateOptions options = command_.options;
    if (command_.chat) options.kept = &kept_;
    options.on_text = [](int64_t, std::string_view piece) { std::cout << piece << std::flush; };
    const auto written = net_.generate(batch_of(prompt), options);
    std::cout << std::endl;  // NOLINT: who reads along waits for it
    if (command_.chat) messages_.push_back({"assistant", written.texts.front()});
    if (!command_.speed) return;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    std::cerr << fmt::format("{} tokens, {:.1f} per second; computed {} of {} positions\n",
                             written.counts.front(),
                             static_cast<double>(written.counts.front()) / time.count(),
                             written.num_computed, written.sequences.size(1));
  }

  /// In a conversation of its own.
  void answer_alone(const std::string& prompt) {
    forget();
    answer(prompt);
  }

  /// The next prompt begins a conversation.
  void forget() {
    messages_.clear();
    if (!command_.system.empty()) messages_.push_back({"system", command_.system});
  }

 private:
  Batch batch_of(const std::string& prompt) {
    if (!command_.chat) return models::to_prompts(tokenizer_, {prompt});
    messages_.push_back({"user", prompt});
    const text::Chat chat =
        tokenizer_.apply_chat_template(messages_, {.add_generation_prompt = true});
    return models::to_prompts(tokenizer_, std::span(&chat.encoding, 1));
  }

  models::Pretrained& net_;
  const text::Tokenizer& tokenizer_;
  const GenerateCommand& command_;
  std::vector<text::Message> messages_;
  models::KeptCache kept_;  // of the turns so far, and of what conversations begin with
};

void talk(Writer& writer, bool chat) {
  std::cerr << (chat ? "A line is a message; /new begins another conversation, Ctrl-D ends.\n"
                     : "A line is a prompt; Ctrl-D ends.\n");
  for (std::string line; std::cerr << "> " && std::getline(std::cin, line);) {
    if (line.empty()) continue;
    if (chat && line == "/new") {
      writer.forget();
    } else {
      writer.answer(line);
    }
  }
  std::cerr << '\n';
}

}  // namespace

int generate(int argc, char** argv) {
  GenerateCommand command;
  CLI::App app("Generates text from prompts with a pretrained model, or answers in a chat.",
               "levin generate");
  add_options(app, command);
  if (!parse_arguments(app, argc, argv, "tools.generate")) return 0;
  if (command.threads > 0) at::set_num_threads(command.threads);
  const auto net =
      models::from_pretrained(command.model, {.task = "text-generation", .dtype = command.dtype});
  if (!command.adapter.empty()) {
    lora::load(*net, command.adapter);
    lora::merge(*net);
  }
  const auto tokenizer = text::Tokenizer::from_pretrained(
      command.tokenizer.empty() ? command.model : command.tokenizer);
  settle(command, *net, tokenizer);
  Writer writer(*net, tokenizer, command);
  if (command.prompts.empty() && isatty(STDIN_FILENO) != 0) {
    talk(writer, command.chat);
    return 0;
  }
  for (const std::string& prompt : command.prompts) writer.answer_alone(prompt);
  if (!command.prompts.empty()) return 0;
  int64_t count = 0;
  for (std::string line; std::getline(std::cin, line); ++count) writer.answer_alone(line);
  LEVIN_CHECK(count > 0, "tools.generate",
              "got no prompt; give --prompt, or write prompts to standard input");
  return 0;
}

}  // namespace levin::tools
