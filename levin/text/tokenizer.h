#pragma once
// Tokenizer: text to the numbers that a language model reads, and back, as Hugging Face's
// tokenizers does it. Stands before everything that trains on text; knows nothing of tensors.
//
//   const auto tokenizer = levin::text::Tokenizer::from_pretrained("minilm");
//   const auto encoding = tokenizer.encode("Hello world");          // encoding.ids: 101, 7592, 2088, 102
//   tokenizer.decode(encoding.ids);                                   // "hello world"

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

// Encoding: a text as tokens, with all that is known of each.
// What Tokenizer::encode gives; what becomes a batch for a model.
//
//   const text::Encoding encoding = tokenizer.encode("Hello world");
//   for (int32_t id : encoding.ids) ...

namespace levin::text {

/// From begin on, before end.
struct Offset {
  int32_t begin = 0;
  int32_t end = 0;
  bool operator==(const Offset&) const = default;
};

/// Lists of one length, an item a token. As Python's tokenizers has it, with -1 for None.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<int32_t> type_ids;             ///< 0 for the first text, 1 for the second of a pair
  std::vector<int32_t> attention_mask;       ///< 0 for padding
  std::vector<int32_t> special_tokens_mask;  ///< 1 for what stands for no text
  /// Where in its text the token stands. This and what follows are empty with OffsetUnit::kNone.
  std::vector<Offset> offsets;
  std::vector<int32_t> word_ids;  ///< number of the piece before the model, or of the word given
  std::vector<int32_t> sequence_ids;  ///< the text that it belongs to
  /// What truncation cut off, each as long as may be and beginning with the stride.
  std::vector<Encoding> overflowing;

  bool operator==(const Encoding&) const = default;
  /// Leaves empty lists that keep their memory.
  void clear() {
    for (auto* list :
         {&ids, &type_ids, &attention_mask, &special_tokens_mask, &word_ids, &sequence_ids}) {
      list->clear();
    }
    offsets.clear();
    overflowing.clear();
  }
};

// Chats: messages that a model's chat template makes one text of. What
// Tokenizer::apply_chat_template takes and gives.
//
//   const text::Chat chat =
//       tokenizer.apply_chat_template({{"user", "Hello"}}, {.add_generation_prompt = true});
//   chat.text;                // "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"

struct Message {
  std::string role;  ///< such as system, user, assistant
  std::string content;
};

/// A conversation. What has more than a role and a content (tool calls, parts, reasoning) comes as JSON.
class LEVIN_API Messages {
 public:
  Messages(std::initializer_list<Message> messages)  // NOLINT(google-explicit-constructor)
      : Messages(std::span(messages.begin(), messages.size())) {}
  Messages(const std::vector<Message>& messages)  // NOLINT(google-explicit-constructor)
      : Messages(std::span<const Message>(messages)) {}
  explicit Messages(std::span<const Message> messages);
  /// A list of objects, as in Python: [{"role": "user", "content": "Hello"}].
  static Messages from_json(std::string json);

  const std::string& json() const { return json_; }

 private:
  Messages() = default;
  std::string json_;
};

/// What a template, which is foreign code, may take. Beyond it: Error "text.template.steps" and the like.
struct TemplateLimits {
  int64_t max_steps = 20'000'000;        ///< nodes, items and 64 bytes of text
  int64_t max_depth = 1000;              ///< of blocks, expressions and macros within each other
  int64_t max_output_bytes = 64 << 20;   ///< of text
  int64_t max_memory_bytes = 256 << 20;  ///< of values
};

/// As the arguments of transformers' apply_chat_template.
struct ChatOptions {
  std::string tools;      ///< a JSON list of tools' schemas; empty: none
  std::string documents;  ///< a JSON list of objects; empty: none
  std::string
      chat_template;  ///< a template in Jinja, or the name of one of the folder's; empty: the folder's
  bool add_generation_prompt = false;  ///< ends with what begins an answer
  /// The field of the last message that goes on, such as "content", so that nothing ends it; empty: none.
  std::string continue_final_message;
  bool tokenize = true;  ///< Chat::encoding, else only Chat::text
  bool return_assistant_tokens_mask = false;
  /// What is a control token of the template is text where messages, tools, documents or variables have it.
  bool sanitize_control_tokens = false;
  std::string variables;  ///< a JSON object of what else the template reads
  std::optional<int64_t>
      now;  ///< seconds since 1970 that the template takes for the time; unset: the clock's
  TemplateLimits limits;
};

struct Chat {
  std::string text;
  Encoding encoding;                    ///< without special tokens but those of the text
  std::vector<int32_t> assistant_mask;  ///< 1 for a token that the assistant said
};

/// A token that is found in the text as a whole, before it is split.
struct AddedToken {
  std::string content;
  bool single_word = false;  ///< not within a word
  bool lstrip = false;       ///< takes white space on its left with it
  bool rstrip = false;
  bool normalized = true;  ///< looked for in the normalized text
  bool special = false;    ///< left out by decode
  bool operator==(const AddedToken&) const = default;
};

/// What offsets count; without them encoding is faster.
enum class OffsetUnit { kNone, kBytes, kCodePoints };

struct TruncationOptions {
  int64_t max_length = 512;
  int64_t stride = 0;                      ///< tokens that what overflows begins with again
  std::string strategy = "longest_first";  ///< of a pair; or only_first, only_second
  std::string direction = "right";         ///< or left
};

struct EncodeOptions {
  bool add_special_tokens = true;
  OffsetUnit offsets = OffsetUnit::kBytes;  ///< Python's are code points
  /// Special tokens in the text are text; unset: what tokenizer_config.json says, else no.
  std::optional<bool> split_special_tokens = {};
  bool split_added_tokens = false;                   ///< so are all added tokens
  int64_t num_threads = 0;                           ///< of a batch; 0: as many as there are cores
  std::optional<TruncationOptions> truncation = {};  ///< in place of the tokenizer's own
};

struct DecodeOptions {
  bool skip_special_tokens = true;
  /// No blanks before marks; unset: what tokenizer_config.json says. As in transformers nothing is done to text of
  /// a BPE model, which would lose spaces.
  std::optional<bool> clean_up_tokenization_spaces;
};

struct PaddingOptions {
  std::string direction = "right";  ///< or left
  int32_t pad_id = 0;
  int32_t pad_type_id = 0;
  std::string pad_token = "[PAD]";
  std::optional<int64_t> length;  ///< unset: that of the longest of the batch
  std::optional<int64_t> pad_to_multiple_of;
};

/// A text, or words that somebody has split already; alone or with a second one. A view.
struct EncodeInput {
  struct Part {
    Part(std::string_view text) : text(text) {}    // NOLINT(google-explicit-constructor)
    Part(const std::string& text) : text(text) {}  // NOLINT(google-explicit-constructor)
    Part(const char* text) : text(text) {}         // NOLINT(google-explicit-constructor)
    Part(std::span<const std::string> words)
        : words(words) {}  // NOLINT(google-explicit-constructor)
    std::string_view text;
    std::optional<std::span<const std::string>> words;
  };
  Part first;
  std::optional<Part> second;
};

/// As the arguments of transformers' from_pretrained. Where one of the two is given, special tokens stand around a text
/// as they say, and not as tokenizer.json does.
struct PretrainedOptions {
  std::optional<bool> add_bos_token;
  std::optional<bool> add_eos_token;
};

class DecodeStream;

/// Threads may share one that does not change meanwhile. Text has to be UTF-8: Error "text.utf8".
class LEVIN_API Tokenizer {
 public:
  /// Of a folder as transformers saves it, read as AutoTokenizer reads it: tokenizer.json with tokenizer_config.json,
  /// special_tokens_map.json, added_tokens.json and config.json. As there, it neither truncates nor pads before it is
  /// told to. Throws Error "text.missing" where there is no tokenizer.json, "text.file", "text.component" or
  /// "text.pattern" where the files cannot be used. One warning for a file names the keys that levin does not know.
  static Tokenizer from_pretrained(const std::filesystem::path& folder,
                                   const PretrainedOptions& options = {});
  /// Of a tokenizer.json alone, with its own truncation and padding.
  static Tokenizer from_file(const std::filesystem::path& path);
  static Tokenizer from_json(std::string_view json);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  Encoding encode(const EncodeInput& input, const EncodeOptions& options = {}) const;
  std::vector<Encoding> encode_batch(std::span<const std::string> texts,
                                     const EncodeOptions& options = {}) const;
  std::vector<Encoding> encode_batch(std::span<const EncodeInput> inputs,
                                     const EncodeOptions& options = {}) const;
  /// As encode_batch, into the encodings of an earlier call, whose memory is used again: a loop over batches asks for
  /// none, so that its threads need not wait for each other. After an Error they hold some of the texts.
  void encode_batch_out(std::vector<Encoding>& encodings, std::span<const std::string> texts,
                        const EncodeOptions& options = {}) const;
  void encode_batch_out(std::vector<Encoding>& encodings, std::span<const EncodeInput> inputs,
                        const EncodeOptions& options = {}) const;

  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;
  /// Gives text as ids come in one by one; this has to outlive it. It cleans up only where `options` say so.
  DecodeStream decode_stream(const DecodeOptions& options = {}) const;

  /// Unset turns it off. Throws Error "text.truncation" where a value does not exist or the stride is too long.
  void set_truncation(std::optional<TruncationOptions> truncation);
  void set_padding(std::optional<PaddingOptions> padding);
  const std::optional<TruncationOptions>& truncation() const;
  const std::optional<PaddingOptions>& padding() const;
  /// Padding as tokenizer_config.json describes it: its pad token, its side.
  PaddingOptions default_padding() const;
  /// Truncation as the folder's files describe it: its side, and model_max_length where that is known.
  TruncationOptions default_truncation() const;

  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int32_t id) const;
  int64_t vocab_size() const;  ///< with added tokens
  /// By id.
  std::vector<std::pair<int32_t, AddedToken>> added_tokens() const;
  void add_tokens(std::span<const AddedToken> tokens);

  /// "bos_token", "pad_token" and the like of the folder's files; nothing where it has none.
  std::optional<std::string> special_token(std::string_view role) const;
  std::optional<int32_t> special_token_id(std::string_view role) const;
  /// The longest text the model was made for, in tokens; nothing where nobody says.
  std::optional<int64_t> model_max_length() const;
  /// Of the folder's files, in Jinja.
  const std::optional<std::string>& chat_template() const;
  /// Messages as one text, and its tokens, as transformers' apply_chat_template. Throws Error "text.chat" where
  /// messages or options are wrong, "text.template" with the line where the template is,
  /// "text.template.refused" where it does not take these messages, and "text.template.steps", ".depth",
  /// ".output" or ".memory" where it takes more than `limits`.
  Chat apply_chat_template(const Messages& messages, const ChatOptions& options = {}) const;

  struct Parts;  ///< for levin's own sources
  const Parts& parts() const { return *parts_; }

 private:
  explicit Tokenizer(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;
};

/// Text out of ids one by one: a character whose bytes are several tokens comes when it is whole.
class LEVIN_API DecodeStream {
 public:
  /// What the id adds to the text; nothing while a character is not whole. Throws Error "text.stream" where
  /// the text so far turns into another one.
  std::optional<std::string> step(int32_t id);

 private:
  friend class Tokenizer;
  DecodeStream(const Tokenizer& tokenizer, DecodeOptions options)
      : tokenizer_(&tokenizer), options_(options) {}

  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::vector<int32_t> ids_;
  std::string prefix_;
  size_t prefix_size_ = 0;  // ids that prefix_ is of
};

// train_bpe: a vocabulary of byte pairs, learnt from texts, as a tokenizer.json.
// Where a tokenizer comes from that nobody has published; Tokenizer::from_json takes what it gives.
//
//   const std::string json = levin::text::train_bpe(
//       R"({"pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"}})", texts,
//       {.vocab_size = 8000, .special_tokens = {{.content = "<s>", .special = true}}});

/// Of Python's BpeTrainer.
struct BpeTrainerOptions {
  int64_t vocab_size = 30'000;
  int64_t min_frequency = 0;                  ///< of a pair that is still merged
  std::vector<AddedToken> special_tokens;     ///< get the first ids
  std::optional<int64_t> limit_alphabet;      ///< characters that are kept, the most frequent ones
  std::vector<std::string> initial_alphabet;  ///< characters that are kept though no text has them
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  std::optional<int64_t> max_token_length;  ///< characters of a token that merges make
};

/// All bytes as byte-level vocabularies write them: an initial alphabet that leaves nothing unknown.
LEVIN_API std::vector<std::string> byte_alphabet();

/// Normalizer, pre-tokenizer and the rest are those of `tokenizer`, a tokenizer.json with or without a
/// model. Vocabulary and merges are what Python's library learns. Throws Error "text.train" where an option has
/// a value that does not exist, and what Tokenizer::from_json throws.
LEVIN_API std::string train_bpe(std::string_view tokenizer, std::span<const std::string> texts,
                                const BpeTrainerOptions& options = {});

}  // namespace levin::text
