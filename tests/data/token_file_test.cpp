// Token files of nanoGPT, llm.c and Megatron: what is read, and what is refused.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <cstring>
#include <fstream>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace token_file {
namespace {

using levin::data::open_token_file;
using levin::data::token_windows;
using levin::test::error_of;
using levin::test::Scratch;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

template <class Number>
std::string bytes_of(Number number) {
  return bytes_of(std::vector<Number>{number});
}

std::vector<int64_t> ids_of(const at::Tensor& ids) {
  return {ids.const_data_ptr<int64_t>(), ids.const_data_ptr<int64_t>() + ids.numel()};
}

class TokenFiles : public testing::Test {
 protected:
  std::filesystem::path put(const std::string& name, const std::string& bytes) {
    std::ofstream(scratch_ / name, std::ios::binary) << bytes;
    return scratch_ / name;
  }
  /// The index of Megatron for sequences of these lengths, and what may be changed in it.
  static std::string index(const std::vector<int32_t>& lengths, uint8_t code = 8,
                           uint64_t version = 1, int64_t shift = 0) {
    std::string bytes("MMIDIDX\0\0", 9);
    bytes += bytes_of(version) + bytes_of(code) + bytes_of(uint64_t{lengths.size()}) +
             bytes_of(uint64_t{lengths.size() + 1}) + bytes_of(lengths);
    std::vector<int64_t> pointers, documents = {0};
    int64_t at = shift;
    for (const int32_t length : lengths) {
      pointers.push_back(at);
      at += int64_t{2} * length;
      documents.push_back(std::ssize(pointers));
    }
    return bytes + bytes_of(pointers) + bytes_of(documents);
  }
  static std::string llmc(const std::vector<uint16_t>& ids, int32_t version = 1) {
    std::vector<int32_t> header(256, 0);
    header[0] = 20240520;
    header[1] = version;
    header[2] = static_cast<int32_t>(ids.size());
    return bytes_of(header) + bytes_of(ids);
  }
  std::string opening(const std::filesystem::path& path, const std::string& dtype = "auto") {
    return error_of([&] { open_token_file(path, {.dtype = dtype}); });
  }
  Scratch scratch_;
};

TEST_F(TokenFiles, EachDtypeIsReadWithoutASign) {
  const auto path = put("a.bin", bytes_of(std::vector<uint8_t>{1, 0, 0, 0, 255, 255, 255, 255}));
  const auto read = [&](const char* dtype) {
    return ids_of(open_token_file(path, {.dtype = dtype})->read(0, 2));
  };
  EXPECT_EQ(read("uint32"), (std::vector<int64_t>{1, 4294967295}));
  EXPECT_EQ(read("int32"), (std::vector<int64_t>{1, -1}));
  EXPECT_EQ(read("uint16"), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(read("uint8"), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(open_token_file(path, {.dtype = "uint16"})->size(), 4);
  EXPECT_EQ(ids_of(open_token_file(path, {.dtype = "uint16"})->read(2, 2)),
            (std::vector<int64_t>{65535, 65535}));
  EXPECT_EQ(ids_of(open_token_file(path, {.dtype = "int64"})->read(0, 1)),
            (std::vector<int64_t>{1 - (int64_t{1} << 32)}));
}

TEST_F(TokenFiles, WindowsAreThoseOfNanoGpt) {
  const auto tokens =
      open_token_file(put("a.bin", bytes_of(std::vector<uint16_t>{10, 11, 12, 13, 14, 15, 16, 17})),
                      {.dtype = "uint16"});
  const auto windows = token_windows(tokens, {.length = 3});
  ASSERT_EQ(windows->size(), 2);
  const levin::Batch both = windows->get(std::vector<int64_t>{1, 0});
  EXPECT_TRUE(torch::equal(both["tokens"], torch::tensor({{13, 14, 15}, {10, 11, 12}})));
  EXPECT_TRUE(torch::equal(both["targets"], torch::tensor({{14, 15, 16}, {11, 12, 13}})));
  const auto each = token_windows(tokens, {.length = 3, .stride = 1});
  ASSERT_EQ(each->size(), 5);
  EXPECT_EQ(ids_of(each->get(std::vector<int64_t>{4})["targets"]),
            (std::vector<int64_t>{15, 16, 17}));
  EXPECT_EQ(token_windows(tokens, {.length = 7})->size(), 1);
  levin::DataLoader loader(each, {.batch_size = 2, .shuffle = true, .num_workers = 1});
  EXPECT_EQ(loader.begin()->operator[]("tokens").sizes(), (std::vector<int64_t>{2, 3}));
}

TEST_F(TokenFiles, AnIndexOfMegatronHasDtypeAndSequences) {
  put("a.idx", index({3, 0, 2}));
  const auto tokens =
      open_token_file(put("a.bin", bytes_of(std::vector<uint16_t>{1, 2, 3, 4, 60000})));
  EXPECT_EQ(tokens->size(), 5);
  ASSERT_EQ(tokens->num_sequences(), 3);
  EXPECT_EQ(ids_of(tokens->sequence(0)), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(ids_of(tokens->sequence(1)), (std::vector<int64_t>{}));
  EXPECT_EQ(ids_of(tokens->sequence(2)), (std::vector<int64_t>{4, 60000}));
  EXPECT_THAT(error_of([&] { tokens->sequence(3); }),
              StartsWith("data.tokens.index: got sequence 3 of "));
}

TEST_F(TokenFiles, AHeaderOfLlmcIsSkipped) {
  const auto tokens = open_token_file(put("a.bin", llmc({7, 8, 50256})));
  EXPECT_EQ(tokens->num_sequences(), 1);
  EXPECT_EQ(ids_of(tokens->sequence(0)), (std::vector<int64_t>{7, 8, 50256}));
}

TEST_F(TokenFiles, ForeignTruncatedAndEmptyFilesAreErrors) {
  const auto plain = put("plain.bin", bytes_of(std::vector<uint16_t>{1, 2, 3}));
  EXPECT_THAT(opening(plain), AllOf(StartsWith("data.tokens: "), HasSubstr("there is no plain.idx"),
                                    HasSubstr("set dtype")));
  EXPECT_THAT(opening(plain, "float32"), StartsWith("data.tokens: got dtype 'float32', wanted"));
  EXPECT_THAT(opening(plain, "uint32"),
              HasSubstr("6 bytes of tokens, which is no multiple of the 4 bytes of a uint32"));
  EXPECT_THAT(opening(scratch_ / "none.bin"), StartsWith("files.read: "));
  EXPECT_THAT(opening(put("empty.bin", "")), StartsWith("data.tokens: "));
  const auto empty = open_token_file(scratch_ / "empty.bin", {.dtype = "uint16"});
  EXPECT_EQ(empty->size(), 0);
  EXPECT_THAT(error_of([&] { token_windows(empty, {.length = 1}); }),
              AllOf(StartsWith("data.tokens.options: "), HasSubstr("has 0 tokens")));

  const std::string whole = llmc({7, 8, 9});
  EXPECT_THAT(opening(put("short.bin", whole.substr(0, whole.size() - 2))),
              HasSubstr("says 3 tokens of 2 bytes, but 4 bytes follow it"));
  EXPECT_THAT(opening(put("version.bin", llmc({7}, 9))), HasSubstr("has version 9 of llm.c's"));
}

TEST_F(TokenFiles, ABrokenIndexIsAnError) {
  const auto message = [&](const std::string& bytes) {
    put("a.idx", bytes);
    return opening(put("a.bin", bytes_of(std::vector<uint16_t>{1, 2, 3, 4, 5})));
  };
  const std::string whole = index({3, 2});
  EXPECT_EQ(message(whole), "no error");
  EXPECT_THAT(message("TNTIDX"), HasSubstr("is not an index of Megatron-LM"));
  EXPECT_THAT(message("M" + whole), HasSubstr("is not an index of Megatron-LM"));
  EXPECT_THAT(message(index({3, 2}, 8, 2)), HasSubstr("has version 2, wanted 1"));
  EXPECT_THAT(message(index({3, 2}, 7)), HasSubstr("has the dtype code 7, wanted 1 (uint8)"));
  EXPECT_THAT(message(index({3, 2}, 99)), HasSubstr("has the dtype code 99"));
  EXPECT_THAT(message(whole.substr(0, whole.size() - 1)),
              HasSubstr("too few for 2 sequences and 3 documents"));
  EXPECT_THAT(message(index({3, 3})), HasSubstr("sequence 1 has 3 tokens from byte 6 on, but the"));
  EXPECT_THAT(message(index({-1, 2})), HasSubstr("sequence 0 has -1 tokens"));
  EXPECT_THAT(message(index({3, 2}, 8, 1, -2)), HasSubstr("from byte -2 on"));
  std::string many = whole;
  std::memset(many.data() + 18, 0xff, 8);
  EXPECT_THAT(message(many), HasSubstr("too few for 18446744073709551615 sequences"));
}

TEST_F(TokenFiles, RangesAndIdsAreChecked) {
  const auto tokens = open_token_file(put("a.bin", bytes_of(std::vector<uint16_t>{1, 2, 300, 4})),
                                      {.dtype = "uint16"});
  for (const auto& [begin, count] :
       {std::pair<int64_t, int64_t>{-1, 1}, {0, 5}, {4, 1}, {1, -1}, {INT64_MAX, INT64_MAX}}) {
    EXPECT_THAT(error_of([&] { tokens->read(begin, count); }), StartsWith("data.tokens.index: "));
  }
  EXPECT_EQ(tokens->read(4, 0).numel(), 0);
  const auto windows = token_windows(tokens, {.length = 1, .vocab_size = 300});
  EXPECT_THAT(
      error_of([&] { windows->get(std::vector<int64_t>{1}); }),
      AllOf(StartsWith("data.tokens.vocab: token 2 of "), HasSubstr("is 300, wanted 0 to 299")));
  EXPECT_EQ(windows->get(std::vector<int64_t>{0}).size(), 1);
  EXPECT_THAT(error_of([&] { windows->get(std::vector<int64_t>{3}); }),
              StartsWith("data.tokens.index: got sample 3 of "));
  for (const levin::data::TokenWindowOptions options :
       {levin::data::TokenWindowOptions{.length = 0},
        {.length = 1, .stride = -1},
        {.length = 1, .vocab_size = -1},
        {.length = 4},
        {.length = INT64_MAX}}) {
    EXPECT_THAT(error_of([&] { token_windows(tokens, options); }),
                StartsWith("data.tokens.options: "));
  }
  EXPECT_THAT(error_of([&] { token_windows(nullptr); }),
              StartsWith("data.tokens.options: got no token file"));
}

// A file of 16 GiB, almost all of it a hole: nothing of it is read before its tokens are.
TEST_F(TokenFiles, AHugeFileIsNotRead) {
  const auto path = put("huge.bin", "");
  std::filesystem::resize_file(path, uint64_t{16} << 30);
  const auto tokens = open_token_file(path, {.dtype = "uint16"});
  EXPECT_EQ(tokens->size(), int64_t{8} << 30);
  EXPECT_EQ(tokens->read(tokens->size() - 3, 3).sum().item<int64_t>(), 0);
  EXPECT_EQ(token_windows(tokens, {.length = 1024})->size(), (int64_t{8} << 20) - 1);
}

}  // namespace
}  // namespace token_file
