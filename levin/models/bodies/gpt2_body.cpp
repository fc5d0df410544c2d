#include "levin/models/bodies/gpt2_body.h"

#include <ATen/ops/dropout.h>

#include <vector>

#include "levin/base/check.h"
#include "levin/models/bodies/gpt2_block.h"
#include "levin/module/wrap.h"

namespace levin::models {
namespace {

class GPT2Body : public Body {
 public:
  GPT2Body(torch::nn::Module& root, const std::string& prefix, const GPT2Config& config,
           bool is_causal)
      : config_(config), is_causal_(is_causal) {
    const double deviation = config.initializer_range;
    wte_ = place(root, joined(prefix, "wte"),
                 std::make_shared<Embedding>(config.vocab_size, config.n_embd, deviation));
    wpe_ = place(root, joined(prefix, "wpe"),
                 std::make_shared<Embedding>(config.n_positions, config.n_embd, deviation));
    for (int64_t i = 0; i < config.n_layer; ++i) {
      blocks_.push_back(place(root, joined(prefix, "h." + std::to_string(i)),
                              wrap(std::make_shared<GPT2Block>(config, i))));
    }
    ln_f_ = place(root, joined(prefix, "ln_f"),
                  std::make_shared<LayerNorm>(config.n_embd, config.layer_norm_epsilon));
  }

  at::Tensor forward(const Inputs& inputs) override {
    LEVIN_CHECK(
        inputs.document.defined() || inputs.input_ids.size(1) <= config_.n_positions,
        "models.length",
        "got {} tokens, wanted at most n_positions = {}: the model has no more positions; cut "
        "the text",
        inputs.input_ids.size(1), config_.n_positions);
    auto x = wte_->forward(inputs.input_ids) + wpe_->forward(inputs.positions());
    if (inputs.token_type_ids.defined()) x = x + wte_->forward(inputs.token_type_ids);
    x = at::dropout(x, config_.embd_pdrop, wte_->is_training());
    const auto mask = std::make_shared<AttentionMask>(inputs, is_causal_);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      LayerCache* const cache = inputs.cache != nullptr ? &inputs.cache->layer(i) : nullptr;
      const auto block = [&block = *blocks_[i], mask, cache](const at::Tensor& in) {
        return block.forward(in, *mask, cache);
      };
      x = run(*blocks_[i], block, x);
    }
    if (inputs.cache != nullptr) inputs.cache->advance(inputs.input_ids.size(1));
    return ln_f_->forward(x);
  }

  const at::Tensor& embedding() const override { return wte_->weight(); }
  bool is_causal() const override { return is_causal_; }
  int64_t longest() const override { return config_.n_positions; }

 private:
  GPT2Config config_;
  bool is_causal_;
  std::shared_ptr<Embedding> wte_, wpe_;
  std::vector<std::shared_ptr<GPT2Block>> blocks_;
  std::shared_ptr<LayerNorm> ln_f_;
};

}  // namespace

std::unique_ptr<Body> make_gpt2(torch::nn::Module& root, const std::string& prefix,
                                const GPT2Config& config, bool is_causal) {
  check_gpt2(config);
  return std::make_unique<GPT2Body>(root, prefix, config, is_causal);
}

}  // namespace levin::models
