#pragma once
// ProgramTable: programs by the graphs that they were lowered from, so that a graph equal to an
// earlier one needs no lowering. Graphs are compared exactly, never by a hash alone.
//
//   const KnownProgram* known = table.find(graph, split_dim);
//   if (known == nullptr) table.add({.program = lower(graph, ...), .executable = ...});

#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <vector>

#include "levin/base/export.h"
#include "levin/xla/stablehlo/program.h"

namespace levin::xla {
namespace pjrt {
class Executable;
}

/// Returns how an input lies on the devices, as LowerOptions::split_dim.
using SplitDim = std::function<int64_t(const graph::Node&)>;

/// A graph as numbers: its operators, types and constants, and which value goes where.
class GraphKey {
 public:
  /// False for a graph with a constant that has no numbers, which is like no other.
  bool assign(const graph::Graph& graph, const SplitDim& split_dim);

  uint64_t hash() const { return hash_; }
  const std::vector<uint64_t>& words() const { return words_; }
  /// Single numbers among the arguments, to the bit: a program may take one anew in each run.
  struct Number {
    uint64_t bits = 0;
    bool is_integer = false;
    uint32_t node = 0, argument = 0;
    double value() const;
  };
  const std::vector<Number>& numbers() const { return numbers_; }
  const graph::Node* node(size_t place) const { return nodes_[place]; }
  uint32_t place_of(const graph::Node& node) const;
  std::optional<size_t> number_of(const graph::Node& node, size_t argument) const;

 private:
  class Writer;
  uint64_t hash_ = 0;
  std::vector<uint64_t> words_;
  std::vector<Number> numbers_;
  std::vector<const graph::Node*> nodes_;
  ska::flat_hash_map<const graph::Value*, uint64_t> places_;
};

struct KnownProgram {
  Program program;
  const pjrt::Executable* executable = nullptr;
};

class LEVIN_API ProgramTable {
 public:
  /// capacity: number of programs to keep, the most recently used ones.
  explicit ProgramTable(size_t capacity = 64);
  ~ProgramTable();
  ProgramTable(const ProgramTable&) = delete;
  ProgramTable& operator=(const ProgramTable&) = delete;

  /// Returns a program that computes the graph, with inputs and outputs of this graph until the
  /// next call; nullptr if there is none. All graphs must be lowered with the same options, except
  /// for how inputs lie on the devices.
  const KnownProgram* find(const graph::Graph& graph, const SplitDim& split_dim);
  /// Adds the program of the graph that find() got last and did not know. The result is valid until
  /// the next call; it is kept longer unless the graph has a constant that cannot be compared.
  const KnownProgram& add(KnownProgram known);
  size_t size() const { return entries_.size(); }

 private:
  struct Entry;
  std::list<Entry> entries_;  ///< the last that was asked for first
  GraphKey key_;
  bool has_key_ = false;
  KnownProgram not_kept_;
  size_t capacity_;
};

}  // namespace levin::xla
