// Where an error says that it came: in the loop that ran, whoever threw.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <functional>

#include "levin/base/autocast.h"
#include "levin/base/console/last_words.h"
#include "tests/trainer/small_run.h"

namespace {

using namespace small_run;  // NOLINT

/// Throws at the call of this number (from 0) of this name.
struct Thrower {
  std::string name;
  int64_t left = 0;
  void at(std::string_view called) {
    if (called == name && left-- == 0) throw std::runtime_error("broken");
  }
};

/// What a Trainer makes of it: the words of the error with which the program would end.
std::string place_of(levin::TrainerOptions options,
                     const std::function<void(levin::Trainer&)>& body) {
  levin::Trainer trainer(std::move(options));
  try {
    body(trainer);
  } catch (const std::exception&) {
    const std::string words = levin::detail::last_words();
    const size_t end = words.find("broken");
    EXPECT_NE(end, std::string::npos) << words;
    return words.substr(std::min(words.size(), end + 7));
  }
  return "no error";
}

struct ThrowingNet : Net {
  Thrower& thrower;
  explicit ThrowingNet(Thrower& thrower) : thrower(thrower) {}

  at::Tensor training_step(const levin::Batch& batch, int64_t) override {
    thrower.at("training_step");
    return Net::training_step(batch);
  }
  void validation_step(const levin::Batch&, int64_t) override { thrower.at("validation_step"); }
  void test_step(const levin::Batch&, int64_t) override { thrower.at("test_step"); }
  at::Tensor predict_step(const levin::Batch& batch, int64_t) override {
    thrower.at("predict_step");
    return batch["x"];
  }
  void on_train_epoch_start() override { thrower.at("on_train_epoch_start"); }
  void on_train_epoch_end() override { thrower.at("on_train_epoch_end"); }
  void on_validation_epoch_start() override { thrower.at("on_validation_epoch_start"); }
  void on_validation_epoch_end() override { thrower.at("on_validation_epoch_end"); }
  void on_train_batch_end(const at::Tensor&, const levin::Batch&, int64_t) override {
    thrower.at("on_train_batch_end");
  }
};

struct ThrowingCallback : levin::Callback {
  Thrower& thrower;
  explicit ThrowingCallback(Thrower& thrower) : thrower(thrower) {}
  std::string state_key() const override { return "throwing"; }
  void on_train_batch_end(levin::Trainer&, levin::Module&, const at::Tensor&, const levin::Batch&,
                          int64_t) override {
    thrower.at("callback on_train_batch_end");
  }
  void on_train_epoch_end(levin::Trainer&, levin::Module&) override {
    thrower.at("callback on_train_epoch_end");
  }
  void on_evaluation_start(levin::Trainer&, levin::Module&, std::string_view stage) override {
    thrower.at("callback on_evaluation_start " + std::string(stage));
  }
  void on_evaluation_batch_end(levin::Trainer&, levin::Module&, std::string_view stage,
                               const levin::Batch&, int64_t) override {
    thrower.at("callback on_evaluation_batch_end " + std::string(stage));
  }
  void on_evaluation_end(levin::Trainer&, levin::Module&, std::string_view stage) override {
    thrower.at("callback on_evaluation_end " + std::string(stage));
  }
  int64_t told = 0;
  void on_exception(levin::Trainer&, levin::Module&, const std::exception&) override { ++told; }
};

struct Case {
  std::string name;
  int64_t call;
  std::string place;
};

levin::DataLoader batches(int64_t count) {
  return levin::DataLoader(dataset(8 * count), {.batch_size = 8});
}

// Two epochs of 4 batches, each with two validations of 3 batches.
TEST(ErrorPlace, IsThatOfTheLoopOfAFitThatRan) {
  const Scratch root;
  const std::vector<Case> cases = {
      {"training_step", 5, "[epoch 1, batch 1]"},
      {"on_train_epoch_start", 1, "[start of epoch 1]"},
      {"on_train_epoch_end", 0, "[end of epoch 0]"},
      {"on_train_batch_end", 2, "[epoch 0, batch 2]"},
      {"callback on_train_batch_end", 6, "[epoch 1, batch 2]"},
      {"callback on_train_epoch_end", 1, "[end of epoch 1]"},
      {"validation_step", 1, "[sanity check, validation batch 1]"},
      {"validation_step", 2 + 3 + 2, "[epoch 0, validation batch 2]"},
      {"validation_step", 2 + 6 + 0, "[epoch 1, validation batch 0]"},
      {"on_validation_epoch_start", 0, "[sanity check, start of validation]"},
      {"on_validation_epoch_start", 1, "[epoch 0, start of validation]"},
      {"on_validation_epoch_end", 3, "[epoch 1, end of validation]"},
      {"callback on_evaluation_start validate", 1, "[epoch 0, start of validation]"},
      {"callback on_evaluation_batch_end validate", 2 + 3 + 1, "[epoch 0, validation batch 1]"},
      {"callback on_evaluation_end validate", 2, "[epoch 0, end of validation]"},
  };
  for (const Case& c : cases) {
    Thrower thrower{c.name, c.call};
    auto options = quiet(root.str());
    options.max_epochs = 2;
    options.val_check_interval = 2;
    options.num_sanity_val_steps = 2;
    options.callbacks = {std::make_shared<ThrowingCallback>(thrower)};
    EXPECT_EQ(place_of(options,
                       [&](levin::Trainer& trainer) {
                         trainer.fit(std::make_shared<ThrowingNet>(thrower), batches(4),
                                     batches(3));
                       }),
              c.place)
        << c.name << " " << c.call;
  }
}

TEST(ErrorPlace, IsThatOfTheEvaluationThatRan) {
  const Scratch root;
  using Evaluate = std::function<void(levin::Trainer&, std::shared_ptr<levin::Module>)>;
  const Evaluate validate = [](auto& trainer, auto net) { trainer.validate(net, batches(3)); };
  const Evaluate test = [](auto& trainer, auto net) { trainer.test(net, batches(3)); };
  const Evaluate predict = [](auto& trainer, auto net) { trainer.predict(net, batches(3)); };
  const std::vector<std::pair<Evaluate, Case>> cases = {
      {validate, {"validation_step", 2, "[validation batch 2]"}},
      {validate, {"on_validation_epoch_end", 0, "[end of validation]"}},
      {test, {"test_step", 1, "[test batch 1]"}},
      {test, {"callback on_evaluation_start test", 0, "[start of test]"}},
      {test, {"callback on_evaluation_batch_end test", 2, "[test batch 2]"}},
      {predict, {"predict_step", 0, "[predict batch 0]"}},
      {predict, {"callback on_evaluation_end predict", 0, "[end of predict]"}},
  };
  for (const auto& [evaluate, c] : cases) {
    Thrower thrower{c.name, c.call};
    auto options = quiet(root.str());
    const auto callback = std::make_shared<ThrowingCallback>(thrower);
    options.callbacks = {callback};
    EXPECT_EQ(place_of(options,
                       [&](levin::Trainer& trainer) {
                         evaluate(trainer, std::make_shared<ThrowingNet>(thrower));
                       }),
              c.place)
        << c.name << " " << c.call;
    EXPECT_EQ(callback->told, 1) << c.name;
  }
}

/// Fails to give the batch of this number.
struct Unreadable : levin::Dataset {
  std::shared_ptr<levin::Dataset> data = dataset(32);
  int64_t from;
  explicit Unreadable(int64_t from) : from(from) {}
  int64_t size() const override { return data->size(); }
  levin::Batch get(std::span<const int64_t> indices) const override {
    if (indices.front() >= from) throw std::runtime_error("broken");
    return data->get(indices);
  }
};

TEST(ErrorPlace, OfABatchThatCannotBeReadIsItsNumberInItsLoop) {
  const Scratch root;
  Thrower never;
  const levin::DataLoader broken(std::make_shared<Unreadable>(16), {.batch_size = 8});
  auto options = quiet(root.str());
  options.num_sanity_val_steps = 0;
  const auto net = [&] { return std::make_shared<ThrowingNet>(never); };
  EXPECT_EQ(place_of(options, [&](auto& trainer) { trainer.fit(net(), broken); }),
            "[epoch 0, batch 2]");
  EXPECT_EQ(place_of(options, [&](auto& trainer) { trainer.fit(net(), batches(2), broken); }),
            "[epoch 0, validation batch 2]");
  EXPECT_EQ(place_of(options, [&](auto& trainer) { trainer.test(net(), broken); }),
            "[test batch 2]");
}

/// What is said beside the error of a module that computes this in its step.
std::string said_of(const std::string& precision,
                    const std::function<at::Tensor(const at::Tensor&)>& compute,
                    const std::shared_ptr<torch::nn::Module>& part) {
  struct Computing : Net {
    std::function<at::Tensor(const at::Tensor&)> compute;
    at::Tensor training_step(const levin::Batch& batch, int64_t) override {
      return compute(batch["x"]).sum();
    }
  };
  const Scratch root;
  auto options = quiet(root.str());
  options.precision = precision;
  const auto net = std::make_shared<Computing>();
  net->compute = compute;
  if (part) net->register_module("part", part);
  levin::Trainer trainer(options);
  ::testing::internal::CaptureStderr();
  EXPECT_ANY_THROW(trainer.fit(net, batches(1)));
  return ::testing::internal::GetCapturedStderr();
}

TEST(ErrorHint, OfLibTorchsHalfErrorsSaysWhatToDo) {
  const auto lstm = torch::nn::LSTM(6, 4);
  const auto gru = torch::nn::GRU(6, 4);
  const auto with_state = [](auto layer, auto state) {
    return [layer, state](const at::Tensor& x) mutable {
      return std::get<0>(layer->forward(x.unsqueeze(0), state));
    };
  };
  const at::Tensor zeros = torch::zeros({1, 8, 4});
  EXPECT_THAT(said_of("bf16-true", with_state(lstm, std::make_tuple(zeros, zeros)), lstm.ptr()),
              ::testing::HasSubstr(
                  "levin error: trainer: with --precision bf16-true, a bfloat16 tensor meets "
                  "a float32 tensor; create the states of an LSTM"));
  EXPECT_THAT(said_of("bf16-true", with_state(gru, zeros), gru.ptr()),
              ::testing::HasSubstr("torch::zeros(sizes, x.options())"));
  auto encoder = torch::nn::TransformerEncoderLayer(
      torch::nn::TransformerEncoderLayerOptions(6, 2).dim_feedforward(8).dropout(0.0));
  const auto masked = [encoder](const at::Tensor& x) mutable {
    return encoder->forward(x.unsqueeze(1), {}, torch::zeros({1, 8}, torch::kBool));
  };
  EXPECT_THAT(said_of("bf16-mixed", masked, encoder.ptr()),
              ::testing::HasSubstr("do not accept a key_padding_mask; pass it as attention mask"));
}

TEST(ErrorHint, OtherErrorsHaveNone) {
  const auto wide = [](const at::Tensor& x) { return x.matmul(torch::ones({5, 2}, x.options())); };
  for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"}) {
    EXPECT_EQ(said_of(precision, wide, nullptr).find("levin error"), std::string::npos)
        << precision;
  }
}

/// That the hints hold: what they say to do computes.
TEST(ErrorHint, WhatItSaysToDoWorks) {
  struct Following : Net {
    torch::nn::LSTM lstm{nullptr};
    torch::nn::TransformerEncoderLayer encoder{nullptr};
    at::Tensor training_step(const levin::Batch& batch, int64_t) override {
      const at::Tensor x = batch["x"].unsqueeze(1);
      const at::Tensor zeros = torch::zeros({1, 1, 4}, x.options());
      const at::Tensor padding =
          torch::zeros({8, 8}, x.options()).masked_fill(torch::zeros({8}, torch::kBool), -INFINITY);
      at::Tensor loss = std::get<0>(lstm->forward(x, std::make_tuple(zeros, zeros))).sum() +
                        encoder->forward(x, padding).sum();
      if (levin::current_autocast(at::kCPU).enabled) {
        const levin::AutocastScope off(x.device().type(), {});
        loss = loss +
               encoder->forward(x.to(torch::kFloat), {}, torch::zeros({1, 8}, torch::kBool)).sum();
      }
      return loss;
    }
  };
  for (const char* precision : {"bf16-mixed", "bf16-true"}) {
    const Scratch root;
    auto options = quiet(root.str());
    options.precision = precision;
    options.max_steps = 1;
    const auto net = std::make_shared<Following>();
    net->lstm = net->register_module("lstm", torch::nn::LSTM(6, 4));
    net->encoder = net->register_module(
        "encoder",
        torch::nn::TransformerEncoderLayer(
            torch::nn::TransformerEncoderLayerOptions(6, 2).dim_feedforward(8).dropout(0.0)));
    levin::Trainer trainer(options);
    trainer.fit(net, batches(1));
    EXPECT_EQ(trainer.global_step(), 1) << precision;
  }
}

}  // namespace
