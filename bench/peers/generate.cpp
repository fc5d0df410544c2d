// levin's side of generating.py: how long a folder's model takes to write tokens after a prompt.
//
//   peer_generate --folder decoder --prompt prompt.safetensors --tokens 128 --rounds 5
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <levin/levin.h>

namespace {

struct Options {
  std::string folder, prompt;
  int64_t tokens = 128;
  int64_t rounds = 5;
  bool use_cache = true;

  void fields(levin::FieldVisitor& field) {
    field("folder", folder, "of a model");
    field("prompt", prompt, "input_ids [rows, tokens]");
    field("tokens", tokens, "to write");
    field("rounds", rounds, "of which the fastest counts");
    field("use_cache", use_cache, "keep keys and values");
  }
};

}  // namespace

int main(int argc, char** argv) {
  const auto options = levin::parse<Options>(argc, argv);
  at::set_num_threads(1);
  const auto net = levin::models::from_pretrained(options.folder, {.task = "text-generation"});
  const at::Tensor ids = levin::load_weights(options.prompt).tensor("input_ids");
  at::Tensor written;
  double best = 1e9;
  for (int64_t round = 0; round <= options.rounds; ++round) {  // the first one warms up
    const auto begin = std::chrono::steady_clock::now();
    written = net->generate(ids, {.max_new_tokens = options.tokens,
                                  .eos_token_id = {-1},
                                  .pad_token_id = 0,
                                  .use_cache = options.use_cache})
                  .sequences;
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    if (round > 0) best = std::min(best, time.count());
  }
  std::printf("{\"generate_s\": %.6g, \"tokens\": [", best);
  const at::Tensor flat = written.flatten();
  for (int64_t i = 0; i < flat.numel(); ++i)
    std::printf("%s%ld", i > 0 ? ", " : "", static_cast<long>(flat[i].item<int64_t>()));
  std::printf("]}\n");
}
