// Texts as tokens by levin: for tokenizing.py, which verifies the ids and measures Python's tokenizers beside it.
//
//   peer_tokenizer TOKENIZER.json REPETITIONS
//   peer_tokenizer TOKENIZER.json TEXTS REPETITIONS
//
// The first prints the seconds of processor time that it takes to open the file, the best of the repetitions. TEXTS has
// a text a line; of them JSON is printed: seconds of processor time of ids alone and with offsets; how many times as
// fast two threads are as one, by the clock on the wall, with ids alone: into new encodings, into those of the call
// before, and of a loop that takes as long and touches no memory, which is what the machine gives; and the CRC-32 of all
// ids one after the other.
#include "levin/text/tokenizer.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using levin::text::EncodeOptions;
using levin::text::Encoding;
using levin::text::OffsetUnit;
using levin::text::Tokenizer;

template <class Work>
double processor_seconds(const Work& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

template <class Work>
double wall_seconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Nothing but arithmetic, each step waiting for the one before.
uint64_t spin(int64_t steps) {
  uint64_t value = 1;
  for (int64_t i = 0; i < steps; ++i) {
    value = value * 6364136223846793005U + static_cast<uint64_t>(i);
  }
  return value;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::cerr << "usage: peer_tokenizer TOKENIZER.json [TEXTS] REPETITIONS\n";
    return 2;
  }
  if (argc == 3) {
    double least = 1e9;
    for (int i = 0; i < std::stoi(argv[2]); ++i) {
      std::optional<Tokenizer> opened;  // outlives the measurement
      least = std::min(least, processor_seconds([&] { opened = Tokenizer::from_file(argv[1]); }));
    }
    std::cout << least << '\n';
    return 0;
  }
  Tokenizer tokenizer = Tokenizer::from_file(argv[1]);
  tokenizer.set_truncation(std::nullopt);
  tokenizer.set_padding(std::nullopt);
  std::vector<std::string> texts;
  std::ifstream in(argv[2], std::ios::binary);
  for (std::string line; std::getline(in, line);) texts.push_back(line);
  const auto best = [&](const auto& seconds, const EncodeOptions& options) {
    double least = 1e9;
    for (int i = 0; i < std::stoi(argv[3]); ++i) {
      least = std::min(least, seconds([&] { tokenizer.encode_batch(texts, options); }));
    }
    return least;
  };
  const auto processor = [](const auto& work) { return processor_seconds(work); };
  // In turn, so that a machine that slows down slows both.
  std::vector<double> threads;
  std::vector<double> threads_out;
  std::vector<double> loop;
  std::vector<Encoding> encodings;
  std::atomic<uint64_t> sink = 0;  // so that the loop is run
  constexpr int64_t kSteps = 4'000'000;
  const double second_per_step = wall_seconds([&] { sink += spin(kSteps); }) / kSteps;
  for (int i = 0; i < 2 * std::stoi(argv[3]) + 1; ++i) {
    const auto encode = [&](int64_t num_threads) {
      return wall_seconds([&] {
        tokenizer.encode_batch(texts, {.offsets = OffsetUnit::kNone, .num_threads = num_threads});
      });
    };
    const auto encode_out = [&](int64_t num_threads) {
      return wall_seconds([&] {
        tokenizer.encode_batch_out(encodings, texts,
                                   {.offsets = OffsetUnit::kNone, .num_threads = num_threads});
      });
    };
    const double one = encode(1);
    threads.push_back(one / encode(2));
    if (i == 0) encode_out(1);
    const double one_out = encode_out(1);
    threads_out.push_back(one_out / encode_out(2));
    const auto half = static_cast<int64_t>(one / second_per_step / 2);
    const double alone = wall_seconds([&] { sink += spin(2 * half); });
    loop.push_back(alone / wall_seconds([&] {
                     const std::jthread other([&] { sink += spin(half); });
                     sink += spin(half);
                   }));
  }
  uLong sum = 0;
  for (const Encoding& encoding : tokenizer.encode_batch(texts, {.offsets = OffsetUnit::kNone})) {
    sum = crc32(sum, reinterpret_cast<const Bytef*>(encoding.ids.data()),
                static_cast<uInt>(encoding.ids.size() * sizeof(int32_t)));
  }
  std::cout << fmt::format(R"({{"ids": {}, "offsets": {}, "threads": {}, "threads_out": {}, )"
                           R"("loop": {}, "sum": {}}})"
                           "\n",
                           best(processor, {.offsets = OffsetUnit::kNone, .num_threads = 1}),
                           best(processor, {.offsets = OffsetUnit::kCodePoints, .num_threads = 1}),
                           median(threads), median(threads_out), median(loop), sum);
  return 0;
}
