// Tensors that the host writes, that the step keeps, or that share memory: each call does the same.
#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_memory {

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

std::vector<StepCase> written_by_the_host() {
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

/// A row that keeps something of the step; the loss is the plain one.
StepCase keeping(const std::string& name,
                 const std::function<void(Own&, const Tensor& hidden, const Tensor& loss)>& keep,
                 Wanted wanted = Wanted::kEqual) {
  return {.name = name,
          .step =
              [keep](Own& own, const Batch& batch, int64_t) {
                const Tensor hidden = own.net->forward(batch["x"]);
                const Tensor loss = cross_entropy(hidden, batch);
                keep(own, hidden, loss);
                return loss;
              },
          .wanted = wanted};
}

void fill(const Tensor& loss, Tensor& place) { place = loss.detach() * 2; }

StepCase manual(const std::string& name, const Step& after_backward) {
  return {.name = name,
          .step =
              [after_backward](Own& own, const Batch& batch, int64_t index) {
                own.optimizer().zero_grad();
                const Tensor loss = plain_loss(own, batch);
                own.manual_backward(loss);
                after_backward(own, batch, index);
                own.optimizer().step();
                return loss;
              },
          .is_manual = true};
}

/// Keeps the gradient of its batch, as this leaf.
StepCase gradient_of(const std::string& name, const std::function<Tensor(const Tensor&)>& leaf) {
  return {.name = name,
          .step =
              [leaf](Own& own, const Batch& batch, int64_t) {
                const Tensor x = leaf(batch["x"]);
                own.optimizer().zero_grad();
                const Tensor loss = cross_entropy(own.net->forward(x), batch);
                own.manual_backward(loss);
                own.kept["gradient"] = x.grad();
                own.optimizer().step();
                return loss;
              },
          .is_manual = true};
}

std::vector<StepCase> kept() {
  return {
      keeping(
          "KeepsItsLoss",
          [](Own& own, const Tensor&, const Tensor& loss) { own.kept["loss"] = loss; },
          Wanted::kReplayed),
      keeping(
          "KeepsItsLossDetached",
          [](Own& own, const Tensor&, const Tensor& loss) { own.kept["loss"] = loss.detach(); },
          Wanted::kReplayed),
      keeping("KeepsItsLossCloned",
              [](Own& own, const Tensor&, const Tensor& loss) {
                own.kept["loss"] = loss.detach().clone();
              }),
      keeping("KeepsItsLossInDouble",
              [](Own& own, const Tensor&, const Tensor& loss) {
                own.kept["loss"] = loss.detach().to(torch::kDouble);
              }),
      keeping("KeepsItsLogits",
              [](Own& own, const Tensor& hidden, const Tensor&) { own.kept["logits"] = hidden; }),
      keeping("KeepsPredictions",
              [](Own& own, const Tensor& hidden, const Tensor&) {
                own.kept["predictions"] = hidden.argmax(1);
              }),
      keeping("KeepsARowOfItsLogits", [](Own& own, const Tensor& hidden,
                                         const Tensor&) { own.kept["row"] = hidden.detach()[2]; }),
      keeping("KeepsTwoNamesOfOne",
              [](Own& own, const Tensor& hidden, const Tensor&) {
                own.kept["a"] = hidden.detach();
                own.kept["b"] = own.kept["a"].view({-1});
              }),
      keeping("KeepsAMapOfTensors",
              [](Own& own, const Tensor& hidden, const Tensor& loss) {
                for (int64_t i = 0; i < 3; ++i)
                  own.kept["class" + std::to_string(i)] = hidden.select(1, i).mean();
                own.kept["loss"] = loss.detach();
              }),
      keeping("KeepsByAnOutParameter",
              [](Own& own, const Tensor&, const Tensor& loss) { fill(loss, own.kept["twice"]); }),
      keeping(
          "KeepsAListThatGrows",
          [](Own& own, const Tensor&, const Tensor& loss) { own.list.push_back(loss.detach()); },
          Wanted::kRefused),
      keeping(
          "KeepsAListOfLogits",
          [](Own& own, const Tensor& hidden, const Tensor&) {
            own.list.push_back(hidden.detach().clone());
          },
          Wanted::kRefused),
      keeping("KeepsTheLastThree",
              [](Own& own, const Tensor&, const Tensor& loss) {
                own.list.push_back(loss.detach());
                if (own.list.size() > 3) own.list.erase(own.list.begin());
              }),
      keeping("KeepsARunningSum",
              [](Own& own, const Tensor&, const Tensor& loss) {
                Tensor& sum = own.kept["sum"];
                sum = sum.defined() ? sum + loss.detach() : loss.detach();
              }),
      keeping("KeepsASumInPlace",
              [](Own& own, const Tensor&, const Tensor& loss) {
                Tensor& sum = own.kept["sum"];
                if (!sum.defined()) sum = torch::zeros({});
                sum.add_(loss.detach());
              }),
      keeping("KeepsTheSmallestLoss",
              [](Own& own, const Tensor&, const Tensor& loss) {
                Tensor& best = own.kept["best"];
                best = best.defined() ? torch::minimum(best, loss.detach()) : loss.detach();
              }),
      keeping("KeepsItsWeights",
              [](Own& own, const Tensor&, const Tensor&) {
                own.kept["weights"] = own.parameters()[0].detach();
              }),
      keeping("KeepsACopyOfItsWeights",
              [](Own& own, const Tensor&, const Tensor&) {
                own.kept["weights"] = own.parameters()[0].detach().clone();
              }),
      keeping("KeepsAndLogsItsLoss",
              [](Own& own, const Tensor&, const Tensor& loss) {
                own.log("loss", loss);
                own.kept["loss"] = loss.detach();
              }),
      keeping("KeepsAConstant",
              [](Own& own, const Tensor&, const Tensor&) { own.kept["ones"] = torch::ones({3}); }),
      keeping("KeepsConfusion",
              [](Own& own, const Tensor& hidden, const Tensor&) {
                Tensor& counts = own.kept["counts"];
                const Tensor now = torch::one_hot(hidden.argmax(1), 3).sum(0);
                counts = counts.defined() ? counts + now : now;
              }),
      {.name = "KeepsItsBatch",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             own.kept["x"] = batch["x"];
             return plain_loss(own, batch);
           }},
      {.name = "KeepsTheBatchBefore",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             Tensor loss = plain_loss(own, batch);
             if (own.kept["x"].defined())
               loss = loss + own.net->forward(own.kept["x"]).square().mean();
             own.kept["x"] = batch["x"].clone();
             return loss;
           }},
      {.name = "DistilsFromTheStepBefore",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor logits = own.net->forward(batch["x"]);
             Tensor& before = own.kept["before"];
             Tensor loss = cross_entropy(logits, batch);
             if (before.defined()) loss = loss + F::mse_loss(logits, before);
             before = logits.detach();
             return loss;
           }},
      {.name = "KeepsAHiddenState",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             Tensor& hidden = own.kept["hidden"];
             if (!hidden.defined()) hidden = torch::zeros({batch.size(), 8});
             const Tensor next =
                 own.part<torch::nn::GRUCellImpl>("cell").forward(batch["x"], hidden);
             hidden = next.detach();
             return cross_entropy(own.part<torch::nn::LinearImpl>("out").forward(next), batch);
           },
       .build =
           [](Own& own) {
             own.register_module("cell", torch::nn::GRUCell(6, 8));
             own.register_module("out", torch::nn::Linear(8, 3));
           }},
      {.name = "KeepsABaselineOfItsLoss",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor loss = plain_loss(own, batch);
             Tensor& baseline = own.kept["baseline"];
             baseline = baseline.defined() ? 0.9 * baseline + 0.1 * loss.detach() : loss.detach();
             return loss * (loss.detach() - baseline + 1);
           }},
      {.name = "KeepsABaselineByCopy",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor loss = plain_loss(own, batch);
             const Tensor baseline = own.named_buffers()["baseline"];
             const Tensor factor = loss.detach() - baseline + 1;
             baseline.copy_(0.9 * baseline + 0.1 * loss.detach());
             return loss * factor;
           },
       .wanted = Wanted::kReplayed,
       .build =
           [](Own& own) {
             own.net = own.register_module("net", torch::nn::Sequential(torch::nn::Linear(6, 3)));
             own.register_buffer("baseline", torch::ones({}));
           }},
      manual("KeepsTheNormOfItsGradients",
             [](Own& own, const Batch&, int64_t) {
               Tensor sum = torch::zeros({});
               for (const Tensor& parameter : own.parameters())
                 sum = sum + parameter.grad().square().sum();
               own.kept["norm"] = sum.sqrt();
               return sum;
             }),
      manual("KeepsACopyOfAGradient",
             [](Own& own, const Batch&, int64_t) {
               return own.kept["gradient"] = own.parameters()[0].grad().clone();
             }),
      manual("KeepsAGradient",
             [](Own& own, const Batch&, int64_t) {
               return own.kept["gradient"] = own.parameters()[0].grad();
             }),
      manual("KeepsTheGradientBefore",
             [](Own& own, const Batch&, int64_t) {
               const Tensor gradient = own.parameters()[0].grad();
               const Tensor now = gradient.clone();
               if (own.kept["g"].defined()) gradient.add_(own.kept["g"], 0.5);
               return own.kept["g"] = now;
             }),
      {.name = "KeepsTheNormOfClipping",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             own.optimizer().zero_grad();
             const Tensor loss = plain_loss(own, batch);
             own.manual_backward(loss);
             own.numbers["norm"] = torch::nn::utils::clip_grad_norm_(own.parameters(), 0.1);
             own.kept["norm"] = torch::full({}, own.numbers["norm"]);
             own.optimizer().step();
             return loss;
           },
       .is_manual = true},
      gradient_of("GradientOfItsInput",
                  [](const Tensor& x) { return x.detach().requires_grad_(); }),
      gradient_of("GradientOfItsInputItself", [](Tensor x) { return x.requires_grad_(); }),
      {.name = "AttacksByTheGradientOfItsInput",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor x = batch["x"].clone().requires_grad_();
             cross_entropy(own.net->forward(x), batch).backward();
             own.optimizer().zero_grad();
             const Tensor attacked = (x + 0.1 * x.grad().sign()).detach();
             const Tensor loss = cross_entropy(own.net->forward(attacked), batch);
             own.manual_backward(loss);
             own.optimizer().step();
             return loss;
           },
       .is_manual = true},
      {.name = "AttacksInSeveralSteps",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             Tensor x = batch["x"].clone();
             for (int64_t i = 0; i < 2; ++i) {
               x = x.detach().requires_grad_();
               const Tensor loss = cross_entropy(own.net->forward(x), batch);
               x = x + 0.05 * torch::autograd::grad({loss}, {x})[0].sign();
             }
             return cross_entropy(own.net->forward(x.detach()), batch);
           },
       .wanted = Wanted::kReplayed},
      {.name = "LossIsAViewOfWhatIsLogged",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor losses =
                 torch::stack({plain_loss(own, batch), own.parameters()[0].norm()});
             own.log("norm", losses[1]);
             own.kept["losses"] = losses.detach();
             return losses[0];
           }},
      {.name = "MemoryBankByATensorsPlace",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor bank = own.named_buffers()["bank"], place = own.named_buffers()["place"];
             const Tensor logits = own.net->forward(batch["x"]);
             const Tensor loss =
                 cross_entropy(logits, batch) + (logits - bank.mean(0)).square().mean();
             bank.index_copy_(0, place, logits.detach().mean(0, true));
             place.add_(1).remainder_(4);
             return loss;
           },
       .wanted = Wanted::kReplayed,
       .build =
           [](Own& own) {
             own.net = own.register_module("net", torch::nn::Sequential(torch::nn::Linear(6, 3)));
             own.register_buffer("bank", torch::zeros({4, 3}));
             own.register_buffer("place", torch::zeros({1}, torch::kLong));
           }},
  };
}

}  // namespace rows_of_step_memory

std::vector<StepCase> steps_with_memory() {
  using namespace rows_of_step_memory;  // NOLINT
  std::vector<StepCase> all = written_by_the_host(), more = kept();
  for (StepCase& one : more) all.push_back(std::move(one));
  return all;
}

}  // namespace levin::test
