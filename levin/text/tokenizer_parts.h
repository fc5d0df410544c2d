#pragma once
// TokenizerParts: the parts of a Tokenizer.
// Not for users.

#include <functional>
#include <map>
#include <mutex>

#include "levin/text/added_tokens.h"
#include "levin/text/decoders/decoder.h"
#include "levin/text/models/model.h"
#include "levin/text/normalizers/normalizer.h"
#include "levin/text/post_processors/post_processor.h"
#include "levin/text/pre_tokenizers/pre_tokenizer.h"
#include "levin/text/template/template.h"
#include "levin/text/tokenizer.h"

namespace levin::text {

/// Memory of one thread, kept from call to call.
struct EncodeMemory {
  explicit EncodeMemory(uint64_t seed) : model(seed) {}
  WorkingText text;
  std::vector<Piece> found;   // in the text as it came
  std::vector<Piece> pieces;  // in a part of it
  std::vector<Token> tokens;
  std::vector<Draft> drafts;
  std::vector<Draft::Blanks> blanks;
  std::vector<uint32_t> code_points;  // number of the one that each byte belongs to
  ModelMemory model;

  /// Gives the memory of a long text back.
  void trim() {
    text.trim();
    free_long(found, pieces, tokens, blanks, code_points, model.symbols, model.queue, model.letters,
              model.paths);
  }
};

struct TokenizerParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  ModelPtr model;
  PostProcessorPtr post_processor;
  Decoder decoder;
  AddedTokens added;
  std::optional<TruncationOptions> truncation;
  std::optional<PaddingOptions> padding;

  bool of_bytes = false;  // the model takes bytes, so that the last pre-tokenizer writes no letters
  bool needs_origin = false;          // even where nobody asks for offsets
  std::vector<Draft::Blanks> blanks;  // blanks of the vocabulary's tokens, if offsets are trimmed

  uint64_t digest = 0;  // digest of tokenizer.json

  // Read from the folder's other files.
  std::map<std::string, std::string, std::less<>> roles;  // roles of special tokens
  std::optional<int64_t> model_max_length;
  std::optional<std::string> chat_template;
  std::map<std::string, std::string> chat_templates;  // by name, if there are several
  std::optional<std::vector<std::string>> chat_control_tokens;
  std::string padding_side = "right";
  bool cleans_up = false;         // clean_up_tokenization_spaces
  bool cleans_up_of_bpe = false;  // even where the model is BPE
  bool splits_special = false;    // split_special_tokens
  bool gives_types = true;        // model_input_names has token_type_ids
  std::string truncation_side = "right";

  mutable std::once_flag told_of_bpe;
  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<EncodeMemory>> idle;
  mutable uint64_t seeds = 0;
  mutable std::map<std::string, std::shared_ptr<const jinja::Template>> parsed;  // by their text

  void read(const TokenizerFile& file);
  void find_blanks();

  /// Lends memory for the length of a call.
  class Loan {
   public:
    explicit Loan(const TokenizerParts& parts);
    ~Loan();
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    EncodeMemory& operator*() const { return *memory_; }

   private:
    const TokenizerParts& parts_;
    std::unique_ptr<EncodeMemory> memory_;
  };

  /// In the memory of `lists`, whose items go.
  Encoding encode(const EncodeInput& input, const EncodeOptions& options, EncodeMemory& memory,
                  Encoding lists = {}) const;
  /// Encodes `count` inputs on threads. `encodings` may hold those of an earlier call, whose memory is used again.
  template <class InputAt>
  void encode_all(std::vector<Encoding>& encodings, size_t count, const InputAt& input_at,
                  const EncodeOptions& options) const;
  /// Encodes a text with marks around control tokens (control_tokens.h), and drops the marks from it.
  Encoding encode_marked(std::string& text, const EncodeOptions& options,
                         EncodeMemory& memory) const;
  void pad(std::span<Encoding> encodings, bool tracked) const;
  /// Another one where texts or chats may give other tokens.
  uint64_t fingerprint() const;
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options) const;
  bool may_clean_up(const DecodeOptions& options) const;
  int32_t find(std::string_view token) const;
  const std::string& template_of(const ChatOptions& options) const;
  std::shared_ptr<const jinja::Template> parsed_template(const std::string& source) const;
  void for_each_piece(std::string_view text,
                      const std::function<void(std::string_view)>& visit) const;

 private:
  Draft encode_part(const EncodeInput::Part& part, int32_t sequence, const EncodeOptions& options,
                    EncodeMemory& memory, Encoding lists = {}) const;
  void encode_text(std::string_view text, int32_t word, const EncodeOptions& options,
                   EncodeMemory& memory, Draft& draft) const;
  void encode_pieces(uint32_t& count, int32_t word, bool tracked, EncodeMemory& memory,
                     Draft& draft) const;
  void put_added(int32_t id, std::string_view text, Bytes origin, int32_t word, Draft& draft) const;
  void truncate_all(std::vector<Draft>& drafts, const TruncationOptions& options,
                    bool add_special_tokens) const;
};

inline const TokenizerParts& parts_of(const Tokenizer& tokenizer) { return *tokenizer.parts_; }

}  // namespace levin::text
