#pragma once
// The adapter that finetuning.cpp and gpu/training.cpp train; adapter.py is the same in Python.

#include <torch/torch.h>

#include <string>

#include "levin/models/lora.h"
#include "levin/models/pretrained.h"

namespace peers {

inline void adapt(levin::models::Pretrained& net, int64_t r, const std::string& targets) {
  levin::lora::add(
      net, {.r = r, .lora_alpha = 2.0 * static_cast<double>(r), .target_modules = {targets}});
}

/// Equal numbers on both sides, in a head as in the adapter.
inline void fill_adapter(levin::models::Pretrained& net) {
  const at::NoGradGuard no_grad;
  for (auto& parameter : net.named_parameters()) {
    at::Tensor& values = parameter.value();
    if (parameter.key().starts_with("classifier")) values.fill_(0.01);
    if (parameter.key() == "classifier.weight") values[1].neg_();
    if (parameter.key().find("lora_A") != std::string::npos)
      values.copy_(at::arange(values.numel()).to(at::kFloat).sin().mul(0.05).view_as(values));
  }
}

}  // namespace peers
