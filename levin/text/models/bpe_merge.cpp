// The merges of a piece, in the order of their ranks, and from left to right within one.
#include <algorithm>

#include "levin/text/models/bpe.h"

namespace levin::text {
namespace {

constexpr size_t kFew = 40;

/// Smallest rank first, then the leftmost.
uint64_t entry(uint32_t rank, size_t at) { return static_cast<uint64_t>(rank) << 32 | at; }

}  // namespace

void Bpe::look_up(Symbol& left, const Symbol& right) const {
  const MergeTable::Merge& found = merges_.find(left.id, right.id);
  left.rank = found.rank;
  left.merged = found.id;
}

void Bpe::merge(ModelMemory& memory) const {
  std::vector<Symbol>& symbols = memory.symbols;
  if (symbols.size() < 2 || dropout_ >= 1.0) return;
  for (size_t i = 0; i + 1 < symbols.size(); ++i) look_up(symbols[i], symbols[i + 1]);
  symbols.back().rank = MergeTable::kNever;
  if (symbols.size() <= kFew && dropout_ == 0.0) {
    merge_few(symbols);
  } else {
    merge_many(memory);
  }
}

/// Looks through all for the next one: for the length of words faster than any queue.
void Bpe::merge_few(std::vector<Symbol>& symbols) const {
  Symbol* const first = symbols.data();
  size_t size = symbols.size();
  while (true) {
    uint32_t best = MergeTable::kNever;
    size_t at = 0;
    for (size_t i = 0; i + 1 < size; ++i) {
      if (first[i].rank < best) {
        best = first[i].rank;
        at = i;
      }
    }
    if (best == MergeTable::kNever) break;
    first[at].id = first[at].merged;
    first[at].size += first[at + 1].size;
    std::copy(first + at + 2, first + size, first + at + 1);
    --size;
    if (at + 1 < size) {
      look_up(first[at], first[at + 1]);
    } else {
      first[at].rank = MergeTable::kNever;
    }
    if (at > 0) look_up(first[at - 1], first[at]);
  }
  symbols.resize(size);
}

/// Over a queue. An entry is of account as long as the pair at its place is the one that it was made for.
void Bpe::merge_many(ModelMemory& memory) const {
  std::vector<Symbol>& symbols = memory.symbols;
  std::vector<uint64_t>& queue = memory.queue;
  std::vector<uint64_t> skipped;  // by dropout
  queue.clear();
  const auto size = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < size; ++i) {
    Symbol& symbol = symbols[static_cast<size_t>(i)];
    symbol.previous = i - 1;
    symbol.next = i + 1 < size ? i + 1 : -1;
    if (symbol.rank != MergeTable::kNever)
      queue.push_back(entry(symbol.rank, static_cast<size_t>(i)));
  }
  const auto later = std::greater<>();
  std::ranges::make_heap(queue, later);
  const auto put = [&](int32_t place) {
    Symbol& left = symbols[static_cast<size_t>(place)];
    look_up(left, symbols[static_cast<size_t>(left.next)]);
    if (left.rank == MergeTable::kNever) return;
    queue.push_back(entry(left.rank, static_cast<size_t>(place)));
    std::ranges::push_heap(queue, later);
  };
  std::uniform_real_distribution<double> chance;
  while (!queue.empty()) {
    const uint64_t top = queue.front();
    std::ranges::pop_heap(queue, later);
    queue.pop_back();
    if (dropout_ > 0.0) {
      if (chance(memory.random) < dropout_) {
        skipped.push_back(top);
        continue;
      }
      for (const uint64_t one : skipped) {
        queue.push_back(one);
        std::ranges::push_heap(queue, later);
      }
      skipped.clear();
    }
    const auto place = static_cast<int32_t>(top & 0xffffffff);
    Symbol& left = symbols[static_cast<size_t>(place)];
    if (left.size == 0 || left.next < 0 || left.rank != top >> 32) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = left.merged;
    left.size += right.size;
    right.size = 0;
    left.next = right.next;
    left.rank = MergeTable::kNever;
    if (left.next >= 0) {
      symbols[static_cast<size_t>(left.next)].previous = place;
      put(place);
    }
    if (left.previous >= 0) put(left.previous);
  }
  std::erase_if(symbols, [](const Symbol& symbol) { return symbol.size == 0; });
}

}  // namespace levin::text
