#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cstring>
#include <optional>

#include "levin/base/check.h"
#include "levin/data/sources/sources.h"
#include "levin/files/memory_map.h"

namespace levin::data {
namespace {

namespace fs = std::filesystem;
using Bytes = std::span<const std::byte>;

struct TokenType {
  std::string_view name;
  size_t size;
};
constexpr std::array<TokenType, 5> kTokenTypes = {
    {{"uint8", 1}, {"uint16", 2}, {"uint32", 4}, {"int32", 4}, {"int64", 8}}};

const TokenType* token_type(std::string_view name) {
  const auto found = std::ranges::find(kTokenTypes, name, &TokenType::name);
  return found == kTokenTypes.end() ? nullptr : &*found;
}

// Megatron-LM, core/datasets/indexed_dataset.py: magic, version, dtype, counts, then int32 lengths,
// int64 pointers (bytes) and int64 document indices.
constexpr std::string_view kIndexMagic{"MMIDIDX\0\0", 9};
constexpr size_t kIndexHeader = kIndexMagic.size() + 8 + 1 + 8 + 8;
/// Names of Megatron's codes that can be token ids, by code.
constexpr std::array<std::string_view, 9> kIndexTypes = {"",      "uint8", "", "",      "int32",
                                                         "int64", "",      "", "uint16"};

// llm.c: 256 int32, the first of which are magic, version and the number of tokens.
constexpr size_t kLlmcHeader = 1024;
constexpr std::array<std::pair<int32_t, std::string_view>, 2> kLlmcMagics = {
    {{20240520, "uint16"}, {20240801, "uint32"}}};

template <class Number>
Number number_at(Bytes bytes, size_t at) {
  Number number;
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

/// The index of Megatron's file, checked against it.
class SequenceIndex {
 public:
  SequenceIndex(const fs::path& path, size_t bytes_of_tokens) : map_(path), path_(path) {
    const Bytes bytes = map_.bytes();
    const auto* text = reinterpret_cast<const char*>(bytes.data());
    LEVIN_CHECK(
        bytes.size() >= kIndexHeader && std::string_view(text, kIndexMagic.size()) == kIndexMagic,
        "data.tokens", "{} is not an index of Megatron-LM (it does not begin with MMIDIDX)",
        path.string());
    const auto version = number_at<uint64_t>(bytes, 9);
    LEVIN_CHECK(version == 1, "data.tokens", "{} has version {}, wanted 1", path.string(), version);
    const auto code = number_at<uint8_t>(bytes, 17);
    const std::string_view name = code < kIndexTypes.size() ? kIndexTypes[code] : "";
    LEVIN_CHECK(!name.empty(), "data.tokens",
                "{} has the dtype code {}, wanted 1 (uint8), 4 (int32), 5 (int64) or 8 (uint16)",
                path.string(), code);
    type_ = *token_type(name);
    const auto sequences = number_at<uint64_t>(bytes, 18);
    const auto documents = number_at<uint64_t>(bytes, 26);
    const uint64_t room = bytes.size() - kIndexHeader;
    LEVIN_CHECK(sequences <= room / 12 && documents <= (room - 12 * sequences) / 8, "data.tokens",
                "{} has {} bytes, too few for {} sequences and {} documents", path.string(),
                bytes.size(), sequences, documents);
    count_ = static_cast<int64_t>(sequences);
    for (int64_t i = 0; i < count_; ++i) {
      const auto [pointer, length] = place(i);
      const bool fits = length >= 0 && pointer >= 0 &&
                        static_cast<uint64_t>(pointer) <= bytes_of_tokens &&
                        static_cast<uint64_t>(length) * type_.size <=
                            bytes_of_tokens - static_cast<uint64_t>(pointer);
      LEVIN_CHECK(fits, "data.tokens",
                  "{}: sequence {} has {} tokens from byte {} on, but the .bin file has {} bytes",
                  path.string(), i, length, pointer, bytes_of_tokens);
    }
  }

  const TokenType& type() const { return type_; }
  int64_t count() const { return count_; }
  /// First byte and number of tokens.
  std::pair<int64_t, int64_t> place(int64_t sequence) const {
    const auto at = static_cast<size_t>(sequence);
    const size_t pointers = kIndexHeader + 4 * static_cast<size_t>(count_);
    return {number_at<int64_t>(map_.bytes(), pointers + 8 * at),
            number_at<int32_t>(map_.bytes(), kIndexHeader + 4 * at)};
  }

 private:
  files::MemoryMap map_;
  fs::path path_;
  TokenType type_{};
  int64_t count_ = 0;
};

template <class Stored>
void widen(const std::byte* from, std::span<int64_t> ids) {
  for (size_t i = 0; i < ids.size(); ++i) {
    Stored id;
    std::memcpy(&id, from + i * sizeof(Stored), sizeof(Stored));
    ids[i] = static_cast<int64_t>(id);
  }
}

class MappedTokens final : public TokenFile {
 public:
  MappedTokens(fs::path path, const std::string& dtype) : path_(std::move(path)), map_(path_) {
    LEVIN_CHECK(dtype == "auto" || token_type(dtype) != nullptr, "data.tokens",
                "got dtype '{}', wanted auto, uint8, uint16, uint32, int32 or int64", dtype);
    tokens_ = map_.bytes();
    if (dtype != "auto") {
      type_ = *token_type(dtype);
    } else {
      find_type();
    }
    LEVIN_CHECK(tokens_.size() % type_.size == 0, "data.tokens",
                "{} has {} bytes of tokens, which is no multiple of the {} bytes of a {}; the file "
                "is cut short, or has another dtype",
                path_.string(), tokens_.size(), type_.size, type_.name);
  }

  int64_t size() const override { return static_cast<int64_t>(tokens_.size() / type_.size); }
  const fs::path& path() const override { return path_; }
  int64_t num_sequences() const override { return index_ ? index_->count() : 1; }

  at::Tensor read(int64_t begin, int64_t count) const override {
    LEVIN_CHECK(begin >= 0 && count >= 0 && count <= size() && begin <= size() - count,
                "data.tokens.index", "got tokens [{}, {} + {}) of {}, which has {} tokens", begin,
                begin, count, path_.string(), size());
    return ids_at(static_cast<size_t>(begin) * type_.size, count);
  }

  at::Tensor sequence(int64_t index) const override {
    LEVIN_CHECK(index >= 0 && index < num_sequences(), "data.tokens.index",
                "got sequence {} of {}, which has {} sequences", index, path_.string(),
                num_sequences());
    if (!index_) return read(0, size());
    const auto [pointer, length] = index_->place(index);
    return ids_at(static_cast<size_t>(pointer), length);
  }

 private:
  void find_type() {
    fs::path index = path_;
    index.replace_extension(".idx");
    std::error_code unknown;
    if (index != path_ && fs::exists(index, unknown)) {
      index_.emplace(index, tokens_.size());
      type_ = index_->type();
      return;
    }
    const int32_t magic = tokens_.size() >= kLlmcHeader ? number_at<int32_t>(tokens_, 0) : 0;
    const auto found =
        std::ranges::find(kLlmcMagics, magic, [](auto& entry) { return entry.first; });
    LEVIN_CHECK(found != kLlmcMagics.end(), "data.tokens",
                "{} does not say the type of its ids: there is no {}, and no header of llm.c; set "
                "dtype, for example \"uint16\"",
                path_.string(), index.filename().string());
    type_ = *token_type(found->second);
    const auto version = number_at<int32_t>(tokens_, 4);
    const auto count = number_at<int32_t>(tokens_, 8);
    tokens_ = tokens_.subspan(kLlmcHeader);
    LEVIN_CHECK(version == 1 || version == 7, "data.tokens",
                "{} has version {} of llm.c's header, wanted 1 or 7", path_.string(), version);
    LEVIN_CHECK(count >= 0 && static_cast<size_t>(count) * type_.size == tokens_.size(),
                "data.tokens",
                "the header of {} says {} tokens of {} bytes, but {} bytes follow it",
                path_.string(), count, type_.size, tokens_.size());
  }

  at::Tensor ids_at(size_t byte, int64_t count) const {
    at::Tensor ids = at::empty({count}, at::kLong);
    const std::byte* from = tokens_.data() + byte;
    const std::span<int64_t> to(ids.data_ptr<int64_t>(), static_cast<size_t>(count));
    if (type_.name == "uint8") widen<uint8_t>(from, to);
    if (type_.name == "uint16") widen<uint16_t>(from, to);
    if (type_.name == "uint32") widen<uint32_t>(from, to);
    if (type_.name == "int32") widen<int32_t>(from, to);
    if (type_.name == "int64") widen<int64_t>(from, to);
    return ids;
  }

  fs::path path_;
  files::MemoryMap map_;
  Bytes tokens_;  ///< the file without its header
  TokenType type_{};
  std::optional<SequenceIndex> index_;
};

class TokenWindows final : public Dataset {
 public:
  TokenWindows(std::shared_ptr<const TokenFile> tokens, TokenWindowOptions options)
      : tokens_(std::move(tokens)), options_(options) {
    LEVIN_CHECK(tokens_ != nullptr, "data.tokens.options", "got no token file");
    if (options_.stride == 0) options_.stride = options_.length;
    LEVIN_CHECK(options_.length > 0 && options_.stride > 0 && options_.vocab_size >= 0,
                "data.tokens.options",
                "got length = {}, stride = {} and vocab_size = {}, wanted at least 1, 1 (or 0: "
                "length) and 0",
                options_.length, options_.stride, options_.vocab_size);
    LEVIN_CHECK(tokens_->size() - 1 >= options_.length, "data.tokens.options",
                "{} has {} tokens, but a sample needs {} and the one after them; set a smaller "
                "length",
                tokens_->path().string(), tokens_->size(), options_.length);
  }

  int64_t size() const override {
    return (tokens_->size() - 1 - options_.length) / options_.stride + 1;
  }

  Batch get(std::span<const int64_t> indices) const override {
    const at::Tensor ids =
        at::empty({std::ssize(indices), options_.length + 1}, at::TensorOptions(at::kLong));
    for (int64_t row = 0; row < std::ssize(indices); ++row) {
      const int64_t index = indices[static_cast<size_t>(row)];
      LEVIN_CHECK(index >= 0 && index < size(), "data.tokens.index",
                  "got sample {} of {}, which has {} windows", index, tokens_->path().string(),
                  size());
      const int64_t begin = index * options_.stride;
      const at::Tensor window = tokens_->read(begin, options_.length + 1);
      if (options_.vocab_size > 0) check_ids(window, begin);
      ids[row].copy_(window);
    }
    return {{"tokens", ids.narrow(1, 0, options_.length).contiguous()},
            {"targets", ids.narrow(1, 1, options_.length).contiguous()}};
  }

 private:
  void check_ids(const at::Tensor& window, int64_t begin) const {
    const std::span<const int64_t> ids(window.const_data_ptr<int64_t>(),
                                       static_cast<size_t>(window.numel()));
    const auto wrong =
        std::ranges::find_if(ids, [&](int64_t id) { return id < 0 || id >= options_.vocab_size; });
    LEVIN_CHECK(wrong == ids.end(), "data.tokens.vocab",
                "token {} of {} is {}, wanted 0 to {}; is its dtype right, and its tokenizer?",
                begin + (wrong - ids.begin()), tokens_->path().string(), *wrong,
                options_.vocab_size - 1);
  }

  std::shared_ptr<const TokenFile> tokens_;
  TokenWindowOptions options_;
};

}  // namespace

TokenFile::~TokenFile() = default;

std::shared_ptr<const TokenFile> open_token_file(const fs::path& path,
                                                 const TokenFileOptions& options) {
  return std::make_shared<MappedTokens>(path, options.dtype);
}

DatasetPtr token_windows(std::shared_ptr<const TokenFile> tokens, TokenWindowOptions options) {
  return std::make_shared<TokenWindows>(std::move(tokens), options);
}

}  // namespace levin::data
