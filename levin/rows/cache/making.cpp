#include "levin/rows/cache/making.h"

#include <algorithm>
#include <thread>
#include <vector>

#include "levin/base/check.h"
#include "levin/observe/progress.h"
#include "levin/rows/cache/in_order.h"
#include "levin/rows/cache/token_writer.h"
#include "levin/rows/recipes/recipe.h"

namespace levin::text::row {
namespace {

constexpr int64_t kRowsAtOnce = 64;

struct Piece {
  std::vector<Made> rows;
  std::vector<std::string> places;
};

/// Makes the tokens of a row, and adds the row's place to errors of the tokenizer or a template.
Made made_of(const Recipe& recipe, const data::Record& record, const std::string& place) {
  try {
    return recipe.make(record);
  } catch (const Error& error) {
    if (std::string_view(error.text()).starts_with(place)) throw;
    throw Error(error.id(), place + ": " + error.text());
  }
}

int64_t threads_for(const Wanted& wanted) {
  const int64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const int64_t given = wanted.plan.options.num_threads;
  const int64_t pieces = (wanted.records.size() + kRowsAtOnce - 1) / kRowsAtOnce;
  return std::clamp<int64_t>(given == 0 ? cores : given, 1, std::max<int64_t>(pieces, 1));
}

/// Returns the labels that label_names or another file give.
std::optional<LabelSet> known_labels(const Wanted& wanted) {
  if (wanted.known) return wanted.known;
  const std::vector<std::string>& names = wanted.plan.options.label_names;
  if (names.empty()) return std::nullopt;
  return LabelSet{.kind = LabelKind::kClasses, .count = std::ssize(names), .names = names};
}

}  // namespace

void make_tokens(const Wanted& wanted, const std::filesystem::path& path,
                 const std::string& fingerprint) {
  const data::Records& records = wanted.records;
  const auto recipe = make_recipe(wanted.plan, records.read(0), wanted.tokenizer);
  TokenWriter writer(path, wanted.plan, recipe->parts(), known_labels(wanted), records.has_kinds());
  const int64_t rows = records.size();
  const auto work = [&](int64_t number) {
    Piece piece;
    const int64_t end = std::min((number + 1) * kRowsAtOnce, rows);
    for (int64_t i = number * kRowsAtOnce; i < end; ++i) {
      const data::Record record = records.read(i);
      piece.places.push_back(record.where());
      piece.rows.push_back(made_of(*recipe, record, piece.places.back()));
    }
    return piece;
  };
  const std::string name = records.path().filename().string();
  ProgressLine line;
  line.start("tokenizing " + name, rows);
  InOrder<Piece> pieces((rows + kRowsAtOnce - 1) / kRowsAtOnce, threads_for(wanted), work);
  while (auto piece = pieces.next()) {
    for (size_t i = 0; i < piece->rows.size(); ++i) {
      writer.add(piece->rows[i], piece->places[i]);
      if (line.advance()) line.draw({});
    }
  }
  line.clear();
  writer.commit(fingerprint, records.path());
}

}  // namespace levin::text::row
