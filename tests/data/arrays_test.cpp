// Files of NumPy and CIFAR-10. tests/oracle/arrays_test.cpp reads what NumPy has written.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace array_files {
namespace {

using levin::data::read_cifar10;
using levin::data::read_npy;
using levin::data::read_npz;
using levin::test::error_id;
using levin::test::error_of;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// A .npy file of version 1 as NumPy writes it, but for the padding of its header.
std::string npy(const std::string& header, const std::string& data, char version = 1) {
  std::string file = std::string("\x93NUMPY") + version + '\0';
  file += {static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  if (version > 1) file += {'\0', '\0'};
  return file + header + data;
}

std::string header_of(const std::string& dtype, const std::string& shape,
                      const std::string& fortran = "False") {
  return "{'descr': '" + dtype + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }\n";
}

struct ArrayFiles : ::testing::Test {
  at::Tensor read(const std::string& bytes) const {
    return read_npy(levin::test::put(scratch / "a.npy", bytes));
  }
  std::string error(const std::string& bytes) const {
    return error_of([&] { read(bytes); });
  }
  levin::test::Scratch scratch;
};

TEST_F(ArrayFiles, NpyGivesDtypeShapeAndElements) {
  const at::Tensor small = read(npy(header_of("|u1", "(2, 3)"), "\1\2\3\4\5\6"));
  EXPECT_TRUE(torch::equal(small, torch::arange(1, 7).view({2, 3}).to(at::kByte)));
  const at::Tensor wide = read(npy(header_of("<i2", "(2,)"), std::string("\1\0\xff\xff", 4), 2));
  EXPECT_TRUE(torch::equal(wide, torch::tensor({1, -1}, at::kShort)));
  const at::Tensor scalar = read(npy(header_of("<f4", "()"), std::string("\0\0\x80\x3f", 4)));
  EXPECT_EQ(scalar.dim(), 0);
  EXPECT_EQ(scalar.item<float>(), 1);
  EXPECT_EQ(read(npy(header_of("|b1", "(0, 4)"), "")).sizes(), (std::vector<int64_t>{0, 4}));
  const at::Tensor fortran = read(npy(header_of("|i1", "(2, 3)", "True"), "\1\4\2\5\3\6"));
  EXPECT_TRUE(torch::equal(fortran, torch::arange(1, 7).view({2, 3}).to(at::kChar)));
}

TEST_F(ArrayFiles, NpyRefusesOtherFiles) {
  EXPECT_EQ(error("text"), "data.npy: " + (scratch / "a.npy").string() +
                               " (4 bytes) is no .npy file; save it by numpy.save");
  EXPECT_THAT(error(""), StartsWith("data.npy"));
  EXPECT_THAT(error(npy("{}", "", 9)), HasSubstr("version 9"));
  EXPECT_THAT(error(npy(header_of(">f4", "(1,)"), "abcd")), HasSubstr("the dtype '>f4'"));
  EXPECT_THAT(error(npy(header_of("|O", "(1,)"), "abcd")), HasSubstr("the dtype '|O'"));
  EXPECT_THAT(error(npy(header_of("", "(1,)"), "abcd")), HasSubstr("the dtype ''"));
  EXPECT_THAT(
      error(npy(header_of("<f4", "(2,)"), "abcd")),
      EndsWith("is truncated: it has 4 bytes of elements for the shape [2]; write it again"));
  EXPECT_THAT(error(npy(header_of("<f8", "(4611686018427387904, 4)"), "")),
              HasSubstr("is truncated"));
  for (const std::string header :
       {"", "{", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': 1, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "{'x': 1}"}) {
    EXPECT_THAT(error(npy(header, "abcd")), HasSubstr("a header that is not understood")) << header;
  }
  const std::string whole = npy(header_of("|u1", "(2, 3)"), "\1\2\3\4\5\6");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(error(whole.substr(0, size)), StartsWith("data.npy")) << size;
  }
  EXPECT_EQ(error_id([&] { read_npy(scratch / "none.npy"); }), "files.read");
}

// An archive of numpy.save(arange(6, dtype="u1").reshape(2, 3)), deflated, and numpy.save(arange(2, dtype="u1")), stored.
const std::string_view kNpz(
    "PK\003\004\024\000\000\000\010\000\000\000!P~\236\327\317L\000\000\000\206\000\000\000"
    "\005\000\000\000a.npy\233\354\027\352\033\020\311\310P\306P\255\236\222Z\234\\\244n\245"
    "\240^Sj\250\256\243\240\236\226_TR\224\230\027\237_\224\222\012\022wK\314)N\005\212\027g"
    "$\026\244\002\371\032F:\012\306\232:\012\265\012d\003.\006F&f\026V\000PK\003\004\024\000"
    "\000\000\000\000\000\000!P\231bw\337\202\000\000\000\202\000\000\000\005\000\000\000b.np"
    "y\223NUMPY\001\000v\000{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }        "
    "                                                    \012\000\001PK\001\002\024\003\024"
    "\000\000\000\010\000\000\000!P~\236\327\317L\000\000\000\206\000\000\000\005\000\000\000"
    "\000\000\000\000\000\000\000\000\200\001\000\000\000\000a.npyPK\001\002\024\003\024\000"
    "\000\000\000\000\000\000!P\231bw\337\202\000\000\000\202\000\000\000\005\000\000\000\000"
    "\000\000\000\000\000\000\000\200\001o\000\000\000b.npyPK\005\006\000\000\000\000\002\000"
    "\002\000f\000\000\000\024\001\000\000\000\000",
    400);

TEST_F(ArrayFiles, NpzGivesItsArrays) {
  const levin::Batch arrays = read_npz(levin::test::put(scratch / "a.npz", kNpz));
  ASSERT_EQ(arrays.fields().size(), 2);
  EXPECT_TRUE(torch::equal(arrays["a"], torch::arange(6).view({2, 3}).to(at::kByte)));
  EXPECT_TRUE(torch::equal(arrays["b"], torch::arange(2).to(at::kByte)));
  levin::DataLoader loader(levin::data::tensors(arrays), {.batch_size = 2});
  EXPECT_TRUE(torch::equal((*loader.begin())["a"], arrays["a"]));
}

TEST_F(ArrayFiles, NpzRefusesOtherFiles) {
  const auto error = [&](std::string_view bytes) {
    return error_of([&] { read_npz(levin::test::put(scratch / "a.npz", bytes)); });
  };
  for (size_t size = 0; size < kNpz.size(); ++size) {
    EXPECT_THAT(error(kNpz.substr(0, size)), StartsWith("data.npz: ")) << size;
  }
  for (size_t at = 0; at < kNpz.size(); ++at) {  // an error or an array, and never more
    std::string other(kNpz);
    other[at] ^= 0x55;
    EXPECT_THAT(error(other), testing::AnyOf(StartsWith("data.np"), "no error")) << at;
  }
  std::string named(kNpz);
  for (size_t at = 0; (at = named.find("a.npy", at)) != std::string::npos; ++at) {
    named.replace(at, 5, "a.txt");
  }
  EXPECT_THAT(error(named), EndsWith("a.npz: a.txt is no array of numpy.savez or "
                                     "numpy.savez_compressed"));
  std::string twice(kNpz);
  for (size_t at = 0; (at = twice.find("b.npy", at)) != std::string::npos; ++at) twice[at] = 'a';
  EXPECT_THAT(error(twice), EndsWith("has two arrays named 'a'"));
  EXPECT_EQ(error_id([&] { read_npz(scratch / "none.npz"); }), "files.read");
}

/// 10,000 records, whose label is i % 10 and whose pixel p of channel c is i + c + p modulo 256.
std::string cifar_batch(int64_t first) {
  std::string values(256 + 1024, '\0');
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i);
  std::string file;
  for (int64_t i = first; i < first + 10'000; ++i) {
    file += static_cast<char>(i % 10);
    for (int64_t c = 0; c < 3; ++c) file.append(values, static_cast<size_t>((i + c) % 256), 1024);
  }
  return file;
}

TEST_F(ArrayFiles, CifarGivesImagesAndLabels) {
  const auto folder = scratch / "cifar-10-batches-bin";
  std::filesystem::create_directories(folder);
  levin::test::put(folder / "test_batch.bin", cifar_batch(7));
  const levin::Batch test = read_cifar10(scratch.path(), {.train = false});
  EXPECT_EQ(test["image"].sizes(), (std::vector<int64_t>{10'000, 3, 32, 32}));
  EXPECT_EQ(test["label"][5].item<int64_t>(), 2);
  EXPECT_EQ(test["image"][5][2][3][4].item<int64_t>(), 12 + 2 + 3 * 32 + 4);
  EXPECT_EQ(error_of([&] { read_cifar10(scratch.path()); }),
            "data.cifar.missing: no data_batch_1.bin in " + scratch.str() +
                " or its folder cifar-10-batches-bin; unpack cifar-10-binary.tar.gz there");
  for (int64_t number = 1; number <= 5; ++number) {
    levin::test::put(folder / ("data_batch_" + std::to_string(number) + ".bin"),
                     cifar_batch(10'000 * number));
  }
  const levin::Batch train = read_cifar10(scratch.path());
  EXPECT_EQ(train["label"].size(0), 50'000);
  EXPECT_EQ(train["image"][20'001][0][0][0].item<int64_t>(), 30'001 % 256);
}

TEST_F(ArrayFiles, CifarRefusesOtherFiles) {
  const auto error = [&](const std::string& bytes) {
    levin::test::put(scratch / "test_batch.bin", bytes);
    return error_of([&] { read_cifar10(scratch.path(), {.train = false}); });
  };
  std::string batch = cifar_batch(0);
  EXPECT_THAT(error(batch.substr(1)), AllOf(StartsWith("data.cifar.size: "),
                                            HasSubstr("has 30729999 bytes, wanted 30730000")));
  batch[3073] = 10;
  EXPECT_THAT(error(batch),
              AllOf(StartsWith("data.cifar.label: image 1 of "), HasSubstr("has the label 10")));
}

}  // namespace
}  // namespace array_files
