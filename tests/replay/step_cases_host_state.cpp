// What the host decides otherwise from some step on, where two steps before were alike: found when
// the step is next run by its code.
#include <random>

#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_host_state {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kLater = 7;  ///< batch of the run's 72

StepCase later(const std::string& name, const Step& step,
               const std::function<void(Own&, Trainer&, int64_t)>& before = {},
               const std::function<void(Own&)>& build = {}) {
  return {.name = name,
          .step = step,
          .wanted = Wanted::kFoundLater,
          .build = build,
          .before = before,
          .epochs = 12};
}

void set_number_later(Own& own, Trainer&, int64_t batch) {
  own.numbers["factor"] = batch < kLater ? 1.0 : 3.0;
}
void count_batches(Own& own, Trainer&, int64_t batch) { own.counts["batch"] = batch; }

/// Twice in its backward pass.
struct Scaled : torch::autograd::Function<Scaled> {
  static Tensor forward(AutogradContext* context, const Tensor& x, double factor) {
    context->saved_data["factor"] = factor;
    return x.clone();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {gradients[0] * context->saved_data["factor"].toDouble(), Tensor()};
  }
};

int64_t calls_of_static = 0;

/// The step optimizes by itself, with gradients that were changed.
StepCase manual_later(const std::string& name, const std::function<void(Own&)>& change) {
  StepCase row = later(
      name,
      [change](Own& own, const Batch& batch, int64_t) {
        own.optimizer().zero_grad();
        const Tensor loss = plain_loss(own, batch);
        own.manual_backward(loss);
        change(own);
        own.optimizer().step();
        return loss;
      },
      set_number_later);
  row.optimizer = [](Own&) { return optim::sgd({.lr = 0.1}); };
  row.is_manual = true;
  return row;
}

/// Steps whose number of the host is set by others.
std::vector<StepCase> set_from_outside() {
  return {
      later(
          "AFactorIsSetLater",
          [](Own& own, const Batch& batch, int64_t) {
            return plain_loss(own, batch) * own.numbers["factor"];
          },
          set_number_later),
      later(
          "AFactorIsSetByTheEpoch",
          [](Own& own, const Batch& batch, int64_t) {
            return plain_loss(own, batch) * own.numbers["factor"];
          },
          [](Own& own, Trainer& trainer, int64_t) {
            own.numbers["factor"] = 1.0 + static_cast<double>(trainer.current_epoch());
          }),
      later(
          "AFlagIsSetLater",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor loss = plain_loss(own, batch);
            return own.numbers["factor"] > 2 ? loss.square() : loss;
          },
          set_number_later),
      later(
          "AFactorInAHookIsSetLater",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor logits = own.net->forward(batch["x"]);
            logits.register_hook(
                [&own](const Tensor& gradient) { return gradient * own.numbers["factor"]; });
            return cross_entropy(logits, batch);
          },
          set_number_later),
      later(
          "AFactorInAParametersHookIsSetLater",
          [](Own& own, const Batch& batch, int64_t) { return plain_loss(own, batch); },
          [](Own& own, Trainer& trainer, int64_t batch) {
            set_number_later(own, trainer, batch);
            if (batch > 0) return;
            own.parameters()[0].register_hook(
                [&own](const Tensor& gradient) { return gradient * own.numbers["factor"]; });
          }),
      later(
          "AFactorOfACustomFunctionIsSetLater",
          [](Own& own, const Batch& batch, int64_t) {
            return cross_entropy(Scaled::apply(own.net->forward(batch["x"]), own.numbers["factor"]),
                                 batch);
          },
          set_number_later),
      later(
          "ANoiseIsSetLater",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor noise = torch::randn_like(batch["x"]) * (0.1 * own.numbers["factor"]);
            return cross_entropy(own.net->forward(batch["x"] + noise), batch);
          },
          set_number_later),
      later(
          "ADropoutIsSetLater",
          [](Own& own, const Batch& batch, int64_t) {
            const double p = 0.2 * own.numbers["factor"];
            return cross_entropy(
                own.net->forward(F::dropout(batch["x"], F::DropoutFuncOptions().p(p))), batch);
          },
          set_number_later),
      later(
          "ASmoothingIsSetLater",
          [](Own& own, const Batch& batch, int64_t) {
            return F::cross_entropy(
                own.net->forward(batch["x"]), batch["y"],
                F::CrossEntropyFuncOptions().label_smoothing(0.1 * own.numbers["factor"]));
          },
          set_number_later),
      later(
          "AMarginIsSetLater",
          [](Own& own, const Batch& batch, int64_t) {
            return (plain_loss(own, batch) - 0.1 * own.numbers["factor"]).clamp_min(0.0) +
                   own.parameters()[0].square().sum();
          },
          set_number_later),
      later(
          "ALengthIsSetLater",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor x = batch["x"].clone();
            x.slice(1, 0, static_cast<int64_t>(own.numbers["factor"])).zero_();
            return cross_entropy(own.net->forward(x), batch);
          },
          set_number_later),
      manual_later("AClippingIsSetLater",
                   [](Own& own) {
                     for (const Tensor& parameter : own.parameters()) {
                       parameter.grad().clamp_(-0.01 * own.numbers["factor"], 1.0);
                     }
                   }),
      manual_later("AGradientIsDoubledByItsOwnCount",
                   [](Own& own) {
                     if (own.counts["calls"]++ == 8) own.parameters()[0].grad().mul_(2);
                   }),
      later(
          "AMomentumOfATeacherIsSetLater",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor teacher = own.named_buffers()["teacher"];
            const Tensor weight = own.net->parameters()[0];
            const double keep = 1 - 0.1 * own.numbers["factor"];
            teacher.mul_(keep).add_(weight.detach(), 1 - keep);
            return plain_loss(own, batch) + (weight - teacher).square().sum();
          },
          set_number_later,
          [](Own& own) {
            own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
            own.register_buffer("teacher", torch::zeros({3, 6}));
          }),
      later(
          "TensorsAreSwappedLater",
          [](Own& own, const Batch& batch, int64_t) {
            return (own.net->forward(batch["x"]) * own.kept["one"]).square().mean() +
                   plain_loss(own, batch);
          },
          [](Own& own, Trainer&, int64_t batch) {
            if (batch == 0) own.kept = {{"one", torch::ones({3})}, {"two", torch::full({3}, 4.0)}};
            if (batch == kLater) std::swap(own.kept["one"], own.kept["two"]);
          }),
      later(
          "PartsAreSwappedLater",
          [](Own& own, const Batch& batch, int64_t) {
            auto& layer = own.part<nn::LinearImpl>(own.numbers["factor"] > 2 ? "one" : "two");
            return cross_entropy(layer.forward(batch["x"]), batch);
          },
          set_number_later,
          [](Own& own) {
            own.register_module("one", nn::Linear(6, 3));
            own.register_module("two", nn::Linear(6, 3));
          }),
      later(
          "TheGraphIsCutLater",
          [](Own& own, const Batch& batch, int64_t) {
            Tensor hidden = own.part<nn::LinearImpl>("body").forward(batch["x"]);
            if (own.numbers["factor"] > 2) hidden = hidden.detach();
            return cross_entropy(own.part<nn::LinearImpl>("head").forward(hidden), batch);
          },
          set_number_later,
          [](Own& own) {
            own.register_module("body", nn::Linear(6, 6));
            own.register_module("head", nn::Linear(6, 3));
          }),
      later(
          "SomethingIsLoggedLater",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor loss = plain_loss(own, batch);
            if (own.numbers["factor"] > 2) own.log("later", loss * 2);
            return loss;
          },
          set_number_later),
      later(
          "TheLearntTemperatureIsFixedLater",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor temperature = own.named_parameters()["temperature"];
            const bool is_fixed = own.numbers["factor"] > 2;
            return cross_entropy(
                own.net->forward(batch["x"]) / (is_fixed ? temperature.detach() : temperature),
                batch);
          },
          set_number_later,
          [](Own& own) {
            own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
            own.register_parameter("temperature", torch::ones({1}));
          }),
  };
}

/// Steps that count, or draw, by themselves.
std::vector<StepCase> counted_by_the_step() {
  return {
      later("WarmsUpItsWeight",
            [](Own& own, const Batch& batch, int64_t) {
              own.numbers["beta"] = std::min(1.0, own.numbers["beta"] + 0.1);
              return plain_loss(own, batch) * own.numbers["beta"];
            }),
      later("WarmsUpItsWeightToAnEnd",
            [](Own& own, const Batch& batch, int64_t) {
              own.numbers["beta"] = std::min(1.0, own.numbers["beta"] + 0.5);
              return plain_loss(own, batch) * own.numbers["beta"];
            }),
      later("WarmsUpInStages",
            [](Own& own, const Batch& batch, int64_t) {
              const int64_t stage = std::min<int64_t>(own.counts["calls"]++ / 6, 2);
              return plain_loss(own, batch) * (0.5 + 0.25 * static_cast<double>(stage));
            }),
      later("FlipsAfterSixCalls",
            [](Own& own, const Batch& batch, int64_t) {
              const Tensor loss = plain_loss(own, batch);
              return own.counts["calls"]++ < 6 ? loss : loss.square();
            }),
      later("FlipsAfterTwelveCalls",
            [](Own& own, const Batch& batch, int64_t) {
              const Tensor loss = plain_loss(own, batch);
              return own.counts["calls"]++ < 12 ? loss : loss.square();
            }),
      later("EveryFifthCall",
            [](Own& own, const Batch& batch, int64_t) {
              const Tensor loss = plain_loss(own, batch);
              return own.counts["calls"]++ % 5 == 4 ? loss.square() : loss;
            }),
      later(
          "AStaticVariableCounts",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor loss = plain_loss(own, batch);
            return calls_of_static++ < 6 ? loss : loss * 2;
          },
          {}, [](Own&) { calls_of_static = 0; }),
      later("AHookCounts",
            [](Own& own, const Batch& batch, int64_t) {
              const Tensor logits = own.net->forward(batch["x"]);
              logits.register_hook([&own](const Tensor& gradient) {
                return gradient * (own.counts["calls"]++ < 6 ? 1.0 : 0.5);
              });
              return cross_entropy(logits, batch);
            }),
      later("ACoinThatFallsAlikeAtFirst",
            [](Own& own, const Batch& batch, int64_t) {
              // heads eight times, as happens
              std::mt19937 random(static_cast<uint32_t>(own.counts["calls"]));
              const bool tails = own.counts["calls"]++ >= 8 && random() % 2 == 0;
              const Tensor loss = plain_loss(own, batch);
              return tails ? loss * 2 : loss;
            }),
      later("TeacherForcingByACoin",
            [](Own& own, const Batch& batch, int64_t) {
              std::mt19937 random(static_cast<uint32_t>(7 * own.counts["calls"]++));
              const bool forced = random() % 4 != 0;
              const Tensor logits = own.net->forward(batch["x"]);
              const Tensor next = own.net->forward(forced ? batch["x"] * 2 : logits.repeat({1, 2}));
              return cross_entropy(logits, batch) + cross_entropy(next, batch);
            }),
      later("AugmentsByACoin",
            [](Own& own, const Batch& batch, int64_t) {
              std::mt19937 random(static_cast<uint32_t>(own.counts["calls"]++));
              const Tensor x = random() % 3 == 0 ? batch["x"].flip(1) : batch["x"];
              return cross_entropy(own.net->forward(x), batch);
            }),
      later(
          "DropsALayerByACoin",
          [](Own& own, const Batch& batch, int64_t) {
            Tensor x = own.part<nn::LinearImpl>("in").forward(batch["x"]).tanh();
            std::mt19937 random(static_cast<uint32_t>(3 * own.counts["calls"]++));
            if (random() % 5 != 0) x = x + own.part<nn::LinearImpl>("block").forward(x).tanh();
            return cross_entropy(own.part<nn::LinearImpl>("out").forward(x), batch);
          },
          {},
          [](Own& own) {
            own.register_module("in", nn::Linear(6, 8));
            own.register_module("block", nn::Linear(8, 8));
            own.register_module("out", nn::Linear(8, 3));
          }),
      later(
          "AMemoryBankByAHostsPlace",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor bank = own.named_buffers()["bank"];
            const Tensor logits = own.net->forward(batch["x"]);
            const Tensor loss =
                cross_entropy(logits, batch) + (logits - bank.mean(0)).square().mean();
            bank[(own.counts["calls"]++ / 4) % 4].copy_(logits.detach().mean(0));
            return loss;
          },
          {},
          [](Own& own) {
            own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
            own.register_buffer("bank", torch::zeros({4, 3}));
          }),
      later("AWeightIsLearntOnTheHost",
            [](Own& own, const Batch& batch, int64_t) {
              double& weight = own.numbers["weight"];
              if (weight == 0) weight = 1;
              if (++own.counts["calls"] % 6 == 0) weight *= 0.7;
              return plain_loss(own, batch) * weight;
            }),
      later(
          "PrunesAfterEightCalls",
          [](Own& own, const Batch& batch, int64_t) {
            if (own.counts["calls"]++ == 8) {
              const at::NoGradGuard no_grad;
              own.named_buffers()["mask"].slice(0, 0, 3).zero_();
            }
            return cross_entropy(own.net->forward(batch["x"] * own.named_buffers()["mask"]), batch);
          },
          {},
          [](Own& own) {
            own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
            own.register_buffer("mask", torch::ones({6}));
          }),
      later("MakesATensorAfterSixCalls",
            [](Own& own, const Batch& batch, int64_t) {
              Tensor x = batch["x"];
              if (own.counts["calls"]++ == 6) own.list = {torch::full({6}, 2.0)};
              if (!own.list.empty()) x = x * own.list[0];
              return cross_entropy(own.net->forward(x), batch);
            }),
      later(
          "TheCallbackCounts",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor loss = plain_loss(own, batch);
            return own.counts["batch"] % 5 == 4 ? loss * 3 : loss;
          },
          count_batches),
  };
}

}  // namespace rows_of_step_host_state

std::vector<StepCase> steps_with_host_state() {
  using namespace rows_of_step_host_state;  // NOLINT
  std::vector<StepCase> all = set_from_outside(), more = counted_by_the_step();
  for (StepCase& one : more) all.push_back(std::move(one));
  StepCase after_validation =
      later("AFactorIsSetByTheValidation", [](Own& own, const Batch& batch, int64_t) {
        return plain_loss(own, batch) * own.numbers["factor"];
      });
  after_validation.validates = true;
  after_validation.on_epoch_start = [](Own& own) {
    own.numbers["factor"] = own.current_epoch() < 2 ? 1.0 : 0.1;
  };
  all.push_back(after_validation);
  return all;
}

}  // namespace levin::test
