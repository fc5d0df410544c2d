// Options, children and modes of modules, and options of optimizers, that change in a run.
#include "tests/models/small_models.h"
#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_modules {

namespace nn = torch::nn;
using at::Tensor;

using Change = std::function<void(Own&, Trainer&)>;

/// The change comes before that batch of the run's 18.
constexpr int64_t kLater = 9;

std::function<void(Own&, Trainer&, int64_t)> at_batch(int64_t number, const Change& change) {
  return [=](Own& own, Trainer& trainer, int64_t now) {
    if (now == number) change(own, trainer);
  };
}

void build_deep(Own& own) {
  own.net = own.register_module(
      "net", nn::Sequential(nn::Linear(6, 8), nn::BatchNorm1d(8), nn::LeakyReLU(), nn::Dropout(0.2),
                            nn::LayerNorm(nn::LayerNormOptions({8})), nn::Linear(8, 3)));
}

Tensor plain(Own& own, const Batch& batch, int64_t) { return plain_loss(own, batch); }

/// The net as it was, changed by what does not belong to the step.
StepCase changed(const std::string& name, const Change& change, Wanted wanted = Wanted::kEqual) {
  return {.name = name,
          .step = plain,
          .wanted = wanted,
          .build = build_deep,
          .before = at_batch(kLater, change)};
}

template <class Impl>
Impl& layer(Own& own, size_t index) {
  return *std::dynamic_pointer_cast<Impl>(own.net->ptr(index));
}

std::vector<StepCase> options_of_layers() {
  return {
      changed("DropoutGrows",
              [](Own& own, Trainer&) { layer<nn::DropoutImpl>(own, 3).options.p(0.8); }),
      changed("DropoutEnds",
              [](Own& own, Trainer&) { layer<nn::DropoutImpl>(own, 3).options.p(0.0); }),
      changed("DropoutGoesInPlace",
              [](Own& own, Trainer&) { layer<nn::DropoutImpl>(own, 3).options.inplace(true); }),
      changed("DropoutIsAnnealed",
              [](Own& own, Trainer&) { layer<nn::DropoutImpl>(own, 3).options.p() = 0.05; }),
      changed(
          "SlopeChanges",
          [](Own& own, Trainer&) { layer<nn::LeakyReLUImpl>(own, 2).options.negative_slope(0.5); }),
      changed("BatchNormsMomentumChanges",
              [](Own& own, Trainer&) { layer<nn::BatchNorm1dImpl>(own, 1).options.momentum(0.9); }),
      changed("BatchNormsEpsilonChanges",
              [](Own& own, Trainer&) { layer<nn::BatchNorm1dImpl>(own, 1).options.eps(0.5); }),
      changed("LayerNormsEpsilonChanges",
              [](Own& own, Trainer&) { layer<nn::LayerNormImpl>(own, 4).options.eps(0.5); }),
      changed(
          "BatchNormIsFrozen",
          [](Own& own, Trainer&) { layer<nn::BatchNorm1dImpl>(own, 1).eval(); }, Wanted::kReplayed),
      changed(
          "DropoutIsInEvaluation",
          [](Own& own, Trainer&) { layer<nn::DropoutImpl>(own, 3).eval(); }, Wanted::kReplayed),
      changed(
          "AllIsInEvaluation", [](Own& own, Trainer&) { own.eval(); }, Wanted::kReplayed),
  };
}

void build_convolutions(Own& own) {
  own.net = own.register_module(
      "net", nn::Sequential(nn::Conv2d(nn::Conv2dOptions(2, 4, 3).padding(1)),
                            nn::MaxPool2d(nn::MaxPool2dOptions(2).stride(1)),
                            nn::Upsample(nn::UpsampleOptions().scale_factor({{2.0, 2.0}})),
                            nn::AdaptiveAvgPool2d(2), nn::Flatten(), nn::Linear(16, 3)));
}

/// The options of layers on images.
StepCase changed_on_images(const std::string& name, const Change& change) {
  return {.name = name,
          .step = [](Own& own, const Batch& batch,
                     int64_t) { return cross_entropy(own.net->forward(batch["image"]), batch); },
          .wanted = Wanted::kReplayed,
          .build = build_convolutions,
          .before = at_batch(kLater, change)};
}

std::vector<StepCase> options_on_images() {
  return {
      changed_on_images(
          "ConvolutionsStrideChanges",
          [](Own& own, Trainer&) { layer<nn::Conv2dImpl>(own, 0).options.stride(2); }),
      changed_on_images("ConvolutionsPaddingModeChanges",
                        [](Own& own, Trainer&) {
                          layer<nn::Conv2dImpl>(own, 0).options.padding_mode(torch::kReflect);
                        }),
      changed_on_images(
          "PoolsKernelGrows",
          [](Own& own, Trainer&) { layer<nn::MaxPool2dImpl>(own, 1).options.kernel_size(3); }),
      changed_on_images("UpsamplesScaleChanges",
                        [](Own& own, Trainer&) {
                          layer<nn::UpsampleImpl>(own, 2).options.scale_factor({{3.0, 3.0}});
                        }),
      changed_on_images(
          "UpsampleBecomesBilinear",
          [](Own& own, Trainer&) {
            layer<nn::UpsampleImpl>(own, 2).options.mode(torch::kBilinear).align_corners(false);
          }),
      changed_on_images(
          "PoolsPaddingGrows",
          [](Own& own, Trainer&) { layer<nn::MaxPool2dImpl>(own, 1).options.padding(1); }),
  };
}

/// "act" is one of two activations.
StepCase replaced(const std::string& name, const Change& change) {
  return {.name = name,
          .step =
              [](Own& own, const Batch& batch, int64_t) {
                Tensor x = own.net->forward(batch["x"]);
                const auto* act = own.named_children().find("act");
                if (act == nullptr) return cross_entropy(x, batch);
                if (auto* tanh = (*act)->as<nn::Tanh>()) x = tanh->forward(x);
                if (auto* hard = (*act)->as<nn::Hardtanh>()) x = hard->forward(x);
                return cross_entropy(x, batch);
              },
          .build =
              [](Own& own) {
                own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
                own.register_module("act", nn::Tanh());
              },
          .before = at_batch(kLater, change)};
}

/// Layers that the module does not know, and so levin neither, named "norm" and "dropout".
StepCase with_unregistered(const std::string& name, const Change& change) {
  return {
      .name = name,
      .step =
          [](Own& own, const Batch& batch, int64_t) {
            auto norm = std::dynamic_pointer_cast<nn::BatchNorm1dImpl>(own.unregistered["norm"]);
            auto dropout = std::dynamic_pointer_cast<nn::DropoutImpl>(own.unregistered["dropout"]);
            return cross_entropy(own.net->forward(dropout->forward(norm->forward(batch["x"]))),
                                 batch);
          },
      .wanted = Wanted::kFoundLater,
      .build =
          [](Own& own) {
            own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
            own.unregistered["norm"] = nn::BatchNorm1d(nn::BatchNorm1dOptions(6)).ptr();
            own.unregistered["dropout"] = nn::Dropout(0.3).ptr();
          },
      .before = at_batch(kLater, change)};
}

std::vector<StepCase> children() {
  return {
      replaced("AChildIsReplaced",
               [](Own& own, Trainer&) {
                 own.replace_module("act", nn::Hardtanh(nn::HardtanhOptions().max_val(0.2)));
               }),
      replaced("AChildIsReplacedByOneOfOtherOptions",
               [](Own& own, Trainer&) { own.replace_module("act", nn::Hardtanh()); }),
      replaced("AChildIsRemoved", [](Own& own, Trainer&) { own.unregister_module("act"); }),
      {.name = "AnActivationIsSwapped",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             Tensor x = own.net->forward(batch["x"]);
             auto relu = std::dynamic_pointer_cast<nn::ReLUImpl>(own.unregistered["act"]);
             x = relu
                     ? relu->forward(x)
                     : std::dynamic_pointer_cast<nn::TanhImpl>(own.unregistered["act"])->forward(x);
             return cross_entropy(x, batch);
           },
       .wanted = Wanted::kFoundLater,
       .build =
           [](Own& own) {
             own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
             own.unregistered["act"] = nn::ReLU().ptr();
           },
       .before = at_batch(kLater,
                          [](Own& own, Trainer&) { own.unregistered["act"] = nn::Tanh().ptr(); })},
      {.name = "ASequentialGrows",
       .step = plain,
       .build =
           [](Own& own) { own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3))); },
       .before = at_batch(kLater, [](Own& own, Trainer&) { own.net->push_back(nn::Tanh()); })},
      with_unregistered("UnregisteredDropoutInEvaluation",
                        [](Own& own, Trainer&) { own.unregistered["dropout"]->eval(); }),
      with_unregistered("UnregisteredBatchNormInEvaluation",
                        [](Own& own, Trainer&) { own.unregistered["norm"]->eval(); }),
      with_unregistered(
          "UnregisteredDropoutGrows",
          [](Own& own, Trainer&) {
            std::dynamic_pointer_cast<nn::DropoutImpl>(own.unregistered["dropout"])->options.p(0.9);
          }),
      with_unregistered(
          "UnregisteredBatchNormIsAnother",
          [](Own& own, Trainer&) { own.unregistered["norm"] = nn::BatchNorm1d(6).ptr(); }),
      {.name = "UnregisteredIsTrainedAndEvaluatedInTurns",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             auto dropout = std::dynamic_pointer_cast<nn::DropoutImpl>(own.unregistered["dropout"]);
             return cross_entropy(own.net->forward(dropout->forward(batch["x"])), batch);
           },
       .build =
           [](Own& own) {
             own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
             own.unregistered["dropout"] = nn::Dropout(0.3).ptr();
           },
       .before = [](Own& own, Trainer&,
                    int64_t batch) { own.unregistered["dropout"]->train(batch % 6 < 4); }},
      {.name = "APartIsEvaluatedWithinTheStep",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             own.net->eval();
             const Tensor target = own.net->forward(batch["x"]).detach();
             own.net->train();
             const Tensor logits = own.net->forward(batch["x"]);
             return cross_entropy(logits, batch) + (logits - target).square().mean();
           },
       .wanted = Wanted::kReplayed,
       .build = build_deep},
  };
}

StepCase with_optimizer(const std::string& name, const OptimizerConfig& config,
                        const Change& change, Wanted wanted = Wanted::kEqual) {
  return {.name = name,
          .step = plain,
          .wanted = wanted,
          .optimizer = [config](Own&) { return config; },
          .before = at_batch(kLater, change)};
}

optim::ParameterGroup& group_of(Trainer& trainer) {
  return trainer.optimizers()[0].optimizer().groups()[0];
}

std::vector<StepCase> optimizers() {
  const Wanted replayed = Wanted::kReplayed;
  return {
      with_optimizer(
          "RateIsSet", optim::adam({.lr = 1e-2}),
          [](Own&, Trainer& trainer) { group_of(trainer).lr = 0.1; }, replayed),
      with_optimizer(
          "RateIsSetUnderSgd", optim::sgd({.lr = 1e-2}),
          [](Own&, Trainer& trainer) { group_of(trainer).lr = 0.1; }, replayed),
      with_optimizer("DecayIsSet", optim::adamw({.lr = 1e-2}),
                     [](Own&, Trainer& trainer) { group_of(trainer).weight_decay = 0.5; }),
      with_optimizer("DecayIsSetUnderSgd", optim::sgd({.lr = 1e-2}),
                     [](Own&, Trainer& trainer) { group_of(trainer).weight_decay = 0.5; }),
      with_optimizer("MomentumIsSet", optim::sgd({.lr = 1e-2, .momentum = 0.9}),
                     [](Own&, Trainer& trainer) { group_of(trainer).momentum = 0.1; }),
      with_optimizer("BetaIsSet", optim::adam({.lr = 1e-2}),
                     [](Own&, Trainer& trainer) { group_of(trainer).momentum = 0.1; }),
      with_optimizer("BetaIsSetUnderAdamW", optim::adamw({.lr = 1e-2}),
                     [](Own&, Trainer& trainer) { group_of(trainer).momentum = 0.5; }),
      with_optimizer("DecayIsAnnealed", optim::adamw({.lr = 1e-2}),
                     [](Own&, Trainer& trainer) { group_of(trainer).weight_decay *= 0.5; }),
      with_optimizer(
          "AParameterIsFrozen", optim::adam({.lr = 1e-2}),
          [](Own& own, Trainer&) { own.parameters()[0].requires_grad_(false); }, replayed),
      {.name = "AParameterIsUnfrozen",
       .step = plain,
       .wanted = replayed,
       .build =
           [](Own& own) {
             build_deep(own);
             own.parameters()[0].requires_grad_(false);
           },
       .before =
           at_batch(kLater, [](Own& own, Trainer&) { own.parameters()[0].requires_grad_(true); })},
      {.name = "FrozenWithinTheStep",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             own.parameters()[0].requires_grad_(false);
             const Tensor loss = plain_loss(own, batch);
             own.parameters()[0].requires_grad_(true);
             return loss;
           },
       .build = build_deep},
      {.name = "WeightsAreCopiedIn",
       .step = plain,
       .wanted = replayed,
       .before = at_batch(kLater,
                          [](Own& own, Trainer&) {
                            const at::NoGradGuard no_grad;
                            for (Tensor& parameter : own.parameters()) parameter.fill_(0.1);
                          })},
      {.name = "BuffersAreSetAnew",
       .step = plain,
       .wanted = replayed,
       .build = build_deep,
       .before = at_batch(
           kLater,
           [](Own& own, Trainer&) { layer<nn::BatchNorm1dImpl>(own, 1).reset_running_stats(); })},
      {.name = "ABufferIsAnotherTensor",
       .step = plain,
       .wanted = Wanted::kFoundLater,
       .build = build_deep,
       .before = at_batch(kLater,
                          [](Own& own, Trainer&) {
                            layer<nn::BatchNorm1dImpl>(own, 1).running_mean = torch::ones({8});
                          })},
      {.name = "AMemberTensorIsAnother",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             return cross_entropy(own.net->forward(batch["x"]) * own.list[0], batch);
           },
       .wanted = Wanted::kFoundLater,
       .build =
           [](Own& own) {
             own.net = own.register_module("net", nn::Sequential(nn::Linear(6, 3)));
             own.list = {torch::full({3}, 2.0)};
           },
       .before = at_batch(kLater, [](Own& own, Trainer&) { own.list[0] = torch::full({3}, 0.5); })},
      {.name = "GradientsAreSetToZeroBetween",
       .step = plain,
       .before =
           at_batch(kLater, [](Own& own, Trainer&) { own.zero_grad(/*set_to_none=*/false); })},
      {.name = "GradientsAreAddedBetween",
       .step = plain,
       .before =
           [](Own& own, Trainer&, int64_t) {
             for (const Tensor& parameter : own.parameters()) {
               if (parameter.grad().defined()) parameter.grad().add_(1);
             }
           }},
  };
}

/// A model of a family, and what it is given beside the tokens.
StepCase of_family(const std::string& name, const std::string& config, const std::string& task,
                   const std::function<void(Batch&)>& fields) {
  return replayed({.name = name,
                   .step =
                       [fields](Own& own, const Batch& batch, int64_t) {
                         Batch given{{"input_ids", batch["tokens"]}, {"labels", batch["tokens"]}};
                         fields(given);
                         return own.part<models::Pretrained>("model").forward(given).loss;
                       },
                   .build = [=](Own& own) { own.register_module("model", small(config, task)); },
                   // Adam would make steps of the rounding that is all of a key's bias' gradient.
                   .optimizer = [](Own&) { return levin::optim::sgd({.lr = 0.1}); }});
}

std::vector<StepCase> pretrained() {
  const auto padded = [](Batch& batch) {
    batch.set("attention_mask", (batch["input_ids"] != 0).to(at::kLong));
  };
  const auto packed = [](Batch& batch) {
    batch.set("document", (batch["input_ids"] * 0).cumsum(1) + (batch["input_ids"] > 5));
  };
  return {of_family("Qwen3OnPackedRows", small_qwen3(), "text-generation", packed),
          of_family("Qwen3", small_qwen3(), "text-generation", [](Batch&) {}),
          of_family("BertOnPaddedRows", small_bert(), "fill-mask", padded),
          of_family("ModernBertOnPaddedRows", small_modernbert(), "fill-mask", padded),
          of_family("Gpt2OnPackedRows", small_gpt2(), "text-generation", packed)};
}

}  // namespace rows_of_step_modules

std::vector<StepCase> steps_with_modules() {
  using namespace rows_of_step_modules;  // NOLINT
  std::vector<StepCase> all = options_of_layers();
  for (const auto& more : {options_on_images(), children(), optimizers(), pretrained()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace levin::test
