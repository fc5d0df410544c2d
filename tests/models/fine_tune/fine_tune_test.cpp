#include "levin/models/fine_tune/fine_tune.h"

#include <gtest/gtest.h>

namespace levin::models {
namespace {

TEST(FineTune, BiasesAndNormsDoNotDecay) {
  for (const char* name :
       {"net.a.bias", "bert.encoder.layer.0.output.LayerNorm.weight", "model.norm.weight",
        "model.layers.0.input_layernorm.weight", "layers.1.self_attn.q_norm.weight",
        "layers.0.sa_layer_norm.weight", "norm.weight"})
    EXPECT_FALSE(decays(name)) << name;
  for (const char* name : {"net.q_proj.weight", "a.lora_A.weight", "a.normal.weight"})
    EXPECT_TRUE(decays(name)) << name;
}

}  // namespace
}  // namespace levin::models
