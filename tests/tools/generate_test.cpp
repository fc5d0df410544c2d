// levin generate as main() calls it, and on a terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>

#include <cstdio>
#include <sstream>

#include "levin/models/lora.h"
#include "levin/models/pretrained.h"
#include "levin/text/tokenizer.h"
#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"
#include "tests/support/scratch.h"
#include "tools/command.h"

namespace {

using levin::test::error_of;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;
namespace models = levin::models;

class Generate : public ::testing::Test {
 protected:
  Generate() {
    torch::manual_seed(1);
    net_ = models::from_config(
        models::Config::from_json(R"({"model_type": "llama", "vocab_size": 9, "hidden_size": 16,
            "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "eos_token_id": 8,
            "initializer_range": 0.4, "max_position_embeddings": 400})"),
        {.task = "text-generation"});
    net_->save_pretrained(folder_);
    levin::test::put(
        scratch_ / "tokenizer.json",
        R"({"pre_tokenizer": {"type": "WhitespaceSplit"}, "model": {"type": "WordLevel", "unk_token": "?",
        "vocab": {"?": 0, "so": 1, "it": 2, "goes": 3, "user": 4, "assistant": 5, "and": 6, "on": 7, "end": 8}}})");
    levin::test::put(scratch_ / "tokenizer_config.json", R"({"eos_token": "end",
        "chat_template": "{% for m in messages %}{{ m.role }} {{ m.content }} end {% endfor %}assistant "})");
  }

  std::string run(std::vector<std::string> words, const std::string& input = "") {
    words.insert(words.begin(), {"generate", "--model", folder_});
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::istringstream lines(input);
    auto* const before = std::cin.rdbuf(lines.rdbuf());
    std::cin.clear();
    ::testing::internal::CaptureStdout();
    try {
      EXPECT_EQ(levin::tools::generate(static_cast<int>(words.size()), arguments.data()), 0);
    } catch (...) {
      ::testing::internal::GetCapturedStdout();
      std::cin.rdbuf(before);
      throw;
    }
    std::cin.rdbuf(before);
    return ::testing::internal::GetCapturedStdout();
  }

  /// The likeliest words behind a prompt.
  std::string behind(const std::string& prompt, int64_t count) const {
    const auto tokenizer = levin::text::Tokenizer::from_pretrained(folder_);
    return net_
        ->generate(models::to_prompts(tokenizer, {prompt}),
                   {.max_new_tokens = count, .tokenizer = &tokenizer})
        .texts.front();
  }

  const levin::test::Scratch scratch_;
  const std::string folder_ = scratch_.str();
  std::shared_ptr<models::Pretrained> net_;
};

TEST_F(Generate, WritesOnFromPromptsAndFromLines) {
  const std::string one = behind("so it", 5) + "\n", other = behind("goes", 5) + "\n";
  EXPECT_NE(one, other);
  EXPECT_EQ(run({"--max-new-tokens", "5", "--prompt", "so it"}), one);
  EXPECT_EQ(run({"--max-new-tokens", "5", "--prompt", "so it", "--prompt", "goes"}), one + other);
  EXPECT_EQ(run({"--max-new-tokens", "5"}, "so it\ngoes\n"), one + other);
}

TEST_F(Generate, DrawsWhereItIsAskedTo) {
  const auto drawn = [&](const std::string& seed) {
    return run({"--prompt", "so", "--max-new-tokens", "20", "--temperature", "3", "--seed", seed});
  };
  EXPECT_EQ(drawn("1"), drawn("1"));
  EXPECT_NE(drawn("1"), drawn("2"));
  EXPECT_EQ(run({"--prompt", "so", "--max-new-tokens", "5", "--top-k", "1"}),
            behind("so", 5) + "\n");
}

TEST_F(Generate, ChatsByTheTemplateEachLineForItself) {
  const std::string answer = behind("user so end assistant", 6) + "\n";
  EXPECT_EQ(run({"--chat", "--max-new-tokens", "6", "--prompt", "so"}), answer);
  EXPECT_EQ(run({"--chat", "--max-new-tokens", "6"}, "so\nso\n"), answer + answer);
  EXPECT_EQ(run({"--chat", "--max-new-tokens", "6", "--system", "it", "--prompt", "so"}),
            behind("system it end user so end assistant", 6) + "\n");
}

TEST_F(Generate, TakesAnAdapter) {
  const std::string before = behind("so", 8);
  levin::lora::add(*net_, {.r = 2, .lora_alpha = 64});
  {
    const at::NoGradGuard no_grad;
    for (auto& parameter : net_->named_parameters())
      if (parameter.key().find("lora_B") != std::string::npos) parameter.value().normal_();
  }
  const std::string adapter = (scratch_ / "adapter").string(), after = behind("so", 8);
  levin::lora::save(*net_, adapter);
  EXPECT_NE(after, before);
  EXPECT_EQ(run({"--adapter", adapter, "--max-new-tokens", "8", "--prompt", "so"}), after + "\n");
}

TEST_F(Generate, StopsAtATextAndSaysHowFastItWas) {
  const std::string all = behind("so it", 8), word = all.substr(all.rfind(' ') + 1);
  const std::string stopped = run({"--max-new-tokens", "8", "--prompt", "so it", "--stop", word});
  EXPECT_THAT(all, StartsWith(stopped.substr(0, stopped.size() - 1)));
  EXPECT_THAT(stopped, EndsWith(word + "\n"));
  ::testing::internal::CaptureStderr();
  run({"--max-new-tokens", "3", "--prompt", "so", "--speed"});
  const std::string said = ::testing::internal::GetCapturedStderr();
  int count = 0, read = 0, length = 0;
  double rate = 0;
  ASSERT_EQ(std::sscanf(said.c_str(), "%d tokens, %lf per second; computed %d of %d positions",
                        &count, &rate, &read, &length),
            4)
      << said;
  EXPECT_EQ(read, count);  // the prompt is one token, and the last one is not read
  EXPECT_EQ(length, count + 1);
}

TEST_F(Generate, WhatDoesNotGoTogetherIsAnError) {
  const auto said = [&](std::vector<std::string> words) {
    return error_of([&] { run(std::move(words)); });
  };
  EXPECT_THAT(said({"--greedy", "--sample", "--prompt", "so"}), StartsWith("tools.generate: "));
  EXPECT_THAT(said({"--system", "it", "--prompt", "so"}), StartsWith("tools.generate: "));
  EXPECT_THAT(said({"--fast"}), StartsWith("tools.generate: "));
  EXPECT_THAT(said({}), StartsWith("tools.generate: got no prompt"));
  levin::test::put(scratch_ / "tokenizer_config.json", "{}");
  EXPECT_THAT(said({"--chat", "--prompt", "so"}), HasSubstr("has no chat template"));
}

// The second message goes with the first and its answer; /new forgets them.
TEST_F(Generate, OnATerminalIsAConversation) {
  int terminal = 0;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    const std::string& command = levin::test::levin_command();
    ::setenv("OMP_NUM_THREADS", "1", 1);
    ::alarm(static_cast<unsigned>(levin::test::patient_s(240)));
    ::execl(command.c_str(), command.c_str(), "generate", "--model", folder_.c_str(), "--chat",
            "--max-new-tokens", "4", nullptr);
    ::_exit(99);
  }
  const std::string input = "so\nit\n/new\nso\n\x04";
  ASSERT_EQ(::write(terminal, input.data(), input.size()), static_cast<ssize_t>(input.size()));
  std::string output;
  char bytes[512];
  for (ssize_t count = 0; (count = ::read(terminal, bytes, sizeof bytes)) > 0;)
    output.append(bytes, static_cast<size_t>(count));
  ::close(terminal);
  EXPECT_EQ(levin::test::wait_for(child), 0) << output;
  const std::string first = behind("user so end assistant", 4);
  const std::string second =
      behind("user so end assistant " + first + " end user it end assistant", 4);
  const size_t one = output.find("> " + first + "\r\n");
  ASSERT_NE(one, std::string::npos) << output;
  const size_t two = output.find("> " + second + "\r\n", one);
  ASSERT_NE(two, std::string::npos) << output << second;
  EXPECT_NE(output.find("> " + first + "\r\n", two + 1), std::string::npos) << output;
}

}  // namespace
