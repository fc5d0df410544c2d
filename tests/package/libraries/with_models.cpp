// Runs a small model of Hugging Face.
#include <iostream>

#include <levin/models/pretrained.h>

int main() {
  auto net = levin::models::from_config(levin::models::Config::from_json(R"({
    "model_type": "gpt2", "vocab_size": 10, "n_positions": 8, "n_embd": 4, "n_layer": 1, "n_head": 2})"),
                                        {.task = "text-generation"});
  std::cout << "parameters: " << net->parameters().size() << "\n";
}
