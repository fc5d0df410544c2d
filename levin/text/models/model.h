#pragma once
// Model: the step that turns a piece of text into tokens of the vocabulary. Not for users.
//
//   std::vector<Token> tokens;
//   model->tokenize("lower", tokens, memory);

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "levin/text/models/vocabulary.h"
#include "levin/text/models/word_cache.h"
#include "levin/text/reading/tokenizer_file.h"

namespace levin::text {

/// The memory that one thread needs to tokenize, kept from call to call.
struct ModelMemory {
  explicit ModelMemory(uint64_t seed = 0) : random(seed) {}
  WordCache cache;  // tokens of pieces
  WordCache inner;  // tokens of parts of pieces, if parts are tokenized otherwise than pieces
  std::mt19937_64 random;  // for dropout
  // For BPE: the symbols of a word, and the result of merging each with the next one.
  struct Symbol {
    int32_t id;
    uint32_t size;
    uint32_t rank;
    int32_t merged;
    int32_t previous;
    int32_t next;
  };
  std::vector<Symbol> symbols;
  std::vector<uint64_t> queue;
  std::string letters;  // the letters of a piece of bytes
  // For Unigram: the best path to each byte.
  struct Path {
    double score;
    int32_t id;
    uint32_t begin;
  };
  std::vector<Path> paths;
};

class Model {
 public:
  virtual ~Model() = default;
  /// Appends the tokens of a piece that is not empty, with their places in it. Throws Error
  /// "text.model" where the vocabulary has not what it takes.
  virtual void tokenize(std::string_view piece, std::vector<Token>& tokens,
                        ModelMemory& memory) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// Switches to pieces of bytes, each a letter in the vocabulary. Returns false if a byte that
  /// texts may have is missing.
  virtual bool take_bytes() { return false; }
  virtual bool is_bpe() const { return false; }

 protected:
  Vocabulary vocabulary_;
};

using ModelPtr = std::unique_ptr<Model>;

/// "BPE" and the like. Older files do not say it.
std::string model_kind(const Component& component, const ModelData& data);

/// Throws Error "text.component" for a kind that there is not, "text.file" for what is missing.
ModelPtr read_model(const Component& component, const ModelData& data);

ModelPtr read_bpe(const Component& component, const ModelData& data);
ModelPtr read_word_piece(const Component& component, const ModelData& data);
ModelPtr read_word_level(const Component& component, const ModelData& data);
ModelPtr read_unigram(const Component& component, const ModelData& data);

/// Reads all tokens of the file.
Vocabulary read_vocabulary(const Component& component, const ModelData& data);

}  // namespace levin::text
