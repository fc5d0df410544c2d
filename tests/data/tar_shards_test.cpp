// Tar shards, as WebDataset. tests/oracle/arrays_test.cpp reads archives that Python has written.
#include <gmock/gmock.h>
#include <torch/torch.h>

#include <algorithm>

#include "levin/data/loader.h"
#include "levin/data/sources/sources.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace tar_shard_files {
namespace {

using levin::Batch;
using levin::data::Sample;
using levin::data::tar_shards;
using levin::data::TarSample;
using levin::test::error_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

/// An entry of ustar.
std::string entry(const std::string& name, const std::string& data, char kind = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  const auto octal = [&](size_t at, size_t digits, size_t value) {
    for (size_t i = digits; i-- > 0; value /= 8)
      header[at + i] = static_cast<char>('0' + value % 8);
  };
  octal(124, 11, data.size());
  header[156] = kind;
  header.replace(257, 6, std::string("ustar\0", 6));
  header.replace(148, 8, "        ");
  size_t sum = 0;
  for (const char byte : header) sum += static_cast<uint8_t>(byte);
  octal(148, 6, sum);
  header[154] = '\0';
  return header + data + std::string((512 - data.size() % 512) % 512, '\0');
}

const std::string kEnd(1024, '\0');

Sample decode(const TarSample& sample) {
  return {{"label", torch::tensor(sample.integer("cls"))},
          {"size", torch::tensor(std::ssize(sample.bytes("txt")))}};
}

struct TarShardFiles : ::testing::Test {
  /// Samples "part-NUMBER/I" of a shard, with a label and a text of I bytes.
  std::string shard(int64_t number, int64_t count) const {
    std::string file;
    for (int64_t i = 0; i < count; ++i) {
      const std::string key = "part-" + std::to_string(number) + "/" + std::to_string(i);
      file += entry(key + ".cls", std::to_string(100 * number + i) + "\n");
      file += entry(key + ".txt", std::string(static_cast<size_t>(i), 'x'));
    }
    return file + kEnd;
  }
  std::string put(const std::string& name, const std::string& bytes) const {
    return levin::test::put(scratch / name, bytes).string();
  }
  static void read_all(const std::string& path) {
    const auto stream = tar_shards({path}, [](const TarSample&) { return Sample(); })->open(0, {});
    for (Sample sample; stream->next(sample);) {
    }
  }
  std::string error(const std::string& bytes) const {
    const std::string path = put("bad.tar", bytes);
    return error_of([&] { read_all(path); });
  }
  static std::vector<int64_t> labels(levin::DataLoader& loader, int64_t batches = -1) {
    std::vector<int64_t> labels;
    for (Batch batch; batches != 0 && loader.next(batch); --batches) {
      for (int64_t i = 0; i < batch.size(); ++i)
        labels.push_back(batch["label"][i].item<int64_t>());
    }
    return labels;
  }
  levin::test::Scratch scratch;
};

TEST_F(TarShardFiles, GroupFilesByTheNameUpToTheFirstDot) {
  const std::string path =
      put("a.tar", entry("d.x/", "", '5') + entry("d.x/a.seg.png", "1") + entry("d.x/a.jpg", "22") +
                       entry("readme", "no") + entry("d.x/.hidden", "no") +
                       entry("d.x/b.jpg", "333") + entry("link.jpg", "", '2') + kEnd);
  const auto dataset = tar_shards({path}, [](const TarSample& sample) {
    int64_t sizes = 0;
    for (const auto& [name, bytes] : sample.files) sizes = 10 * sizes + std::ssize(bytes);
    EXPECT_EQ(sample.where(), sample.shard + ": " + sample.key);
    return Sample{{"sizes", torch::tensor(sizes)}};
  });
  std::vector<int64_t> sizes;
  const auto stream = dataset->open(0, {});
  for (Sample sample; stream->next(sample);) sizes.push_back(sample["sizes"].item<int64_t>());
  EXPECT_THAT(sizes, ElementsAre(12, 3));
}

TEST_F(TarShardFiles, LongNamesAreThoseOfGnuAndPax) {
  const std::string name = std::string(150, 'd') + "/0.txt";
  std::string line = " path=" + name + "\n";
  line = std::to_string(line.size() + 3) + line;
  const std::string files = entry("././@LongLink", name + std::string(1, '\0'), 'L') +
                            entry("short", "gnu") + entry("global", "9 a=b\n\n", 'g') +
                            entry("pax", line, 'x') + entry("short", "pax");
  for (const std::string& end : {kEnd, std::string()}) {  // with and without the end's blocks
    std::vector<std::string> keys;
    const auto dataset = tar_shards({put("a.tar", files + end)}, [&](const TarSample& sample) {
      for (const auto& [extension, bytes] : sample.files) {
        keys.push_back(sample.key + "." + extension + "=" +
                       std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
      }
      return Sample();
    });
    const auto stream = dataset->open(0, {});
    for (Sample sample; stream->next(sample);) {
    }
    EXPECT_THAT(keys, ElementsAre(name + "=gnu", name + "=pax"));
  }
}

TEST_F(TarShardFiles, LoaderSplitsThemOverRanksAndResumes) {
  for (int64_t number = 0; number < 4; ++number) {
    put("train-00" + std::to_string(number) + ".tar", shard(number, 5));
  }
  const auto dataset = tar_shards({(scratch / "train-{000..003}.tar").string()}, decode);
  EXPECT_EQ(dataset->num_shards(), 4);
  const auto loader = [&](int64_t rank, int64_t ranks) {
    levin::DataLoader made(dataset, {.batch_size = 2, .num_workers = 2, .open_shards = 2});
    made.set_slice({rank, ranks}, /*even=*/false);
    return made;
  };
  std::vector<int64_t> seen;
  for (int64_t rank = 0; rank < 2; ++rank) {
    auto part = loader(rank, 2);
    for (const int64_t label : labels(part)) {
      EXPECT_EQ(label / 100 % 2, rank);
      seen.push_back(label);
    }
  }
  std::ranges::sort(seen);
  std::vector<int64_t> wanted;
  for (int64_t i = 0; i < 20; ++i) wanted.push_back(i / 5 * 100 + i % 5);
  EXPECT_EQ(seen, wanted);

  auto whole = loader(0, 1), begun = loader(0, 1), resumed = loader(0, 1);
  const auto all = labels(whole);
  const auto first = labels(begun, 3);
  resumed.load_state_dict(begun.state_dict());
  const auto rest = labels(resumed);
  EXPECT_EQ(std::vector<int64_t>(all.begin() + std::ssize(first), all.end()), rest);
}

TEST_F(TarShardFiles, RangesStandForPaths) {
  const auto count = [&](const std::string& name) {
    return error_of([&] { tar_shards({(scratch / name).string()}, decode); });
  };
  put("a-9-x.tar", kEnd);
  put("a-10-x.tar", kEnd);
  put("b-08-1.tar", kEnd);
  put("b-08-2.tar", kEnd);
  EXPECT_EQ(count("a-{9..10}-x.tar"), "no error");
  EXPECT_EQ(count("b-{08..08}-{1..2}.tar"), "no error");
  EXPECT_THAT(count("a-{9..11}-x.tar"), AllOf(StartsWith("files.read"), HasSubstr("a-11-x.tar")));
  for (const char* name : {"a-{10..9}-x.tar", "a-{9-10}-x.tar", "a-{9..10-x.tar", "a-{..}.tar",
                           "a-{1..99999999}.tar", "a-{x..y}.tar"}) {
    EXPECT_THAT(count(name), StartsWith("data.tar.options: got the path")) << name;
  }
  EXPECT_THAT(error_of([] { tar_shards({}, decode); }),
              StartsWith("data.tar.options: got 0 paths and a function"));
  EXPECT_THAT(error_of([] { tar_shards({"a.tar"}, nullptr); }),
              StartsWith("data.tar.options: got 1 paths and no function"));
}

TEST_F(TarShardFiles, CorruptArchivesAreErrors) {
  const std::string good = shard(1, 2);
  for (const size_t size : {1, 100, 511, 513, 1027}) {
    EXPECT_THAT(error(good.substr(0, size)), HasSubstr("is truncated")) << size;
  }
  std::string sum = good;
  sum[1] ^= 1;
  EXPECT_THAT(error(sum), AllOf(StartsWith("data.tar: "), HasSubstr("bad.tar"),
                                HasSubstr("the entry before offset 512 has a wrong checksum")));
  EXPECT_THAT(error(std::string(600, 'z')), HasSubstr("no number"));
  EXPECT_THAT(error("\x1f\x8b" + std::string(510, 'z')), StartsWith("data.tar: "));
  EXPECT_THAT(error(entry("a", "5 path", 'x') + kEnd), HasSubstr("a PAX header"));
  EXPECT_THAT(error(entry("a", "x path=1\n", 'x') + kEnd), HasSubstr("a PAX header"));
  EXPECT_THAT(error(entry("a", "10 size=x\n", 'x') + kEnd), HasSubstr("a PAX header"));
  EXPECT_THAT(error(entry("a", "", 'S') + kEnd), HasSubstr("sparse"));
  EXPECT_EQ(error(""), "no error");  // an archive without files
}

TEST_F(TarShardFiles, SamplesSayWhatTheyLack) {
  const std::string path = put("a.tar", entry("k.cls", "x1") + entry("k.txt", " 12\n") + kEnd);
  const auto read = [&](auto&& use) {
    const auto dataset = tar_shards({path}, [&](const TarSample& sample) {
      use(sample);
      return Sample();
    });
    return error_of([&] {
      Sample sample;
      dataset->open(0, {})->next(sample);
    });
  };
  EXPECT_EQ(read([](const TarSample& sample) { sample.bytes("jpg"); }),
            "data.tar.field: " + path + ": k has no file with the extension 'jpg', only cls, txt");
  EXPECT_EQ(read([](const TarSample& sample) { sample.integer("cls"); }),
            "data.tar.field: " + path +
                ": k: the file 'cls' is no integer; correct it or read it as text");
  EXPECT_EQ(read([](const TarSample& sample) {
              EXPECT_EQ(sample.integer("txt"), 12);
              EXPECT_EQ(sample.text("txt"), " 12\n");
            }),
            "no error");
}

}  // namespace
}  // namespace tar_shard_files
