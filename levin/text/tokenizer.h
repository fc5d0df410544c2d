#pragma once
// Tokenizer: text to token ids and back, with the results of Hugging Face's tokenizers library.
// It stands before everything that trains on text, and does not use tensors.
//
//   const auto tokenizer = levin::text::Tokenizer::from_pretrained("minilm");
//   const auto encoding = tokenizer.encode("Hello world");
//   encoding.ids;                          // 101, 7592, 2088, 102
//   tokenizer.decode(encoding.ids);        // "hello world"

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "levin/base/export.h"

// Encoding: the tokens of a text with their masks and offsets, as tokenizers.Encoding.
// Tokenizer::encode returns it; models::to_batch makes a batch of several.
//
//   const text::Encoding encoding = tokenizer.encode("Hello world");
//   for (int32_t id : encoding.ids) ...

namespace levin::text {

/// Range [begin, end) of a text, in the unit of EncodeOptions::offsets.
struct Offset {
  int32_t begin = 0;  ///< first byte or code point
  int32_t end = 0;    ///< the one after the last
  /// Returns whether both ranges are the same.
  bool operator==(const Offset&) const = default;
};

/// Lists with one entry per token, as tokenizers.Encoding of Python, with -1 for None.
struct Encoding {
  std::vector<int32_t> ids;                  ///< token ids
  std::vector<int32_t> type_ids;             ///< 0 for the first text, 1 for the second of a pair
  std::vector<int32_t> attention_mask;       ///< 0 for padding
  std::vector<int32_t> special_tokens_mask;  ///< 1 for special tokens, which stand for no text
  /// Position of each token in its text. This list and the next two are empty with
  /// OffsetUnit::kNone.
  std::vector<Offset> offsets;
  /// Number of the word of each token: the piece from the pre-tokenizer, or the word that was
  /// passed.
  std::vector<int32_t> word_ids;
  std::vector<int32_t> sequence_ids;  ///< text of each token: 0 for the first, 1 for the second
  /// Parts that truncation cut off. Each is as long as allowed and begins with `stride` tokens of
  /// the part before.
  std::vector<Encoding> overflowing;

  /// Returns whether all lists are the same.
  bool operator==(const Encoding&) const = default;
  /// Empties all lists but keeps their memory.
  void clear() {
    for (auto* list :
         {&ids, &type_ids, &attention_mask, &special_tokens_mask, &word_ids, &sequence_ids}) {
      list->clear();
    }
    offsets.clear();
    overflowing.clear();
  }
};

// Chats: conversations that a chat template turns into one text.
// Tokenizer::apply_chat_template takes Messages and ChatOptions and returns a Chat.
//
//   const text::Chat chat =
//       tokenizer.apply_chat_template({{"user", "Hello"}}, {.add_generation_prompt = true});
//   chat.text;                // "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"

/// One message of a conversation.
struct Message {
  std::string role;     ///< author of the message, such as system, user or assistant
  std::string content;  ///< text of the message
};

/// A conversation. Messages with more than a role and a content (tool calls, content parts,
/// reasoning) are passed as JSON.
class LEVIN_API Messages {
 public:
  /// Converts a list of messages.
  Messages(std::initializer_list<Message> messages)  // NOLINT(google-explicit-constructor)
      : Messages(std::span(messages.begin(), messages.size())) {}
  /// Converts a vector of messages.
  Messages(const std::vector<Message>& messages)  // NOLINT(google-explicit-constructor)
      : Messages(std::span<const Message>(messages)) {}
  /// Copies the messages. Throws Error "text.utf8".
  explicit Messages(std::span<const Message> messages);
  /// Takes a JSON list of objects, as in Python: [{"role": "user", "content": "Hello"}].
  static Messages from_json(std::string json);

  /// The conversation as JSON.
  const std::string& json() const { return json_; }

 private:
  Messages() = default;
  std::string json_;
};

/// Limits on what a chat template, which is foreign code, may use. Exceeding one throws Error
/// "text.template.steps", ".depth", ".output" or ".memory".
struct TemplateLimits {
  int64_t max_steps = 20'000'000;        ///< nodes, items and units of 64 bytes of text
  int64_t max_depth = 1000;              ///< nesting of blocks, expressions and macros
  int64_t max_output_bytes = 64 << 20;   ///< bytes of text
  int64_t max_memory_bytes = 256 << 20;  ///< bytes of values
};

/// Options of apply_chat_template(), named as the arguments of transformers' function.
struct ChatOptions {
  std::string tools;      ///< JSON list of tool schemas; empty: none
  std::string documents;  ///< JSON list of objects; empty: none
  /// Chat template in Jinja, or the name of one in the tokenizer's folder; empty: the folder's.
  std::string chat_template;
  bool add_generation_prompt = false;  ///< append the tokens that begin an answer
  /// Field of the last message, such as "content", that the text ends in without an end of message,
  /// so that the model continues it; empty: none.
  std::string continue_final_message;
  bool tokenize = true;  ///< return Chat::encoding; otherwise only Chat::text
  /// Return Chat::assistant_mask. It needs tokenize and a template with {% generation %} blocks.
  bool return_assistant_tokens_mask = false;
  /// Treat control tokens of the template as plain text if they occur in messages, tools, documents
  /// or variables.
  bool sanitize_control_tokens = false;
  std::string variables;  ///< JSON object of further variables that the template reads
  /// Current time for the template, seconds since 1970; unset: the system clock.
  std::optional<int64_t> now;
  TemplateLimits limits;  ///< limits on what the template may use
};

/// Result of apply_chat_template().
struct Chat {
  std::string text;                     ///< the conversation as one text
  Encoding encoding;                    ///< its tokens; no special tokens besides those in the text
  std::vector<int32_t> assistant_mask;  ///< 1 for tokens that the assistant wrote
};

/// A token that is matched as a whole in a text before the text is split, as tokenizers.AddedToken.
struct AddedToken {
  std::string content;       ///< text of the token
  bool single_word = false;  ///< do not match inside of a word
  bool lstrip = false;       ///< include white space on the left
  bool rstrip = false;       ///< include white space on the right
  bool normalized = true;    ///< match in the normalized text
  bool special = false;      ///< left out by decode()
  /// Returns whether all fields are the same.
  bool operator==(const AddedToken&) const = default;
};

/// Unit of offsets.
enum class OffsetUnit {
  kNone,       ///< no offsets, which makes encoding faster
  kBytes,      ///< bytes of UTF-8
  kCodePoints  ///< Unicode code points, as in Python
};

/// Truncation of encodings, as Tokenizer.enable_truncation of Python.
struct TruncationOptions {
  int64_t max_length = 512;                ///< tokens kept, with special tokens
  int64_t stride = 0;                      ///< tokens that an overflowing part repeats
  std::string strategy = "longest_first";  ///< for pairs; or only_first, only_second
  std::string direction = "right";         ///< side that is cut; or left
};

/// Options of encode() and encode_batch().
struct EncodeOptions {
  bool add_special_tokens = true;           ///< add special tokens around the text
  OffsetUnit offsets = OffsetUnit::kBytes;  ///< unit of offsets; Python's are code points
  /// Treat special tokens in the text as plain text; unset: as tokenizer_config.json says, else no.
  std::optional<bool> split_special_tokens = {};
  bool split_added_tokens = false;  ///< treat all added tokens in the text as plain text
  int64_t num_threads = 0;          ///< threads for a batch; 0: number of cores
  std::optional<TruncationOptions> truncation = {};  ///< unset: the tokenizer's truncation()
};

/// Options of decode() and decode_stream().
struct DecodeOptions {
  bool skip_special_tokens = true;  ///< leave out special tokens
  /// Remove spaces before punctuation; unset: as tokenizer_config.json says. As in transformers,
  /// text of a BPE model is not cleaned up, since it would lose spaces.
  std::optional<bool> clean_up_tokenization_spaces;
};

/// Padding of the encodings of a batch, as Tokenizer.enable_padding of Python.
struct PaddingOptions {
  std::string direction = "right";            ///< side of the padding; or left
  int32_t pad_id = 0;                         ///< id of the padding token
  int32_t pad_type_id = 0;                    ///< type id of padding
  std::string pad_token = "[PAD]";            ///< text of the padding token
  std::optional<int64_t> length;              ///< tokens to pad to; unset: the longest of the batch
  std::optional<int64_t> pad_to_multiple_of;  ///< round the length up to a multiple of this
};

/// A text, or words that are split already, alone or as a pair with a second one. EncodeInput is a
/// view: the texts have to outlive it.
struct EncodeInput {
  /// One text, or a list of words.
  struct Part {
    /// Views a text.
    Part(std::string_view text) : text(text) {}  // NOLINT(google-explicit-constructor)
    /// Views a text.
    Part(const std::string& text) : text(text) {}  // NOLINT(google-explicit-constructor)
    /// Views a text.
    Part(const char* text) : text(text) {}  // NOLINT(google-explicit-constructor)
    /// Views words that are split already (is_split_into_words in transformers).
    Part(std::span<const std::string> words)
        : words(words) {}                               // NOLINT(google-explicit-constructor)
    std::string_view text;                              ///< the text, unless there are words
    std::optional<std::span<const std::string>> words;  ///< the words; unset: a text
  };
  Part first;                  ///< first text
  std::optional<Part> second;  ///< second text of a pair
};

/// Arguments of transformers' from_pretrained. If one of the two is set, special tokens are added
/// as these two say, instead of as tokenizer.json says.
struct PretrainedOptions {
  std::optional<bool> add_bos_token;  ///< add bos_token before a text
  std::optional<bool> add_eos_token;  ///< add eos_token after a text
};

class DecodeStream;

/// A tokenizer with its vocabulary and options. Several threads may use one at the same time while
/// it is not changed. Texts have to be UTF-8 (Error "text.utf8") and shorter than 1 GiB (Error
/// "text.length").
class LEVIN_API Tokenizer {
 public:
  /// Opens a folder that transformers saved, with the result of AutoTokenizer. It reads
  /// tokenizer.json, tokenizer_config.json, special_tokens_map.json, added_tokens.json and
  /// config.json. As in transformers, it does not truncate or pad until it is told to. Throws Error
  /// "text.missing" if there is no tokenizer.json, and "text.file", "text.component" or
  /// "text.pattern" for files that cannot be used. A warning for each file names the keys that
  /// levin does not know.
  static Tokenizer from_pretrained(const std::filesystem::path& folder,
                                   const PretrainedOptions& options = {});
  /// Opens a single tokenizer.json, with the truncation and padding that it holds. Throws the
  /// errors of from_json(), which then name the file, and Error "files.read".
  static Tokenizer from_file(const std::filesystem::path& path);
  /// Reads the text of a tokenizer.json. Throws Error "text.file", "text.component" or
  /// "text.pattern".
  static Tokenizer from_json(std::string_view json);

  /// Moves the tokenizer.
  Tokenizer(Tokenizer&&) noexcept;
  /// Moves the tokenizer.
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  /// Encodes one text.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  /// Encodes one text, a pair of texts, or words.
  Encoding encode(const EncodeInput& input, const EncodeOptions& options = {}) const;
  /// Encodes texts with several threads.
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     const EncodeOptions& options = {}) const;
  /// Encodes inputs (texts, pairs or words) with several threads.
  std::vector<Encoding> encode_batch(std::span<const EncodeInput> inputs,
                                     const EncodeOptions& options = {}) const;
  /// Same as encode_batch(), but reuses the memory of `encodings` from an earlier call. A loop over
  /// batches then allocates nothing, so that its threads need not wait for each other. After an
  /// Error `encodings` holds some of the texts.
  void encode_batch_out(std::vector<Encoding>& encodings, std::span<const std::string> texts,
                        const EncodeOptions& options = {}) const;
  /// Same for inputs (texts, pairs or words).
  void encode_batch_out(std::vector<Encoding>& encodings, std::span<const EncodeInput> inputs,
                        const EncodeOptions& options = {}) const;

  /// Decodes ids to text. Ids without a token are left out.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;
  /// Returns a stream that decodes ids one by one. The tokenizer has to outlive it. It cleans up
  /// spaces only if `options` say so.
  DecodeStream decode_stream(const DecodeOptions& options = {}) const;

  /// Sets the truncation of encode(); nullopt turns it off. Throws Error "text.truncation" for a
  /// value that does not exist, or a stride that is too long.
  void set_truncation(std::optional<TruncationOptions> truncation);
  /// Sets the padding of encode(); nullopt turns it off. Throws Error "text.padding" for a
  /// direction that does not exist, or a length below 0.
  void set_padding(std::optional<PaddingOptions> padding);
  /// Truncation of encode(); nullopt if it is off.
  const std::optional<TruncationOptions>& truncation() const;
  /// Padding of encode(); nullopt if it is off.
  const std::optional<PaddingOptions>& padding() const;
  /// Returns the padding that tokenizer_config.json describes: its pad token and its side. Throws
  /// Error "text.padding" if there is no pad token.
  PaddingOptions default_padding() const;
  /// Returns the truncation that the folder's files describe: its side, and model_max_length if
  /// known.
  TruncationOptions default_truncation() const;

  /// Id of a token; nullopt if there is none.
  std::optional<int32_t> token_to_id(std::string_view token) const;
  /// Token of an id; nullopt if there is none.
  std::optional<std::string> id_to_token(int32_t id) const;
  int64_t vocab_size() const;  ///< size of the vocabulary, with added tokens
  /// Added tokens with their ids, ordered by id.
  std::vector<std::pair<int32_t, AddedToken>> added_tokens() const;
  /// Adds tokens to the vocabulary. Throws Error "text.utf8".
  void add_tokens(std::span<const AddedToken> tokens);

  /// Special token of a role ("bos_token", "pad_token" and so on) in the folder's files; nullopt if
  /// they name none.
  std::optional<std::string> special_token(std::string_view role) const;
  /// Id of the special token of a role; nullopt if there is none.
  std::optional<int32_t> special_token_id(std::string_view role) const;
  /// Maximum number of tokens that the model was made for; nullopt if the files do not say.
  std::optional<int64_t> model_max_length() const;
  /// Default chat template of the folder's files, in Jinja; nullopt if there is none.
  const std::optional<std::string>& chat_template() const;
  /// Renders messages to one text and encodes it, as apply_chat_template of transformers. Throws
  /// Error "text.chat" for messages or options that are not valid; "text.template", with the line,
  /// for a template that is not valid; "text.template.refused" if the template rejects these
  /// messages; and "text.template.steps", ".depth", ".output" or ".memory" if it exceeds `limits`.
  Chat apply_chat_template(const Messages& messages, const ChatOptions& options = {}) const;

  struct Parts;  ///< internal
  /// Internal.
  const Parts& parts() const { return *parts_; }

 private:
  explicit Tokenizer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

/// Decodes ids one by one, as DecodeStream of tokenizers. A character whose bytes are several
/// tokens comes out when it is complete.
class LEVIN_API DecodeStream {
 public:
  /// Returns the text that the id adds; nullopt while a character is incomplete. Throws Error
  /// "text.stream" if the id changes the text that came before.
  std::optional<std::string> step(int32_t id);

 private:
  friend class Tokenizer;
  DecodeStream(const Tokenizer& tokenizer, DecodeOptions options)
      : tokenizer_(&tokenizer), options_(options) {}

  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::vector<int32_t> ids_;
  std::string prefix_;
  size_t prefix_size_ = 0;  // number of ids that prefix_ stands for
};

// train_bpe: learns a vocabulary of byte-pair encoding from texts and returns a tokenizer.json,
// which Tokenizer::from_json reads. Use it to train a tokenizer of your own.
//
//   const std::string json = levin::text::train_bpe(
//       R"({"pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"}})", texts,
//       {.vocab_size = 8000, .special_tokens = {{.content = "<s>", .special = true}}});

/// Options of train_bpe(), as BpeTrainer of Python's tokenizers.
struct BpeTrainerOptions {
  int64_t vocab_size = 30'000;                ///< tokens, with special tokens and the alphabet
  int64_t min_frequency = 0;                  ///< minimum count of a pair that is merged
  std::vector<AddedToken> special_tokens;     ///< special tokens, which get the first ids
  std::optional<int64_t> limit_alphabet;      ///< keep only so many characters, the most frequent
  std::vector<std::string> initial_alphabet;  ///< characters that are kept even if no text has them
  std::string continuing_subword_prefix;      ///< put before tokens that do not begin a word
  std::string end_of_word_suffix;             ///< put behind tokens that end a word
  std::optional<int64_t> max_token_length;    ///< maximum length of a merged token, in characters
};

/// Returns the 256 bytes as byte-level vocabularies write them: an initial alphabet with which no
/// text has unknown tokens.
LEVIN_API std::vector<std::string> byte_alphabet();

/// Trains a tokenizer and returns its tokenizer.json. Normalizer, pre-tokenizer and the other parts
/// are those of `tokenizer`, a tokenizer.json with or without a model. Vocabulary and merges are
/// the same as those of Python's library. Throws Error "text.train" for an option that is not
/// valid, and the errors of Tokenizer::from_json().
LEVIN_API std::string train_bpe(std::string_view tokenizer, std::span<const std::string> texts,
                                const BpeTrainerOptions& options = {});

}  // namespace levin::text
