#include "levin/files/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <numeric>
#include <tuple>

#include "tests/files/damage.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::files {
namespace {

using test::error_of;
using test::put;
using test::Scratch;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::StartsWith;

/// Header of an IDX file; each size in 4 bytes, big-endian.
std::string header(IdxType type, const std::vector<uint32_t>& sizes) {
  std::string bytes = {'\0', '\0', static_cast<char>(type), static_cast<char>(sizes.size())};
  for (const uint32_t size : sizes) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(size >> shift & 0xff);
  }
  return bytes;
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

template <class T>
std::vector<T> values(const IdxArray& array) {
  std::vector<T> result(array.data.size() / sizeof(T));
  std::memcpy(result.data(), array.data.data(), array.data.size());
  return result;
}

const std::string kSixInts = header(IdxType::kI16, {2, 3}) + "0123456789ab";

TEST(Idx, ReadsShapeAndBytes) {
  const Scratch scratch;
  const IdxArray array = read_idx(put(scratch / "a", header(IdxType::kU8, {2, 3}) + "abcdef"));
  EXPECT_EQ(array.type, IdxType::kU8);
  EXPECT_THAT(array.shape, ElementsAre(2, 3));
  EXPECT_THAT(values<char>(array), ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
}

TEST(Idx, TurnsEveryTypeIntoThisMachinesByteOrder) {
  const Scratch scratch;
  const auto read = [&](IdxType type, const std::string& data) {
    return read_idx(put(scratch / "a", header(type, {2}) + data));
  };
  EXPECT_THAT(values<int8_t>(read(IdxType::kI8, "\x01\xff")), ElementsAre(1, -1));
  EXPECT_THAT(values<int16_t>(read(IdxType::kI16, {"\x01\x02\xff\xfe", 4})), ElementsAre(258, -2));
  EXPECT_THAT(values<int32_t>(read(IdxType::kI32, {"\0\0\x01\x02\xff\xff\xff\xfe", 8})),
              ElementsAre(258, -2));
  EXPECT_THAT(values<float>(read(IdxType::kF32, {"\x3f\xc0\0\0\xc0\0\0\0", 8})),
              ElementsAre(1.5F, -2.0F));
  EXPECT_THAT(values<double>(read(IdxType::kF64, {"\x3f\xf8\0\0\0\0\0\0\xc0\0\0\0\0\0\0\0", 16})),
              ElementsAre(1.5, -2.0));
}

TEST(Idx, ReadsGzipByItsFirstBytesWhateverTheName) {
  const Scratch scratch;
  const IdxArray array = read_idx(put(scratch / "a", gzip(kSixInts)));
  EXPECT_THAT(array.shape, ElementsAre(2, 3));
  EXPECT_EQ(values<int16_t>(array).front(), ('0' << 8) + '1');
}

TEST(Idx, ReadsSeveralGzipMembersAsOne) {
  const Scratch scratch;
  const std::string members = gzip(kSixInts.substr(0, 9)) + gzip("") + gzip(kSixInts.substr(9));
  EXPECT_EQ(read_idx(put(scratch / "a", members)).data,
            read_idx(put(scratch / "b", kSixInts)).data);
}

TEST(Idx, MayBeEmptyAndOfEightDims) {
  const Scratch scratch;
  EXPECT_TRUE(read_idx(put(scratch / "a", header(IdxType::kF64, {0, 28}))).data.empty());
  const IdxArray array =
      read_idx(put(scratch / "a", header(IdxType::kU8, {1, 1, 1, 1, 1, 1, 1, 2}) + "ab"));
  EXPECT_EQ(array.shape.size(), 8u);
}

TEST(Idx, GrowsBeyondTheFirstGuessOfThePackedSize) {
  const Scratch scratch;
  // Zeros pack to a thousandth, far above the ratio that is guessed.
  const std::string whole = header(IdxType::kU8, {30'000'001}) + std::string(30'000'001, '\0');
  const IdxArray array = read_idx(put(scratch / "a", gzip(whole)));
  EXPECT_EQ(array.data.size(), 30'000'001u);
  EXPECT_EQ(array.data.capacity(), array.data.size());
}

TEST(Idx, NamesFileOffsetAndReason) {
  const Scratch scratch;
  const std::string long_rank(4 * 9, '\1');
  const std::vector<std::tuple<std::string, int, std::string>> cases = {
      {"", 0, "this is not an IDX file"},
      {std::string(3, '\0'), 0, "this is not an IDX file"},
      {"PNG image", 0, "wanted two zero bytes"},
      {std::string("\0\0\x0a\1\0\0\0\1x", 9), 2, "element type 0x0a, wanted one of 0x08"},
      {std::string("\0\0\x08\0x", 5), 3, "0 dims, wanted 1 to 8"},
      {std::string("\0\0\x08\x09", 4) + long_rank, 3, "9 dims, wanted 1 to 8"},
      {header(IdxType::kU8, {1, 2}).substr(0, 10), 8, "the file ends inside its header"},
      {header(IdxType::kU8, {1, 0xffffffff}), 8, "size -1 of dim 1"},
      {header(IdxType::kU8, {0x7fffffff, 0x7fffffff, 4}), 12, "more than 64 bits at dim 2"},
      {header(IdxType::kU8, {0, 0x7fffffff, 0x7fffffff, 4}), 16, "more than 64 bits at dim 3"},
      {header(IdxType::kU8, {3}) + "ab", 10, "the file ends here, 1 bytes short of the shape [3]"},
      {header(IdxType::kF64, {0x7fffffff}), 8, "17179869176 bytes short"},
      {header(IdxType::kU8, {3}) + "abcd", 11,
       "the data is larger than the 3 bytes of the shape [3]"},
  };
  for (const auto& [bytes, offset, wanted] : cases) {
    for (const std::string& file : {bytes, gzip(bytes)}) {
      const auto path = put(scratch / "a", file);
      EXPECT_THAT(error_of([&] { read_idx(path); }),
                  AllOf(StartsWith("files.idx: " + path.string() + " at byte " +
                                   std::to_string(offset) + ": "),
                        HasSubstr(wanted)));
    }
  }
}

TEST(Idx, NamesDamageOfTheGzipData) {
  const Scratch scratch;
  const std::string packed = gzip(kSixInts);
  std::string wrong_sum = packed;
  wrong_sum[packed.size() - 8] = static_cast<char>(wrong_sum[packed.size() - 8] ^ 1);
  const std::vector<std::pair<std::string, std::string>> cases = {
      {packed.substr(0, packed.size() - 1), "the gzip data ends too early"},
      {packed.substr(0, 2), "the gzip data ends too early"},
      {packed + "x", "bytes after the end of the gzip data"},
      {packed + packed.substr(0, 10), "the gzip data ends too early"},
      {wrong_sum, "incorrect data check; the file is damaged, download it again"},
  };
  for (const auto& [bytes, wanted] : cases) {
    EXPECT_THAT(error_of([&, content = bytes] { read_idx(put(scratch / "a", content)); }),
                AllOf(StartsWith("files.idx: " + (scratch / "a").string()), HasSubstr(wanted)));
  }
}

TEST(Idx, AMissingFileIsNamed) {
  const Scratch scratch;
  EXPECT_THAT(error_of([&] { read_idx(scratch / "a"); }), StartsWith("files.read: cannot read"));
}

TEST(Idx, ReadsTheLabelsOfFashionMnist) {
  const char* path = "/usr/share/datasets/fashion-mnist/t10k-labels-idx1-ubyte.gz";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  const IdxArray labels = read_idx(path);
  EXPECT_EQ(labels.type, IdxType::kU8);
  EXPECT_THAT(labels.shape, ElementsAre(10'000));
  std::vector<int> of_class(10);
  for (const uint8_t label : values<uint8_t>(labels)) ++of_class.at(label);
  EXPECT_EQ(of_class, std::vector<int>(10, 1000));
}

testing::Reading idx_reading(const Scratch& scratch) {
  return [&scratch](const std::string& bytes) {
    const IdxArray array = read_idx(put(scratch / "a", bytes));
    int64_t count = 1;
    for (const int64_t size : array.shape) count *= size;
    const auto sum = std::accumulate(array.data.begin(), array.data.end(), size_t{0},
                                     [](size_t sum, std::byte byte) { return sum + size_t(byte); });
    return count >= 0 && sum <= array.data.size() * 255 &&
           array.data.size() >= static_cast<size_t>(count);
  };
}

TEST(IdxDamage, EveryTruncationIsRefused) {
  const Scratch scratch;
  for (const std::string& whole : {kSixInts, gzip(kSixInts)}) {
    ASSERT_TRUE(idx_reading(scratch)(whole));
    EXPECT_EQ(testing::truncate_everywhere(whole, idx_reading(scratch)).taken, 0);
  }
}

TEST(IdxDamage, EveryFlippedBitOfTheHeaderIsRefused) {
  const Scratch scratch;
  // IDX has no checksum: the 96 bits of the data are what it cannot see.
  EXPECT_EQ(testing::flip_every_bit(kSixInts, idx_reading(scratch)).taken, 96);
}

TEST(IdxDamage, GzipLetsThroughOnlyFlipsOfWhatItIgnores) {
  const Scratch scratch;
  // RFC 1952: time, extra flags, system and the text flag mean nothing to the data; a flip of the
  // method, the other flags, the data, its checksum or its length does.
  const int64_t ignored = 32 + 8 + 8 + 1;
  // RFC 1951: and so do up to 7 bits between the last block and the next byte.
  EXPECT_THAT(testing::flip_every_bit(gzip(kSixInts), idx_reading(scratch)).taken,
              AllOf(Ge(ignored), Le(ignored + 7)));
}

TEST(IdxDamage, RandomChangesAreRefusedOrReadable) {
  const Scratch scratch;
  for (const std::string& whole : {kSixInts, gzip(kSixInts)}) {
    EXPECT_GT(testing::mutate(whole, 3000, idx_reading(scratch)).refused, 1500);
  }
}

}  // namespace
}  // namespace levin::files
