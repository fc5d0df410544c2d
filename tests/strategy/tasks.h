#pragma once
// Small trainings of each kind of network, for the tests that compare strategies.

#include <torch/torch.h>

#include <functional>
#include <memory>

#include "levin/data/batch.h"
#include "levin/models/gpt2.h"
#include "levin/models/lora.h"
#include "tests/models/small_models.h"

namespace levin::test {

inline constexpr int64_t kGlobalBatch = 24;
struct Task {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(int64_t step)> inputs;            ///< of the global batch
  std::function<at::Tensor(const at::Tensor& inputs)> loss;  ///< a mean over them
};

inline at::Tensor drawn(int64_t step, at::IntArrayRef sizes) {
  return torch::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(uint64_t(100 + step)));
}

inline Task mlp() {
  torch::nn::Sequential net(torch::nn::Linear(6, 16), torch::nn::Tanh(), torch::nn::Linear(16, 16),
                            torch::nn::ReLU(), torch::nn::Linear(16, 3));
  return {net.ptr(), [](int64_t step) { return drawn(step, {kGlobalBatch, 6}); },
          [net](const at::Tensor& x) mutable {
            const at::Tensor type_of = net->parameters().front();
            const at::Tensor input = x.to(type_of.scalar_type());
            return torch::nn::functional::cross_entropy(net->forward(input),
                                                        x.abs().narrow(1, 0, 3).argmax(1));
          }};
}

inline Task gpt() {
  levin::models::GPT2 net(levin::models::GPT2Config{.vocab_size = 17,
                                                    .n_positions = 8,
                                                    .n_embd = 16,
                                                    .n_layer = 2,
                                                    .n_head = 2,
                                                    .resid_pdrop = 0,
                                                    .embd_pdrop = 0,
                                                    .attn_pdrop = 0});
  return {net.ptr(),
          [](int64_t step) {
            return drawn(step, {kGlobalBatch, 8}).mul(100).abs().to(at::kLong).remainder(17);
          },
          [net](const at::Tensor& tokens) mutable {
            const at::Tensor logits = net->forward(tokens);
            return torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens.flatten());
          }};
}

/// A model of a family with its own loss, and heads that share the embedding's matrix.
inline Task pretrained(const std::string& config, const std::string& task) {
  const auto net = small(config, task);
  return {net,
          [](int64_t step) {
            return drawn(step, {kGlobalBatch, 8}).mul(1000).abs().to(at::kLong).remainder(61);
          },
          [net](const at::Tensor& ids) {
            return net->forward({{"input_ids", ids}, {"labels", ids}}).loss;
          }};
}
inline Task qwen3() {
  std::string config = small_qwen3();
  return pretrained(config.insert(1, "\"tie_word_embeddings\": true, "), "text-generation");
}
/// A frozen model with an adapter.
inline Task adapted() {
  const auto net = small(small_qwen3(), "text-generation");
  lora::add(net, {.r = 4, .target_modules = {"all-linear"}});
  for (const auto& parameter : net->named_parameters()) {
    // Beside 0 there is nothing to sum.
    if (parameter.key().ends_with("lora_B.weight"))
      torch::nn::init::normal_(parameter.value(), 0.0, 0.1);
  }
  return {net,
          [](int64_t step) {
            return drawn(step, {kGlobalBatch, 8}).mul(1000).abs().to(at::kLong).remainder(61);
          },
          [net](const at::Tensor& ids) {
            return net->forward({{"input_ids", ids}, {"labels", ids}}).loss;
          }};
}
inline Task bert() { return pretrained(small_bert(), "fill-mask"); }

inline Task cnn() {
  torch::nn::Sequential net(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).bias(false)),
                            torch::nn::BatchNorm2d(4), torch::nn::ReLU(),
                            torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).bias(false)),
                            torch::nn::BatchNorm2d(4), torch::nn::ReLU(), torch::nn::Flatten(),
                            torch::nn::Linear(4 * 4 * 4, 3));
  return {net.ptr(), [](int64_t step) { return drawn(step, {kGlobalBatch, 1, 8, 8}); },
          [net](const at::Tensor& x) mutable {
            const at::Tensor input = x.to(net->parameters().front().scalar_type());
            return torch::nn::functional::cross_entropy(net->forward(input),
                                                        x.flatten(1).narrow(1, 0, 3).argmax(1));
          }};
}

/// The last of a sequence's outputs says which class its first element was of.
inline Task lstm() {
  struct Net : torch::nn::Module {
    torch::nn::LSTM lstm{nullptr};
    torch::nn::Linear head{nullptr};
    Net() {
      lstm =
          register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(5, 12).batch_first(true)));
      head = register_module("head", torch::nn::Linear(12, 3));
    }
  };
  auto net = std::make_shared<Net>();
  return {net, [](int64_t step) { return drawn(step, {kGlobalBatch, 6, 5}); },
          [net](const at::Tensor& x) {
            const at::Tensor input = x.to(net->head->weight.scalar_type());
            const at::Tensor outputs = std::get<0>(net->lstm->forward(input));
            return torch::nn::functional::cross_entropy(net->head->forward(outputs.select(1, -1)),
                                                        x.select(1, 0).narrow(1, 0, 3).argmax(1));
          }};
}

/// An encoder and a decoder; each output is to be its input's next.
inline Task transformer() {
  torch::nn::Transformer net(torch::nn::TransformerOptions(8, 2)
                                 .num_encoder_layers(1)
                                 .num_decoder_layers(1)
                                 .dim_feedforward(16)
                                 .dropout(0));
  return {net.ptr(), [](int64_t step) { return drawn(step, {kGlobalBatch, 5, 8}); },
          [net](const at::Tensor& x) mutable {
            const at::Tensor input = x.to(net->parameters().front().scalar_type()).transpose(0, 1);
            const at::Tensor output = net->forward(input, input.narrow(0, 0, 4));
            return (output - input.narrow(0, 1, 4)).square().mean();
          }};
}

}  // namespace levin::test
