#pragma once
// The families there are. To add one: a file beside these, a line here and one in families.cpp.

#include "levin/models/family.h"

namespace levin::models {

Family llama();
Family mistral();
Family qwen2();
Family qwen3();
Family smollm3();
Family gemma3();
Family olmo2();
Family bert();
Family roberta();
Family xlm_roberta();
Family distilbert();
Family modernbert();
Family gpt2();

}  // namespace levin::models
