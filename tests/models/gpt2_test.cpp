#include "levin/models/gpt2.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "levin/base/error.h"
#include "levin/files/safetensors.h"
#include "tests/graph/meta/built_modules.h"
#include "tests/support/error_of.h"
#include "tests/support/places.h"

namespace {

using levin::models::GPT2;
using levin::models::GPT2Config;
using levin::test::error_of;
using ::testing::HasSubstr;

/// What transformers.GPT2LMHeadModel computes for tests/oracle/golden/gpt2.json.
struct Golden {
  levin::files::SafetensorsFile file{levin::test::source_dir() +
                                     "/tests/oracle/golden/gpt2.safetensors"};
  GPT2Config config{.vocab_size = 61, .n_positions = 16, .n_embd = 24, .n_layer = 2, .n_head = 3};

  at::Tensor tensor(const std::string& name) const {
    const auto* entry = file.find(name);
    if (entry == nullptr) throw std::runtime_error("no tensor " + name + " in the golden file");
    auto tensor = at::empty(entry->shape, entry->dtype == "I64" ? at::kLong : at::kFloat);
    TORCH_CHECK(tensor.nbytes() == entry->data.size());
    std::memcpy(tensor.mutable_data_ptr(), entry->data.data(), entry->data.size());
    return tensor;
  }

  /// A net with the golden weights, in evaluation mode.
  GPT2 net() const {
    GPT2 net(config);
    net->eval();
    const at::NoGradGuard no_grad;
    for (auto& item : net->named_parameters()) item.value().copy_(tensor(item.key()));
    return net;
  }
};

GPT2Config small() {
  return {.vocab_size = 200, .n_positions = 32, .n_embd = 64, .n_layer = 8, .n_head = 4};
}

TEST(GPT2, NamesAndShapesAreHuggingFaces) {
  const Golden golden;
  std::map<std::string, std::vector<int64_t>> wanted, got;
  for (const auto& entry : golden.file.entries()) {
    if (entry.name.starts_with("transformer.")) wanted[entry.name] = entry.shape;
  }
  GPT2 net(golden.config);
  for (const auto& item : net->named_parameters()) got[item.key()] = item.value().sizes().vec();
  EXPECT_EQ(wanted.size(), 28);
  EXPECT_EQ(got, wanted);
}

TEST(GPT2, LogitsEqualHuggingFaces) {
  const Golden golden;
  const at::NoGradGuard no_grad;
  const auto logits = golden.net()->forward(golden.tensor("input_ids"));
  const auto wanted = golden.tensor("logits");
  ASSERT_EQ(logits.sizes(), wanted.sizes());
  EXPECT_LT((logits - wanted).abs().max().item<double>(), 2e-5)
      << "of logits up to " << wanted.abs().max().item<double>();
}

TEST(GPT2, LossAndGradientsEqualHuggingFaces) {
  const Golden golden;
  auto net = golden.net();
  const auto ids = golden.tensor("input_ids");
  const auto logits = net->forward(ids).slice(1, 0, -1).flatten(0, 1);
  const auto loss = at::cross_entropy_loss(logits, ids.slice(1, 1).flatten());
  loss.backward();
  EXPECT_NEAR(loss.item<double>(), golden.tensor("loss").item<double>(), 1e-5);
  const auto parameters = net->named_parameters();
  for (const auto& entry : golden.file.entries()) {
    if (!entry.name.starts_with("gradient.")) continue;
    const auto gradient = parameters[entry.name.substr(9)].grad();
    EXPECT_LT((gradient - golden.tensor(entry.name)).abs().max().item<double>(), 2e-5)
        << entry.name;
  }
}

TEST(GPT2, ALaterTokenDoesNotChangeEarlierLogits) {
  const Golden golden;
  const at::NoGradGuard no_grad;
  auto net = golden.net();
  const auto ids = golden.tensor("input_ids");
  auto changed = ids.clone();
  changed.select(1, 7).add_(1).remainder_(61);
  const auto difference = (net->forward(ids) - net->forward(changed)).abs();
  EXPECT_EQ(difference.slice(1, 0, 7).max().item<double>(), 0.0);
  EXPECT_GT(difference.select(1, 7).max().item<double>(), 0.1);
}

TEST(GPT2, WeightsAreDrawnAsHuggingFaceDrawsThem) {
  at::manual_seed(1);
  GPT2 net(small());
  const double residual = 0.02 / std::sqrt(2.0 * 8);
  for (const auto& item : net->named_parameters()) {
    const auto& name = item.key();
    const auto& value = item.value();
    if (name.ends_with("bias")) {
      EXPECT_EQ(value.abs().max().item<double>(), 0.0) << name;
    } else if (name.find(".ln_") != std::string::npos) {
      EXPECT_TRUE(value.eq(1.0).all().item<bool>()) << name;
    } else {
      const double wanted = name.find("c_proj") != std::string::npos ? residual : 0.02;
      EXPECT_NEAR(value.std().item<double>(), wanted, 0.1 * wanted) << name;
      EXPECT_NEAR(value.mean().item<double>(), 0.0, 0.1 * wanted) << name;
    }
  }
}

TEST(GPT2, DropoutActsInTrainingOnly) {
  GPT2 net(small());
  const at::NoGradGuard no_grad;
  const auto ids = at::arange(20).view({1, 20});
  EXPECT_FALSE(at::equal(net->forward(ids), net->forward(ids)));
  net->eval();
  EXPECT_TRUE(at::equal(net->forward(ids), net->forward(ids)));
}

TEST(GPT2, EachDropoutRateActsByItself) {
  const at::NoGradGuard no_grad;
  const auto ids = at::arange(20).view({1, 20});
  const std::pair<const char*, double GPT2Config::*> rates[] = {
      {"none", nullptr},
      {"resid_pdrop", &GPT2Config::resid_pdrop},
      {"embd_pdrop", &GPT2Config::embd_pdrop},
      {"attn_pdrop", &GPT2Config::attn_pdrop}};
  for (const auto& [name, rate] : rates) {
    auto config = small();
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0;
    if (rate != nullptr) config.*rate = 0.5;
    GPT2 net(config);
    EXPECT_EQ(at::equal(net->forward(ids), net->forward(ids)), rate == nullptr) << name;
  }
}

TEST(GPT2, OptionsAreReadByName) {
  GPT2Config config;
  const auto text = levin::options_as_text(config);
  EXPECT_EQ(text.size(), 14);
  EXPECT_EQ(text.at("n_embd"), "768");
  EXPECT_EQ(text.at("initializer_range"), "0.02");
}

TEST(GPT2, ImpossibleConfigurationsAreNamed) {
  EXPECT_THAT(error_of([] { GPT2(GPT2Config{.n_embd = 10, .n_head = 3}); }),
              HasSubstr("models.gpt2.config: n_embd = 10 is not a multiple of n_head = 3"));
  EXPECT_THAT(error_of([] { GPT2(GPT2Config{.n_layer = 0}); }),
              HasSubstr("models.gpt2.config: got n_layer = 0, wanted at least 1"));
  EXPECT_THAT(error_of([] { GPT2(GPT2Config{.attn_pdrop = 1.0}); }),
              HasSubstr("models.gpt2.config: got attn_pdrop = 1"));
}

TEST(GPT2, TooLongASequenceIsNamed) {
  GPT2 net(small());
  EXPECT_NO_THROW(net->forward(at::zeros({1, 32}, at::kLong)));
  EXPECT_THAT(error_of([&] { net->forward(at::zeros({1, 33}, at::kLong)); }),
              HasSubstr("models.gpt2.length: got 33 tokens, wanted at most n_positions = 32"));
}

TEST(GPT2, InputWithoutABatchDimIsNamed) {
  GPT2 net(small());
  EXPECT_THAT(error_of([&] { net->forward(at::zeros({8}, at::kLong)); }),
              HasSubstr("models.gpt2.input: got input_ids of 1 dims, wanted [batch, tokens]"));
}

TEST(GPT2, BuiltWithoutMemoryItGetsTheSameWeights) {
  levin::test::expect_builds_as_ever([] { return GPT2(small()).ptr(); });
}

}  // namespace
