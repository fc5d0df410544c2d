// Trains a tokenizer and encodes a text.
#include <iostream>
#include <string>
#include <vector>

#include <levin/text/tokenizer.h>

int main() {
  const std::vector<std::string> texts = {"low lower lowest", "new newer newest"};
  const auto tokenizer = levin::text::Tokenizer::from_json(levin::text::train_bpe(
      R"({"pre_tokenizer": {"type": "Whitespace"}})", texts, {.vocab_size = 40}));
  const auto ids = tokenizer.encode("newer").ids;
  std::cout << "decoded " << tokenizer.decode(ids) << "\n";
}
