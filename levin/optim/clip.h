#pragma once
// Gradient clipping, by norm and by value; nothing waits for the device.
// Stands between backward and the optimizer's step.

#include <ATen/core/Tensor.h>

#include <vector>

#include "levin/base/export.h"
#include "levin/module/parameters.h"

namespace levin::optim {

/// Scales the gradients so that the norm of all of them together is at most max_norm, and returns
/// the norm they had (0-dim; 0 when there is no gradient): torch.nn.utils.clip_grad_norm_. As there
/// max_norm = 0 makes them zero, and a norm that is no number all of them no numbers. norm_type may
/// be infinity. Of a parameter that is divided over ranks (shard/leaf.h) the parts of all of them
/// count, and what several ranks have counts once; all ranks call it then, and get the same bits.
/// Throws Error "optim.clip" unless max_norm >= 0 and norm_type > 0, and for gradients
/// neither dense nor sparse.
LEVIN_API at::Tensor clip_grad_norm(const std::vector<NamedTensor>& parameters, double max_norm,
                                    double norm_type = 2.0);

/// Clamps each gradient value to [-clip_value, clip_value]: torch.nn.utils.clip_grad_value_. Throws
/// Error "optim.clip" unless clip_value >= 0, and as clip_grad_norm.
LEVIN_API void clip_grad_value(const std::vector<NamedTensor>& parameters, double clip_value);

/// Multiplies every gradient by factor.
LEVIN_API void scale_grad(const std::vector<NamedTensor>& parameters, double factor);
/// Divides every gradient by a number (0-dim tensor) that is not read; by 0 they become 0.
LEVIN_API void divide_grad(const std::vector<NamedTensor>& parameters, const at::Tensor& by);

}  // namespace levin::optim
