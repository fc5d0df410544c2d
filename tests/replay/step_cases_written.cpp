// Tensors that the host writes, in each call alike.
#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_written {

namespace F = torch::nn::functional;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using MakeMask = std::function<Tensor(const Tensor& x)>;

/// The mask comes from the host, the same in each step; the net sees x * mask.
StepCase masked(const std::string& name, const MakeMask& mask) {
  return {.name = name, .step = [mask](Own& own, const Batch& batch, int64_t) {
            return cross_entropy(own.net->forward(batch["x"] * mask(batch["x"])), batch);
          }};
}

/// Every second feature of the last dim, by accessor.
Tensor with_every_second(const Tensor& row, float value) {
  auto numbers = row.accessor<float, 1>();
  for (int64_t i = 0; i < numbers.size(0); i += 2) numbers[i] = value;
  return row;
}

struct DoubledByPointer : torch::autograd::Function<DoubledByPointer> {
  static Tensor forward(AutogradContext*, const Tensor& x) {
    const Tensor in = x.contiguous();
    Tensor out = torch::empty_like(in);
    for (int64_t i = 0; i < in.numel(); ++i) {
      out.data_ptr<float>()[i] = 2 * in.data_ptr<float>()[i];
    }
    return out;
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0] * 2};
  }
};

struct DoubledBackByPointer : torch::autograd::Function<DoubledBackByPointer> {
  static Tensor forward(AutogradContext*, const Tensor& x) { return x * 2; }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    const Tensor in = gradients[0].contiguous();
    Tensor out = torch::empty_like(in);
    for (int64_t i = 0; i < in.numel(); ++i) {
      out.data_ptr<float>()[i] = 2 * in.data_ptr<float>()[i];
    }
    return {out};
  }
};

/// Its forward fills a mask on the host and saves it.
struct MaskedByHost : torch::autograd::Function<MaskedByHost> {
  static Tensor forward(AutogradContext* context, const Tensor& x) {
    const Tensor mask = with_every_second(torch::ones({x.size(1)}), 0.5F);
    context->save_for_backward({mask});
    return x * mask;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {gradients[0] * context->get_saved_variables()[0]};
  }
};

std::vector<StepCase> all() {
  return {
      masked("MaskByAccessorOnZeros",
             [](const Tensor&) { return with_every_second(torch::zeros({6}), 1.0F); }),
      masked("MaskByAccessorOnOnes",
             [](const Tensor&) { return with_every_second(torch::ones({6}), 0.0F); }),
      masked("MaskByAccessorOnFull",
             [](const Tensor&) { return with_every_second(torch::full({6}, 0.5), 2.0F); }),
      masked("MaskByAccessorOnEmpty",
             [](const Tensor&) {
               const Tensor mask = torch::empty({6});
               auto numbers = mask.accessor<float, 1>();
               for (int64_t i = 0; i < 6; ++i) numbers[i] = static_cast<float>(i) / 6;
               return mask;
             }),
      masked("MaskByAccessorOnArange",
             [](const Tensor&) { return with_every_second(torch::arange(6.0F), 7.0F); }),
      masked("MaskByAccessorOnRand",
             [](const Tensor&) { return with_every_second(torch::rand({6}), 0.0F); }),
      masked("MaskByAccessorOnClone",
             [](const Tensor& x) { return with_every_second(x[0].detach().clone().abs(), 1.0F); }),
      masked("MaskByAccessorOnEmptyLike",
             [](const Tensor& x) {
               const Tensor mask = torch::empty_like(x);
               auto numbers = mask.accessor<float, 2>();
               for (int64_t i = 0; i < mask.size(0); ++i) {
                 for (int64_t j = 0; j < mask.size(1); ++j) numbers[i][j] = i % 2 == j % 2;
               }
               return mask;
             }),
      masked("MaskByAccessorInAView",
             [](const Tensor& x) {
               const Tensor mask = torch::ones_like(x);
               with_every_second(mask[0], 0.0F);
               with_every_second(mask[3], 3.0F);
               return mask;
             }),
      masked("MaskByDataPointer",
             [](const Tensor&) {
               Tensor mask = torch::zeros({6});
               for (int64_t i = 0; i < 3; ++i) mask.data_ptr<float>()[i] = 2;
               return mask;
             }),
      masked("MaskByMemcpy",
             [](const Tensor&) {
               const std::array<float, 6> numbers = {1, 0, 2, 0, 3, 0};
               Tensor mask = torch::zeros({6});
               std::memcpy(mask.mutable_data_ptr(), numbers.data(), sizeof numbers);
               return mask;
             }),
      masked("MaskByIota",
             [](const Tensor&) {
               Tensor mask = torch::empty({6});
               std::iota(mask.data_ptr<float>(), mask.data_ptr<float>() + 6, 1.0F);
               return mask / 6;
             }),
      masked("MaskOfBoolsByAccessor",
             [](const Tensor&) {
               const Tensor mask = torch::zeros({6}, torch::kBool);
               auto flags = mask.accessor<bool, 1>();
               for (int64_t i = 0; i < 4; ++i) flags[i] = true;
               return mask.to(torch::kFloat);
             }),
      masked("MaskOfBytesByMemset",
             [](const Tensor&) {
               Tensor mask = torch::zeros({6}, torch::kByte);
               std::memset(mask.mutable_data_ptr(), 1, 3);
               return mask.to(torch::kFloat);
             }),
      masked("MaskByAccessorThenWrittenByAnOperator",
             [](const Tensor&) {
               Tensor mask = with_every_second(torch::zeros({6}), 1.0F);
               return mask.add_(0.25);
             }),
      masked("MaskWrittenAgainAfterItsFirstUse",
             [](const Tensor& x) {
               const Tensor mask = torch::ones({6});
               const Tensor before = x * mask;
               with_every_second(mask, 0.0F);
               return before.abs() + mask;
             }),
      masked("MaskByAKernelOfTheUsers",
             [](const Tensor& x) {
               Tensor mask = at::empty(x.sizes(), x.options());
               float* out = mask.data_ptr<float>();
               at::parallel_for(0, mask.numel(), 8, [out](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i)
                   out[i] = 1.0F / static_cast<float>(1 + i % 4);
               });
               return mask;
             }),
      masked("DoubledByPointerInACustomFunction",
             [](const Tensor& x) { return DoubledByPointer::apply(x); }),
      masked("MaskSavedByACustomFunction", [](const Tensor& x) { return MaskedByHost::apply(x); }),
      {.name = "HiddenDoubledByPointerInACustomFunction",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             return cross_entropy(DoubledByPointer::apply(own.net->forward(batch["x"])), batch);
           }},
      {.name = "BackwardByPointerInACustomFunction",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             return cross_entropy(DoubledBackByPointer::apply(own.net->forward(batch["x"])), batch);
           }},
      {.name = "CausalMaskByAccessor",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor x = batch["x"].unsqueeze(2);
             const Tensor mask = torch::zeros({6, 6});
             auto numbers = mask.accessor<float, 2>();
             for (int64_t i = 0; i < 6; ++i) {
               for (int64_t j = i + 1; j < 6; ++j) numbers[i][j] = -1e9F;
             }
             const Tensor scores = torch::matmul(x, x.transpose(1, 2)) + mask;
             const Tensor mixed = torch::matmul(scores.softmax(-1), x).squeeze(2);
             return cross_entropy(own.net->forward(mixed), batch);
           }},
      {.name = "PositionsByAccessor",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor positions = torch::zeros({6}, torch::kLong);
             auto numbers = positions.accessor<int64_t, 1>();
             for (int64_t i = 0; i < 6; ++i) numbers[i] = 5 - i;
             return cross_entropy(own.net->forward(batch["x"].index_select(1, positions)), batch);
           }},
      {.name = "SinusoidsByAccessor",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor table = torch::empty({1, 6});
             auto numbers = table.accessor<float, 2>();
             for (int64_t i = 0; i < 6; ++i) {
               numbers[0][i] = std::sin(static_cast<float>(i) / 10.0F);
             }
             return cross_entropy(own.net->forward(batch["x"] + table), batch);
           }},
      {.name = "ClassWeightsByAccessor",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor weights = torch::ones({3});
             weights.accessor<float, 1>()[2] = 4;
             return F::cross_entropy(own.net->forward(batch["x"]), batch["y"],
                                     F::CrossEntropyFuncOptions().weight(weights));
           }},
      {.name = "LossWrittenInASlot",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor factors = torch::empty({2});
             factors.data_ptr<float>()[0] = 0.25F;
             factors.data_ptr<float>()[1] = 0.75F;
             const Tensor loss = plain_loss(own, batch);
             return loss * factors[0] + loss.square() * factors[1];
           }},
      {.name = "GradientsHalvedByPointer",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             own.optimizer().zero_grad();
             const Tensor loss = plain_loss(own, batch);
             own.manual_backward(loss);
             for (const Tensor& parameter : own.parameters()) {
               auto* numbers = parameter.grad().data_ptr<float>();
               for (int64_t i = 0; i < parameter.numel(); ++i) numbers[i] *= 0.5F;
             }
             own.optimizer().step();
             return loss;
           },
       .optimizer = [](Own&) { return optim::sgd({.lr = 0.1}); },
       .is_manual = true},
      {.name = "WeightsClampedByPointer",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             for (const Tensor& parameter : own.parameters()) {
               auto* numbers = parameter.data_ptr<float>();
               for (int64_t i = 0; i < parameter.numel(); ++i) {
                 numbers[i] = std::clamp(numbers[i], -0.2F, 0.2F);
               }
             }
             return plain_loss(own, batch);
           }},
      {.name = "BufferCountedByAccessor",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             own.named_buffers()["count"].accessor<float, 1>()[0] += 1;
             return plain_loss(own, batch) / own.named_buffers()["count"][0];
           },
       .build =
           [](Own& own) {
             own.net = own.register_module("net", torch::nn::Sequential(torch::nn::Linear(6, 3)));
             own.register_buffer("count", torch::zeros({1}));
           }},
      {.name = "InputsCloneWrittenByAccessor",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor x = batch["x"].clone();
             auto numbers = x.accessor<float, 2>();
             for (int64_t i = 0; i < x.size(0); ++i) numbers[i][0] = 0;
             return cross_entropy(own.net->forward(x), batch);
           }},
      {.name = "InputWrittenByAccessor",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             auto numbers = batch["x"].accessor<float, 2>();
             for (int64_t i = 0; i < batch.size(); ++i) numbers[i][0] = 0;
             return plain_loss(own, batch);
           }},
  };
}

}  // namespace rows_of_step_written

std::vector<StepCase> steps_with_host_writes() { return rows_of_step_written::all(); }

}  // namespace levin::test
