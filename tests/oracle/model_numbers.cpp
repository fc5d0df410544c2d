// model_numbers FOLDER INPUTS OUTPUTS: what levin computes of a folder for the batch in a safetensors file, for
// compare_folder.py.
#include <cstdio>

#include "levin/base/error.h"
#include "levin/checkpoint/checkpoint.h"
#include "levin/data/batch.h"
#include "levin/models/pretrained.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: model_numbers FOLDER INPUTS OUTPUTS\n", stderr);
    return 2;
  }
  try {
    const auto net = levin::models::from_pretrained(argv[1], {.dtype = "float32"});
    net->eval();
    const levin::State inputs = levin::load_weights(argv[2]);
    levin::Batch batch;
    for (const auto& [name, value] : inputs.values()) batch.set(name, inputs.tensor(name));
    const at::NoGradGuard no_grad;
    const auto output = net->forward(batch);
    levin::State state;
    state.set("hidden", output.hidden);
    if (output.logits.defined()) state.set("logits", output.logits);
    levin::save_weights(argv[3], state);
  } catch (const levin::Error& error) {
    std::fprintf(stderr, "levin: %s\n", error.what());
    return 1;
  }
}
