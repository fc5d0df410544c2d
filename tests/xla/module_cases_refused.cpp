// What LibTorch's C++ layers refuse, whatever the device.
#include "tests/xla/module_cases.h"

namespace levin::test {

ModuleCases refused_modules() {
  namespace nn = torch::nn;
  const auto tokens_and_weights = joined(places_below(9, {3, 4}), drawn({{3, 4}}));
  const auto bag = [](nn::EmbeddingBagMode mode) {
    return nn::EmbeddingBag(nn::EmbeddingBagOptions(9, 4).mode(mode));
  };
  return {
      MODULE("EmbeddingBagMeanWeighed", bag(torch::kMean), tokens_and_weights,
             m->forward(t[0], {}, t[1])),
      MODULE("EmbeddingBagMaxWeighed", bag(torch::kMax), tokens_and_weights,
             m->forward(t[0], {}, t[1])),
      MODULE("EmbeddingBagMaxSparse",
             nn::EmbeddingBag(nn::EmbeddingBagOptions(9, 4).mode(torch::kMax).sparse(true)),
             places_below(9, {3, 4}), m->forward(t[0])),
      MODULE("EmbeddingBagMaxByFrequency",
             nn::EmbeddingBag(
                 nn::EmbeddingBagOptions(9, 4).mode(torch::kMax).scale_grad_by_freq(true)),
             places_below(9, {3, 4}), m->forward(t[0])),
      MODULE("AttentionOfKeysWiderThanValues",
             nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).kdim(6).vdim(4)),
             drawn({{4, 2, 8}, {5, 2, 6}, {5, 2, 4}}), m->forward(t[0], t[1], t[2])),
      MODULE("AttentionWithAMaskOfEachHead", nn::MultiheadAttention(8, 2),
             drawn({{4, 2, 8}, {5, 2, 8}, {5, 2, 8}}),
             m->forward(t[0], t[1], t[2], {}, true,
                        torch::zeros({4, 4, 5}, t[0].options().requires_grad(false)))),
  };
}

}  // namespace levin::test
