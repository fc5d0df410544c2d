#include "tests/xla/module_cases.h"

namespace levin::test {
namespace {

namespace nn = torch::nn;
using at::Tensor;

/// Of keys [2, 5]: the second sample's last two are none.
Tensor padding_like(const Tensor& x) {
  Tensor mask = torch::zeros({2, 5}, at::kBool);
  mask[1].slice(0, 3).fill_(true);
  return mask.to(x.device());
}
/// [4, 5]: what is later is not to be seen.
Tensor later(const Tensor& x) { return torch::ones({4, 5}, at::kBool).triu(2).to(x.device()); }
Tensor causal(const Tensor& x, int64_t size) {
  return nn::TransformerImpl::generate_square_subsequent_mask(size).to(x.options());
}

std::function<OperatorTensors()> queries_and_keys(int64_t key_width = 8, int64_t value_width = 8) {
  return drawn({{4, 2, 8}, {5, 2, key_width}, {5, 2, value_width}});
}

void add_attentions(ModuleCases& all) {
  const auto add = [&](const std::string& form, nn::MultiheadAttentionOptions options,
                       int64_t key_width = 8, int64_t value_width = 8) {
    const auto inputs = queries_and_keys(key_width, value_width);
    const std::string name = "Attention" + form;
    for (ModuleCase& of : ModuleCases{
             MODULE(name, nn::MultiheadAttention(options), inputs, m->forward(t[0], t[1], t[2])),
             MODULE(name + "Masked", nn::MultiheadAttention(options), inputs,
                    m->forward(t[0], t[1], t[2], padding_like(t[0]), true, later(t[0])))}) {
      of.is_random = options.dropout() > 0;
      all.push_back(std::move(of));
    }
  };
  const nn::MultiheadAttentionOptions plain(8, 2);
  using Options = nn::MultiheadAttentionOptions;
  add("", plain);
  add("WithoutBias", Options(plain).bias(false));
  add("ExtraKey", Options(plain).add_bias_kv(true));
  add("ZeroKey", Options(plain).add_zero_attn(true));
  add("ExtraAndZeroKey", Options(plain).add_bias_kv(true).add_zero_attn(true));
  add("OfOtherWidths", Options(plain).kdim(6).vdim(6), 6, 6);
  add("OfOtherWidthsExtraKey", Options(plain).kdim(6).vdim(6).add_bias_kv(true), 6, 6);
  add("OfOtherWidthsWithoutBias", Options(plain).kdim(6).vdim(6).bias(false), 6, 6);
  add("Dropout", Options(plain).dropout(0.3));
  for (ModuleCase& of : ModuleCases{
           MODULE("AttentionWithoutWeights", nn::MultiheadAttention(plain), queries_and_keys(),
                  std::get<0>(m->forward(t[0], t[1], t[2], {}, false))),
           MODULE("AttentionOfEachHead", nn::MultiheadAttention(plain), queries_and_keys(),
                  m->forward(t[0], t[1], t[2], padding_like(t[0]), true, {}, false)),
           MODULE("AttentionOfAFloatMask", nn::MultiheadAttention(plain), queries_and_keys(),
                  m->forward(t[0], t[1], t[2], padding_like(t[0]), true,
                             torch::linspace(-1, 1, 20).view({4, 5}).to(t[0].options()))),
           MODULE("AttentionToItself", nn::MultiheadAttention(plain), drawn({{5, 2, 8}}),
                  m->forward(t[0], t[0], t[0], {}, true, causal(t[0], 5))),
           MODULE("AttentionToAMemory", nn::MultiheadAttention(plain), queries_and_keys(),
                  m->forward(t[0], t[1], t[1], padding_like(t[0])))}) {
    all.push_back(std::move(of));
  }
}

void add_products(ModuleCases& all) {
  const auto heads = drawn({{2, 4, 3, 6}, {2, 4, 5, 6}, {2, 4, 5, 6}});
  const auto grouped = drawn({{2, 4, 3, 6}, {2, 2, 5, 6}, {2, 2, 5, 6}});
  const auto none = std::optional<Tensor>();
  const auto add = [&](const std::string& form, const std::function<OperatorTensors()>& inputs,
                       const std::function<Tensor(const OperatorTensors&)>& call) {
    all.push_back(MODULE("DotProduct" + form, nn::Identity(), inputs, call(t)));
  };
  const auto mask = [](const Tensor& x) {
    return torch::ones({3, 5}, at::kBool).tril(1).to(x.device());
  };
  add("", heads, [=](const auto& t) { return at::scaled_dot_product_attention(t[0], t[1], t[2]); });
  add("Causal", heads, [=](const auto& t) {
    return at::scaled_dot_product_attention(t[0], t[1], t[2], none, 0.0, true);
  });
  add("Scaled", heads, [=](const auto& t) {
    return at::scaled_dot_product_attention(t[0], t[1], t[2], none, 0.0, false, 0.3);
  });
  add("CausalScaled", heads, [=](const auto& t) {
    return at::scaled_dot_product_attention(t[0], t[1], t[2], none, 0.0, true, 0.3);
  });
  add("Masked", heads, [=](const auto& t) {
    return at::scaled_dot_product_attention(t[0], t[1], t[2], mask(t[0]));
  });
  add("Biased", joined(heads, drawn({{2, 1, 3, 5}})), [=](const auto& t) {
    return at::scaled_dot_product_attention(t[0], t[1], t[2], t[3], 0.0, false, 0.7);
  });
  add("WithARowOfNone", heads, [=](const auto& t) {
    const Tensor sees = torch::ones({3, 5}, at::kBool).tril(-1).to(t[0].device());
    return at::scaled_dot_product_attention(t[0], t[1], t[2], sees);
  });
  add("Grouped", grouped, [=](const auto& t) {
    return at::scaled_dot_product_attention(t[0], t[1], t[2], none, 0.0, true, {}, true);
  });
  add("OfRows", drawn({{3, 6}, {5, 6}, {5, 6}}),
      [=](const auto& t) { return at::scaled_dot_product_attention(t[0], t[1], t[2]); });
  add("AllDropped", heads,
      [=](const auto& t) { return at::scaled_dot_product_attention(t[0], t[1], t[2], none, 1.0); });
}

}  // namespace

ModuleCases attention_modules() {
  ModuleCases all;
  add_attentions(all);
  add_products(all);
  return all;
}

ModuleCases transformer_modules() {
  const auto source = drawn({{5, 2, 8}});
  const auto both = drawn({{4, 2, 8}, {5, 2, 8}});
  using EncoderLayer = nn::TransformerEncoderLayerOptions;
  using DecoderLayer = nn::TransformerDecoderLayerOptions;
  const auto encoder = EncoderLayer(8, 2).dim_feedforward(6).dropout(0);
  const auto decoder = DecoderLayer(8, 2).dim_feedforward(6).dropout(0);
  const auto celu = [](const Tensor& x) { return torch::celu(x); };
  const auto whole = nn::TransformerOptions(8, 2)
                         .num_encoder_layers(1)
                         .num_decoder_layers(1)
                         .dim_feedforward(6)
                         .dropout(0);
  const auto memory_mask = [](const Tensor& x) {
    return torch::zeros({4, 5}).index_put_({0, 4}, -2.0).to(x.options());
  };
  const auto norm = [] { return nn::AnyModule(nn::LayerNorm(nn::LayerNormOptions({8}))); };
  return {
      MODULE("EncoderLayerGelu",
             nn::TransformerEncoderLayer(EncoderLayer(encoder).activation(torch::kGELU)), source,
             m->forward(t[0], causal(t[0], 5), padding_like(t[0]))),
      MODULE("EncoderLayerOfAFunction",
             nn::TransformerEncoderLayer(EncoderLayer(encoder).activation(celu)), source,
             m->forward(t[0])),
      MODULE("DecoderLayerMasked", nn::TransformerDecoderLayer(decoder), both,
             m->forward(t[0], t[1], causal(t[0], 4), memory_mask(t[0]),
                        padding_like(t[0]).slice(1, 0, 4), padding_like(t[0]))),
      MODULE("DecoderLayerGelu",
             nn::TransformerDecoderLayer(DecoderLayer(decoder).activation(torch::kGELU)), both,
             m->forward(t[0], t[1])),
      MODULE("EncoderNormed",
             nn::TransformerEncoder(nn::TransformerEncoderOptions(encoder, 2).norm(norm())), source,
             m->forward(t[0], causal(t[0], 5), padding_like(t[0]))),
      MODULE("DecoderNormed",
             nn::TransformerDecoder(nn::TransformerDecoderOptions(decoder, 2).norm(norm())), both,
             m->forward(t[0], t[1], causal(t[0], 4))),
      MODULE("Transformer", nn::Transformer(whole), both, m->forward(t[1], t[0])),
      MODULE("TransformerMasked",
             nn::Transformer(nn::TransformerOptions(whole).activation(torch::kGELU)), both,
             m->forward(t[1], t[0], causal(t[0], 5), causal(t[0], 4), memory_mask(t[0]),
                        padding_like(t[0]), padding_like(t[0]).slice(1, 0, 4), padding_like(t[0]))),
      MODULE("TransformerOfOnesOwnParts",
             nn::Transformer(nn::TransformerOptions(8, 2)
                                 .custom_encoder(nn::AnyModule(nn::TransformerEncoder(
                                     nn::TransformerEncoderOptions(encoder, 1).norm(norm()))))
                                 .custom_decoder(nn::AnyModule(nn::TransformerDecoder(
                                     nn::TransformerDecoderOptions(decoder, 1).norm(norm()))))),
             both, m->forward(t[1], t[0], causal(t[0], 5))),
      random_in_training(MODULE("TransformerDropout",
                                nn::Transformer(nn::TransformerOptions(whole).dropout(0.2)), both,
                                m->forward(t[1], t[0])))};
}

}  // namespace levin::test
