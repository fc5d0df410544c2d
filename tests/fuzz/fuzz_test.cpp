// Each fuzzer over the files that it begins with, and their neighbours: cut, and with bits turned. What
// a fuzzer finds ends the process.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>

#include "tests/fuzz/seeds.h"
#include "tests/support/scratch.h"

extern "C" {
int levin_fuzz_arrays(const uint8_t* data, size_t size);
int levin_fuzz_checkpoint(const uint8_t* data, size_t size);
int levin_fuzz_exported(const uint8_t* data, size_t size);
int levin_fuzz_flight(const uint8_t* data, size_t size);
int levin_fuzz_graph(const uint8_t* data, size_t size);
int levin_fuzz_host_list(const uint8_t* data, size_t size);
int levin_fuzz_hostfile(const uint8_t* data, size_t size);
int levin_fuzz_idx(const uint8_t* data, size_t size);
int levin_fuzz_jpeg(const uint8_t* data, size_t size);
int levin_fuzz_loader(const uint8_t* data, size_t size);
int levin_fuzz_messages(const uint8_t* data, size_t size);
int levin_fuzz_options(const uint8_t* data, size_t size);
int levin_fuzz_pickle(const uint8_t* data, size_t size);
int levin_fuzz_png(const uint8_t* data, size_t size);
int levin_fuzz_records(const uint8_t* data, size_t size);
int levin_fuzz_replay(const uint8_t* data, size_t size);
int levin_fuzz_rows(const uint8_t* data, size_t size);
int levin_fuzz_safetensors(const uint8_t* data, size_t size);
int levin_fuzz_shards(const uint8_t* data, size_t size);
int levin_fuzz_state(const uint8_t* data, size_t size);
int levin_fuzz_tar(const uint8_t* data, size_t size);
int levin_fuzz_template(const uint8_t* data, size_t size);
int levin_fuzz_tokenizer(const uint8_t* data, size_t size);
int levin_fuzz_tokens(const uint8_t* data, size_t size);
}

namespace {

namespace fs = std::filesystem;

struct Fuzzer {
  const char* name;
  int (*read)(const uint8_t* data, size_t size);
};

constexpr Fuzzer kFuzzers[] = {{"arrays", levin_fuzz_arrays},
                               {"checkpoint", levin_fuzz_checkpoint},
                               {"exported", levin_fuzz_exported},
                               {"flight", levin_fuzz_flight},
                               {"graph", levin_fuzz_graph},
                               {"host_list", levin_fuzz_host_list},
                               {"hostfile", levin_fuzz_hostfile},
                               {"idx", levin_fuzz_idx},
                               {"jpeg", levin_fuzz_jpeg},
                               {"loader", levin_fuzz_loader},
                               {"messages", levin_fuzz_messages},
                               {"options", levin_fuzz_options},
                               {"pickle", levin_fuzz_pickle},
                               {"png", levin_fuzz_png},
                               {"records", levin_fuzz_records},
                               {"replay", levin_fuzz_replay},
                               {"rows", levin_fuzz_rows},
                               {"safetensors", levin_fuzz_safetensors},
                               {"shards", levin_fuzz_shards},
                               {"state", levin_fuzz_state},
                               {"tar", levin_fuzz_tar},
                               {"template", levin_fuzz_template},
                               {"tokenizer", levin_fuzz_tokenizer},
                               {"tokens", levin_fuzz_tokens}};

class Fuzzers : public ::testing::TestWithParam<Fuzzer> {};

TEST_P(Fuzzers, FindNothingBesideTheirSeeds) {
  constexpr int kTurned = 150, kCut = 40;
  const levin::test::Scratch scratch;
  levin::fuzz::put_seeds(scratch.path());
  const auto read = [&](const std::string& bytes) {
    return GetParam().read(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  };
  int64_t num_seeds = 0;
  // NOLINTNEXTLINE(bugprone-random-generator-seed): the same each time
  std::mt19937 random(0);
  for (const auto& entry : fs::directory_iterator(scratch / GetParam().name)) {
    const std::string seed = levin::test::get(entry.path());
    ASSERT_FALSE(seed.empty()) << entry.path();
    ++num_seeds;
    EXPECT_EQ(read(seed), 0);
    for (int i = 0; i < kCut; ++i) EXPECT_EQ(read(seed.substr(0, random() % seed.size())), 0);
    for (int i = 0; i < kTurned; ++i) {
      std::string other = seed;
      const auto bit = random() % (8 * other.size());
      other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << (bit % 8)));
      EXPECT_EQ(read(other), 0);
    }
  }
  EXPECT_GT(num_seeds, 0) << "no file to begin with";
}

INSTANTIATE_TEST_SUITE_P(All, Fuzzers, ::testing::ValuesIn(kFuzzers),
                         [](const auto& each) { return each.param.name; });

}  // namespace
