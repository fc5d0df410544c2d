#pragma once
// What a fit, a validate or a test did, as lightning_record.py keeps it.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "levin/trainer/trainer.h"

namespace lightning_grid {

using nlohmann::json;

constexpr int64_t kBatchSize = 4;

/// Numbers that JSON has no form for stand as text, as Python writes them.
inline json number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

inline json metrics_of(const levin::Metrics& metrics) {
  json all = json::object();
  for (const auto& [name, value] : metrics) all[name] = number(value);
  return all;
}

/// Hooks as text: a letter each, with '+' where the global step and '^' where the epoch went on.
class Story {
 public:
  void tell(char hook, int64_t epoch, int64_t step) {
    if (epoch != epoch_) text_ += epoch == epoch_ + 1 ? "^" : fmt::format("<e{}>", epoch);
    if (step != step_) text_ += step == step_ + 1 ? "+" : fmt::format("<s{}>", step);
    epoch_ = epoch;
    step_ = step;
    text_ += hook;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int64_t epoch_ = 0;
  int64_t step_ = 0;
};

/// The batches that were read; those that follow one another stand as one, t0.0-3:0x4.
class Reading {
 public:
  /// Of so many ranks, each of which reads every so many-th sample.
  explicit Reading(int64_t ranks) : stride_(kBatchSize * ranks) {}
  void read(char kind, int64_t epoch, int64_t index, int64_t first, int64_t rows) {
    if (!stretches_.empty()) {
      Stretch& last = stretches_.back();
      const bool follows = last.kind == kind && last.epoch == epoch && last.to + 1 == index;
      const int64_t expected = last.first + stride_ * (index - last.from);
      if (follows && expected == first && last.rows == rows) {
        last.to = index;
        return;
      }
    }
    stretches_.push_back({kind, epoch, index, index, first, rows});
  }
  std::string text() const {
    std::string all;
    for (const Stretch& s : stretches_) {
      const std::string to = s.to == s.from ? "" : fmt::format("-{}", s.to);
      if (!all.empty()) all += ' ';
      all += fmt::format("{}{}.{}{}:{}x{}", s.kind, s.epoch, s.from, to, s.first, s.rows);
    }
    return all;
  }

 private:
  struct Stretch {
    char kind;
    int64_t epoch, from, to, first, rows;
  };
  int64_t stride_;
  std::vector<Stretch> stretches_;
};

/// What one fit, validate or test did.
struct Record {
  explicit Record(int64_t ranks) : reading(ranks) {}

  Story module, callback;
  Reading reading;
  json rates = json::array();
  json rows = json::array();
  json rate_rows = json::array();
  json metrics = json::array();
  json seen = json::object();

  void rate(const json& now) {
    if (!rates.empty() && rates.back()[0] == now) {
      rates.back()[1] = rates.back()[1].get<int64_t>() + 1;
    } else {
      rates.push_back({now, 1});
    }
  }
  /// callback_metrics: what is new in them since they were last looked at; null: what is gone.
  void look(const std::string& where, const json& all) {
    json changes = json::object();
    for (const auto& [name, value] : all.items()) {
      if (!seen.contains(name) || seen[name] != value) changes[name] = value;
    }
    for (const auto& [name, value] : seen.items()) {
      if (!all.contains(name)) changes[name] = nullptr;
    }
    seen = all;
    metrics.push_back({where, changes});
  }
  json facts() const {
    return {{"module", module.text()},
            {"callback", callback.text()},
            {"batches", reading.text()},
            {"rates", rates},
            {"rows", rows},
            {"rate_rows", rate_rows},
            {"metrics", metrics}};
  }
};

}  // namespace lightning_grid
