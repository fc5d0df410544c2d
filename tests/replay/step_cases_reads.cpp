// The host reads what was computed, or makes a tensor anew in each step.
#include <random>

#include "tests/replay/cases.h"

namespace levin::test {
namespace rows_of_step_reads {

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using at::Tensor;

/// What the host reads by a pointer nobody sees: such rows are found later.
StepCase reading(const std::string& name, const Step& step, Wanted wanted = Wanted::kEqual) {
  return {.name = name, .step = step, .wanted = wanted};
}

template <class Holder>
StepCase sequences(const std::string& name, const std::function<Holder()>& make,
                   const std::function<Tensor(Own&, const Tensor& x)>& forward,
                   Wanted wanted = Wanted::kReplayed) {
  return {.name = name,
          .step =
              [forward](Own& own, const Batch& batch, int64_t) {
                auto& in = own.part<nn::EmbeddingImpl>("in");
                const Tensor x = in.forward(batch["tokens"]).transpose(0, 1);  // [6, 8, 8]
                const Tensor y = forward(own, x).mean(0);
                return cross_entropy(own.part<nn::LinearImpl>("out").forward(y), batch);
              },
          .wanted = wanted,
          .build =
              [make](Own& own) {
                own.register_module("in", nn::Embedding(12, 8));
                own.register_module("middle", make());
                own.register_module("out", nn::Linear(8, 3));
              },
          // No key's bias has a gradient, of whose rounding Adam would make whole steps.
          .optimizer = [](Own&) { return optim::sgd({.lr = 0.1}); }};
}

nn::TransformerOptions small_transformer() {
  return nn::TransformerOptions(8, 2, 1, 1).dim_feedforward(8).dropout(0.1);
}

std::vector<StepCase> of_layers() {
  using Attention = nn::MultiheadAttentionImpl;
  const auto attention = [] {
    return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).dropout(0.1));
  };
  const auto cross = [] {
    return nn::MultiheadAttention(nn::MultiheadAttentionOptions(8, 2).kdim(8).vdim(8));
  };
  return {
      sequences<nn::MultiheadAttention>("SelfAttention", attention,
                                        [](Own& own, const Tensor& x) {
                                          return std::get<0>(
                                              own.part<Attention>("middle").forward(x, x, x));
                                        }),
      sequences<nn::MultiheadAttention>("CrossAttention", cross,
                                        [](Own& own, const Tensor& x) {
                                          const Tensor memory = x.flip(0);
                                          return std::get<0>(own.part<Attention>("middle").forward(
                                              x, memory, memory));
                                        }),
      sequences<nn::MultiheadAttention>("CrossAttentionOfAnotherLength", cross,
                                        [](Own& own, const Tensor& x) {
                                          const Tensor memory = x.slice(0, 0, 4) * 2;
                                          return std::get<0>(own.part<Attention>("middle").forward(
                                              x, memory, memory));
                                        }),
      sequences<nn::MultiheadAttention>("AttentionOfThree", attention,
                                        [](Own& own, const Tensor& x) {
                                          return std::get<0>(own.part<Attention>("middle").forward(
                                              x, x * 2, x * 3));
                                        }),
      sequences<nn::MultiheadAttention>("AttentionToEqualCopies", attention,
                                        [](Own& own, const Tensor& x) {
                                          return std::get<0>(own.part<Attention>("middle").forward(
                                              x, x.clone(), x.clone()));
                                        }),
      sequences<nn::TransformerEncoderLayer>(
          "TransformerEncoderLayer",
          [] {
            return nn::TransformerEncoderLayer(
                nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(8));
          },
          [](Own& own, const Tensor& x) {
            return own.part<nn::TransformerEncoderLayerImpl>("middle").forward(x);
          }),
      sequences<nn::TransformerDecoderLayer>(
          "TransformerDecoderLayer",
          [] {
            return nn::TransformerDecoderLayer(
                nn::TransformerDecoderLayerOptions(8, 2).dim_feedforward(8));
          },
          [](Own& own, const Tensor& x) {
            return own.part<nn::TransformerDecoderLayerImpl>("middle").forward(x, x.flip(0));
          }),
      sequences<nn::Transformer>(
          "EncoderDecoderTransformer", [] { return nn::Transformer(small_transformer()); },
          [](Own& own, const Tensor& x) {
            return own.part<nn::TransformerImpl>("middle").forward(x.flip(0), x);
          }),
      sequences<nn::Transformer>(
          "EncoderDecoderTransformerWithMasks", [] { return nn::Transformer(small_transformer()); },
          [](Own& own, const Tensor& x) {
            const Tensor mask = nn::TransformerImpl::generate_square_subsequent_mask(x.size(0));
            return own.part<nn::TransformerImpl>("middle").forward(x.flip(0), x, {}, mask);
          }),
      sequences<nn::LSTM>(
          "PackedLstm", [] { return nn::LSTM(nn::LSTMOptions(8, 8)); },
          [](Own& own, const Tensor& x) {
            const Tensor lengths = torch::tensor({6, 6, 5, 4, 3, 3, 2, 1});
            const auto packed = nn::utils::rnn::pack_padded_sequence(x, lengths);
            const auto out = own.part<nn::LSTMImpl>("middle").forward_with_packed_input(packed);
            return std::get<0>(nn::utils::rnn::pad_packed_sequence(std::get<0>(out)));
          },
          Wanted::kEqual),
      sequences<nn::GRU>(
          "PackedGruUnsorted", [] { return nn::GRU(nn::GRUOptions(8, 8)); },
          [](Own& own, const Tensor& x) {
            const Tensor lengths = torch::tensor({3, 6, 5, 2, 3, 3, 6, 1});
            const auto packed = nn::utils::rnn::pack_padded_sequence(x, lengths, false, false);
            const auto out = own.part<nn::GRUImpl>("middle").forward_with_packed_input(packed);
            return std::get<0>(nn::utils::rnn::pad_packed_sequence(std::get<0>(out)));
          },
          Wanted::kEqual),
      sequences<nn::LSTM>(
          "PackedLstmOfLengthsInTheBatch", [] { return nn::LSTM(nn::LSTMOptions(8, 8)); },
          [](Own& own, const Tensor& x) {
            const Tensor lengths = x.detach().select(2, 0).gt(0).sum(0).clamp_min(1);
            const auto packed = nn::utils::rnn::pack_padded_sequence(x, lengths, false, false);
            const auto out = own.part<nn::LSTMImpl>("middle").forward_with_packed_input(packed);
            return std::get<0>(
                nn::utils::rnn::pad_packed_sequence(std::get<0>(out), false, 0.0, 6));
          },
          Wanted::kEqual),
      {.name = "CtcLoss",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             const Tensor hidden =
                 own.part<nn::EmbeddingImpl>("in").forward(batch["tokens"]).transpose(0, 1);
             const Tensor scores = hidden.log_softmax(2);
             return F::ctc_loss(scores, batch["tokens"].slice(1, 0, 2).remainder(7) + 1,
                                torch::full({8}, 6, torch::kLong),
                                torch::full({8}, 2, torch::kLong));
           },
       .build = [](Own& own) { own.register_module("in", nn::Embedding(12, 8)); }},
      {.name = "EmbeddingBagOfOffsets",
       .step =
           [](Own& own, const Batch& batch, int64_t) {
             auto& bag = own.part<nn::EmbeddingBagImpl>("bag");
             const Tensor offsets = torch::arange(0, 48, 6);
             return cross_entropy(bag.forward(batch["tokens"].flatten(), offsets), batch);
           },
       .build = [](Own& own) { own.register_module("bag", nn::EmbeddingBag(12, 3)); }},
  };
}

std::vector<StepCase> of_the_users() {
  return {
      reading("BranchesOnItsLoss",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                return loss.item<double>() > 1.0 ? loss * 2 : loss;
              }),
      reading(
          "BranchesOnItsLossByPointer",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor loss = plain_loss(own, batch);
            return *loss.const_data_ptr<float>() > 1.0F ? loss * 2 : loss;
          },
          Wanted::kFoundLater),
      reading("BranchesOnItsBatch",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                return batch["x"].mean().item<double>() > 0 ? loss * 2 : loss;
              }),
      reading("BranchesOnALabel",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                return batch["y"][0].item<int64_t>() == 1 ? loss * 2 : loss;
              }),
      reading("BranchesOnALabelByAccessor",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                return batch["y"].accessor<int64_t, 1>()[0] == 1 ? loss * 2 : loss;
              }),
      reading("WeighsByItsOwnLoss",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                return loss / loss.item<double>();
              }),
      reading(
          "WeighsByItsOwnLossByPointer",
          [](Own& own, const Batch& batch, int64_t) {
            const Tensor loss = plain_loss(own, batch);
            return loss / *loss.const_data_ptr<float>();
          },
          Wanted::kFoundLater),
      reading("OneHotByAccessor",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor target = torch::zeros({batch.size(), 3});
                auto places = target.accessor<float, 2>();
                auto labels = batch["y"].accessor<int64_t, 1>();
                for (int64_t i = 0; i < batch.size(); ++i) places[i][labels[i]] = 1;
                return F::mse_loss(own.net->forward(batch["x"]), target);
              }),
      reading("PaddingMaskByAccessor",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor mask = torch::ones({batch.size(), 6});
                auto flags = mask.accessor<float, 2>();
                auto tokens = batch["tokens"].accessor<int64_t, 2>();
                for (int64_t i = 0; i < batch.size(); ++i) {
                  for (int64_t j = tokens[i][0] % 6; j < 6; ++j) flags[i][j] = 0;
                }
                return cross_entropy(own.net->forward(batch["x"] * mask), batch);
              }),
      reading("ComparesTwoTensors",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                return torch::equal(batch["x"], batch["x"].abs()) ? loss : loss * 2;
              }),
      reading("ComparesATensorWithItself",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                return torch::equal(batch["x"], batch["x"].clone()) ? loss : loss * 2;
              }),
      reading("ComparesWhatIsEqualNowAndThen",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                return torch::equal(batch["y"].slice(0, 0, 1), batch["y"].slice(0, 1, 2)) ? loss * 2
                                                                                          : loss;
              }),
      reading("IsCloseToLabels",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor logits = own.net->forward(batch["x"]);
                const bool close = torch::allclose(logits, torch::zeros_like(logits), 0.1, 0.7);
                return cross_entropy(logits, batch) * (close ? 2 : 1);
              }),
      reading("TakesNonzero",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor places = batch["y"].nonzero().flatten();
                const Tensor logits = own.net->forward(batch["x"]);
                return cross_entropy(logits, batch) + logits.index_select(0, places).square().sum();
              }),
      reading("SelectsByAMask",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor logits = own.net->forward(batch["x"]);
                return cross_entropy(logits, batch) + logits.masked_select(logits > 0).sum() * 0.01;
              }),
      reading("IndexesByAMask",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor logits = own.net->forward(batch["x"]);
                const Tensor positive = logits.index({batch["y"] > 0});
                return cross_entropy(logits, batch) + positive.square().sum();
              }),
      reading("CountsUniqueLabels",
              [](Own& own, const Batch& batch, int64_t) {
                const auto labels = std::get<0>(at::_unique2(batch["y"]));
                return plain_loss(own, batch) / static_cast<double>(labels.size(0));
              }),
      reading("CountsUniqueLabelsByTheirSize",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor counts = torch::bincount(batch["y"], {}, 3).to(torch::kFloat);
                return plain_loss(own, batch) + counts.std() * own.parameters()[0].square().sum();
              }),
      reading("ChecksForNan",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                TORCH_CHECK(!loss.isnan().item<bool>());
                return loss;
              }),
      reading("SkipsBatchesOfHighLoss",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                return loss.item<float>() > 1.15F ? Tensor() : loss;
              }),
      reading("CutsToTheLongest",
              [](Own& own, const Batch& batch, int64_t) {
                const int64_t longest = batch["y"].max().item<int64_t>() + 1;
                const Tensor x = batch["x"].slice(1, 0, longest).sum(1, true);
                return cross_entropy(own.net->forward(x.expand({-1, 6})), batch);
              }),
      reading("LoopsOverItsTensor",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor logits = own.net->forward(batch["x"]);
                Tensor sum = torch::zeros({});
                for (int64_t i = 0; i < batch.size(); ++i) {
                  sum = sum - logits.log_softmax(1)[i][batch["y"][i].item<int64_t>()];
                }
                return sum / batch.size();
              }),
      reading("RepeatsByItsLabels",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor logits = own.net->forward(batch["x"]);
                return cross_entropy(logits, batch) +
                       logits.repeat_interleave(batch["y"], 0).square().sum();
              }),
      reading("OneHotWithoutANumberOfClasses",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor target = torch::one_hot(batch["y"]).to(torch::kFloat);
                const Tensor logits = own.net->forward(batch["x"]).slice(1, 0, target.size(1));
                return F::mse_loss(logits, target);
              }),
      reading("ClipsAsTorchDoes",
              [](Own& own, const Batch& batch, int64_t) {
                plain_loss(own, batch).backward();
                nn::utils::clip_grad_norm_(own.parameters(), 0.1);
                return plain_loss(own, batch);
              }),
      reading("ACoinOfATensor",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                return torch::rand({}).item<double>() < 0.5 ? loss * 2 : loss;
              }),
      reading("ACoinOfATensorThatIsRare",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                return torch::rand({}).item<double>() < 0.1 ? loss * 2 : loss;
              }),
      reading("ANumberOfATensorAsWeight",
              [](Own& own, const Batch& batch, int64_t) {
                return plain_loss(own, batch) * (0.5 + torch::rand({}).item<double>());
              }),
      reading("KeepsTheNumberOfItsLoss",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                own.kept["loss"] = torch::full({}, loss.item<double>());
                return loss;
              }),
      reading("SumsTheNumbersOfItsLoss",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                own.numbers["sum"] += loss.item<double>();
                own.kept["sum"] = torch::full({}, own.numbers["sum"], torch::kDouble);
                return loss;
              }),
      reading("LogsTheNumberOfItsLoss",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor loss = plain_loss(own, batch);
                own.log("loss", loss.item<double>());
                return loss;
              }),
      reading("WeightsByAListOfTheHost",
              [](Own& own, const Batch& batch, int64_t) {
                const std::vector<float> weights = {1.0F, 2.0F, 0.5F};
                return F::cross_entropy(
                    own.net->forward(batch["x"]), batch["y"],
                    F::CrossEntropyFuncOptions().weight(torch::tensor(weights)));
              }),
      reading("AMaskOfTheHostInEachStep",
              [](Own& own, const Batch& batch, int64_t) {
                std::mt19937 random(static_cast<uint32_t>(own.counts["calls"]++));
                std::vector<float> mask(6);
                for (float& one : mask) one = random() % 3 == 0 ? 0.0F : 1.5F;
                return cross_entropy(own.net->forward(batch["x"] * torch::tensor(mask)), batch);
              }),
      reading("AMaskFromABlobInEachStep",
              [](Own& own, const Batch& batch, int64_t) {
                std::mt19937 random(static_cast<uint32_t>(own.counts["calls"]++));
                std::array<float, 6> mask = {};
                for (float& one : mask) one = random() % 3 == 0 ? 0.0F : 1.5F;
                const Tensor factors = torch::from_blob(mask.data(), {6}).clone();
                return cross_entropy(own.net->forward(batch["x"] * factors), batch);
              }),
      reading("AMaskByAccessorOtherwiseInEachStep",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor mask = torch::ones({6});
                mask.accessor<float, 1>()[own.counts["calls"]++ % 6] = 0;
                return cross_entropy(own.net->forward(batch["x"] * mask), batch);
              }),
      reading("AMaskOfTheHostMovedToTheDevice",
              [](Own& own, const Batch& batch, int64_t) {
                std::vector<int64_t> places = {own.counts["calls"]++ % 6, 3};
                const Tensor index = torch::tensor(places).to(batch["x"].device());
                return cross_entropy(own.net->forward(batch["x"].index_fill(1, index, 0)), batch);
              }),
      reading("AConstantOfTheHost",
              [](Own& own, const Batch& batch, int64_t) {
                const Tensor mean = torch::tensor({0.1F, 0.2F, 0.3F, 0.4F, 0.5F, 0.6F});
                return cross_entropy(own.net->forward(batch["x"] - mean), batch);
              }),
      reading("APermutationOfTheHost",
              [](Own& own, const Batch& batch, int64_t) {
                std::vector<int64_t> order = {0, 1, 2, 3, 4, 5, 6, 7};
                std::mt19937 random(static_cast<uint32_t>(own.counts["calls"]++));
                std::shuffle(order.begin(), order.end(), random);
                const Tensor other = batch["x"].index_select(0, torch::tensor(order));
                return cross_entropy(own.net->forward(0.7 * batch["x"] + 0.3 * other), batch);
              }),
  };
}

}  // namespace rows_of_step_reads

std::vector<StepCase> steps_with_reads() {
  using namespace rows_of_step_reads;  // NOLINT
  std::vector<StepCase> all = of_layers(), more = of_the_users();
  for (StepCase& one : more) all.push_back(std::move(one));
  return all;
}

}  // namespace levin::test
