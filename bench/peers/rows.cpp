// A file of texts as packed rows by levin: for rows.py, which measures datasets.map and TRL's packing beside it.
//
//   peer_rows FILE.jsonl TOKENIZER MAX_LENGTH THREADS CACHE
//
// TOKENIZER is a folder of transformers, CACHE a folder that is empty. Prints JSON: seconds on the wall until the rows can
// be read, and until they can once more, out of the cache; tokens and packed rows.
#include "levin/rows/rows.h"

#include <fmt/format.h>

#include <chrono>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: peer_rows FILE.jsonl TOKENIZER MAX_LENGTH THREADS CACHE\n";
    return 2;
  }
  using levin::text::Tokenizer;
  const auto tokenizer = Tokenizer::from_pretrained(argv[2]);
  levin::text::RowsReport report;
  const auto seconds = [&] {
    const auto begin = std::chrono::steady_clock::now();
    report = levin::text::rows(argv[1], tokenizer,
                               {.packing = true,
                                .max_length = std::stoll(argv[3]),
                                .num_threads = std::stoll(argv[4]),
                                .cache_dir = argv[5]})
                 ->report();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const double made = seconds();
  const bool was_there = report.from_cache;
  const double opened = seconds();
  if (was_there || !report.from_cache) {
    std::cerr << "the cache was not empty, or was not used\n";
    return 1;
  }
  std::cout << fmt::format(R"({{"made": {}, "opened": {}, "tokens": {}, "rows": {}}})"
                           "\n",
                           made, opened, report.tokens, report.samples);
  return 0;
}
