// ./11_truncated_bptt --text examples/05_gpt2.cpp --max-epochs 20
// last line: bits_per_byte=2.47
//
// Truncated backpropagation through time (TBPTT): an LSTM reads a text as several long streams. A batch
// holds one piece of each stream, and each piece starts with the state in which the piece before ended.
// On several ranks each rank reads its own streams.

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include <levin/levin.h>

struct Options {
  std::string text = "examples/05_gpt2.cpp";
  int64_t streams = 8;
  int64_t piece = 32;

  void fields(levin::FieldVisitor& field) {
    field("text", text, "text file to train on");
    field("streams", streams,
          "number of parts of the text that are read in parallel, over all ranks");
    field("piece", piece, "number of bytes that gradients are backpropagated through");
  }
};

struct Reader : levin::Module {
  torch::nn::Embedding embedding{nullptr};
  torch::nn::LSTM lstm{nullptr};
  torch::nn::Linear head{nullptr};
  torch::Tensor hidden, cell;  // [1, streams of this rank, 128], where each stream stands

  explicit Reader(int64_t streams) {
    embedding = register_module("embedding", torch::nn::Embedding(256, 64));
    lstm =
        register_module("lstm", torch::nn::LSTM(torch::nn::LSTMOptions(64, 128).batch_first(true)));
    head = register_module("head", torch::nn::Linear(128, 256));
    // Buffers, so that a checkpoint holds them and they move to the module's device.
    hidden = register_buffer("hidden", torch::zeros({1, streams, 128}));
    cell = register_buffer("cell", torch::zeros({1, streams, 128}));
  }
  torch::Tensor training_step(const levin::Batch& batch) override {
    const auto& bytes = batch["bytes"];  // [streams, piece + 1]
    // 0 where a stream begins. The products are new tensors: copy_ below may write the buffers
    // before backward has read what the LSTM began with.
    auto goes_on = 1 - batch["first"].view({1, -1, 1});
    auto [output, state] = lstm->forward(embedding->forward(bytes.slice(1, 0, -1)),
                                         std::make_tuple(hidden * goes_on, cell * goes_on));
    {
      const torch::NoGradGuard no_grad;  // gradients end at the piece's beginning
      hidden.copy_(std::get<0>(state));
      cell.copy_(std::get<1>(state));
    }
    auto loss = torch::nn::functional::cross_entropy(head->forward(output).flatten(0, 1),
                                                     bytes.slice(1, 1).flatten());
    log("bits_per_byte", loss / std::log(2.0), {.on_step = true, .on_epoch = true});
    return loss;
  }
  levin::OptimizerConfig configure_optimizers() override {
    return levin::optim::adam({.lr = 3e-3});
  }
};

/// Sample i is a piece of stream i % streams. Ranks get samples in turn, so that row b of each of
/// a rank's batches goes on where row b of the one before ended.
std::shared_ptr<levin::Dataset> pieces_of(const std::string& text, int64_t streams, int64_t piece) {
  const int64_t pieces = (std::ssize(text) - 1) / streams / piece;
  TORCH_CHECK(pieces > 0, "the text is too short for so many streams; lower --streams or --piece");
  auto bytes = torch::tensor(std::vector<int64_t>(text.begin(), text.end())).bitwise_and(255);
  auto starts = torch::arange(pieces).unsqueeze(1) + pieces * torch::arange(streams);
  auto offsets = piece * starts.reshape({-1, 1}) + torch::arange(piece + 1);
  auto first = torch::zeros({pieces, streams});
  first[0].fill_(1);
  return levin::data::tensors({{"bytes", bytes.index({offsets})}, {"first", first.flatten()}});
}

int main(int argc, char** argv) {
  Options own;
  // Every rank keeps its streams' state: rank 0's buffers are not for all.
  levin::TrainerOptions options = {.max_epochs = 20,
                                   .gradient_clip_val = 1.0,
                                   .seed = 1,
                                   .engine = {.ddp = {.broadcast_buffers = false}}};
  levin::parse_into(argc, argv, own, options);
  std::ifstream file(own.text, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  levin::Trainer trainer(options);
  const int64_t of_rank = own.streams / trainer.accelerator().num_processes();
  const levin::DataLoader loader(pieces_of(text, own.streams, own.piece), {.batch_size = of_rank});
  trainer.fit(std::make_shared<Reader>(of_rank), loader);
  if (!trainer.accelerator().is_main_process()) return 0;
  std::printf("bits_per_byte=%.3f\n", trainer.callback_metrics().at("bits_per_byte_epoch"));
}
