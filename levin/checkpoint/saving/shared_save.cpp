#include <ATen/ops/empty.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/posix.h"
#include "levin/checkpoint/saving/shared_save_impl.h"
#include "levin/checkpoint/saving/together_impl.h"

namespace levin::detail {
namespace {

namespace fs = std::filesystem;

std::string new_name() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

at::Tensor tensor_of(const std::vector<WrittenPiece>& pieces) {
  at::Tensor words = at::empty({std::ssize(pieces), 4}, at::kLong);
  auto* word = words.mutable_data_ptr<int64_t>();
  for (const WrittenPiece& piece : pieces) {
    *word++ = piece.file;
    *word++ = piece.begin;
    *word++ = piece.end;
    *word++ = static_cast<int64_t>(piece.xxh3);
  }
  return words;
}

std::vector<WrittenPiece> pieces_of(const at::Tensor& words) {
  std::vector<WrittenPiece> pieces;
  const auto* word = words.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < words.size(0); ++i, word += 4) {
    pieces.push_back({word[0], word[1], word[2], static_cast<uint64_t>(word[3])});
  }
  return pieces;
}

/// The tensor whose bytes lie there.
std::string tensor_at(const PlannedFile& file, int64_t byte) {
  for (const auto& place : file.tensors) {
    if (byte >= place.begin && byte < place.end) return place.name;
  }
  return "the header";
}

size_t num_tensors(const SavePlan& plan) {
  size_t count = 0;
  for (const PlannedFile& file : plan.files) count += file.tensors.size();
  return count;
}

}  // namespace

std::string sharers_of(const fs::path& folder, const SaveCheckpointOptions& options) {
  if (!options.save_on_each_node) return "";
  std::error_code error;
  return posix::host_name() + ":" + fs::absolute(folder, error).lexically_normal().string();
}

SharedSave::SharedSave(comm::ProcessGroup group, const std::function<Sources()>& own,
                       const std::function<SavePlan()>& make_plan, const std::string& sharers)
    : group_(std::move(group)) {
  const std::vector<State> words = together(group_, [&](State& word) {
    own_ = own();
    if (group_.rank() == 0) plan_ = make_plan();
    word.set("sharers", sharers);
  });
  if (group_.size() > 1) {
    State state = plan_.to_state().set("save", new_name());
    state = group_.broadcast(state, 0);
    plan_ = SavePlan::of(state);
    save_ = state.text("save");
  }
  std::map<std::string, int64_t> firsts;
  for (size_t i = 0; i < words.size(); ++i) {
    const auto rank = static_cast<int64_t>(i);
    if (firsts.emplace(words[i].text("sharers"), rank).second) first_ranks_.push_back(rank);
    if (words[i].text("sharers") == sharers) team_.push_back(rank);
  }
}

// The files are not looked for here: who cannot open them says so when it writes.
void SharedSave::stage(const std::function<std::vector<fs::path>(const SavePlan&)>& make_files) {
  const std::vector<State> words = together(group_, [&](State& word) {
    if (is_first()) {
      const std::vector<fs::path> made = make_files(plan_);
      word.set("places", state_of_texts({made.begin(), made.end()}));
    }
    if (group_.size() == 1) return;
    word.set("values", values_of(plan_, own_, group_.rank()));
    word.set("shards", shards_of(plan_, own_));
  });
  const auto places = texts_in(words[static_cast<size_t>(team_.front())].child("places"));
  places_.assign(places.begin(), places.end());
  note_failure([&] {
    std::vector<at::Tensor> values;
    for (const State& word : words) {
      if (group_.size() > 1) values.push_back(word.tensor("values"));
    }
    const std::vector<bool> held =
        values.empty() ? std::vector<bool>(num_tensors(plan_), true) : held_by_all(plan_, values);
    const auto place = std::ranges::find(team_, group_.rank()) - team_.begin();
    std::vector<Replicas> replicas(held.size());
    if (group_.size() > 1) {
      std::vector<at::Tensor> shards;
      for (const int64_t rank : team_) {
        shards.push_back(words[static_cast<size_t>(rank)].tensor("shards"));
      }
      replicas = replicas_in(shards, place);
    }
    pieces_ = own_pieces(plan_, own_, held, replicas, place, std::ssize(team_));
  });
  own_.clear();
}

void SharedSave::copy_into(SaveBuffer& buffer) {
  // State that is in a file, for it does not fit into memory, is written at once and not copied.
  const auto in_memory = std::stable_partition(pieces_.begin(), pieces_.end(), is_in_scratch);
  std::vector<OwnPiece> rest(in_memory, pieces_.end());
  pieces_.erase(in_memory, pieces_.end());
  if (!pieces_.empty()) write();
  pieces_ = std::move(rest);
  note_failure([&] { detail::copy_into(buffer, pieces_); });
}

void SharedSave::write() {
  note_failure([&] {
    std::error_code error;
    LEVIN_CHECK(places_.empty() || fs::exists(places_.front(), error), "files.write",
                "{} does not exist here, although another rank made it; give a folder that all "
                "hosts share, or set save_on_each_node",
                places_.front().string());
    for (WrittenPiece& piece : write_pieces(plan_, places_, pieces_)) written_.push_back(piece);
    pieces_.clear();
  });
}

void SharedSave::note_failure(const std::function<void()>& body) {
  if (failure_) return;
  try {
    body();
  } catch (...) {
    failure_ = std::current_exception();
  }
}

void SharedSave::finish(const std::function<void(const Manifest&)>& commit) {
  const std::vector<State> words = together(group_, [&](State& word) {
    if (failure_) std::rethrow_exception(failure_);
    word.set("pieces", tensor_of(written_));
  });
  together(group_, [&](State&) {
    if (is_first()) commit(manifest_of(words));
  });
}

std::vector<SharedSave::Entry> SharedSave::entries_in(const std::vector<State>& words) const {
  std::vector<Entry> all;
  for (size_t rank = 0; rank < words.size(); ++rank) {
    const bool is_here = std::ranges::find(team_, static_cast<int64_t>(rank)) != team_.end();
    for (const WrittenPiece& piece : pieces_of(words[rank].tensor("pieces"))) {
      all.push_back({piece, is_here});
    }
  }
  // A piece that other hosts have too is sorted behind this host's own, and is left out.
  std::ranges::sort(all, {}, [](const Entry& entry) {
    return std::tuple(entry.piece.file, entry.piece.begin, !entry.is_here);
  });
  const auto is_copy = [&](const Entry& a, const Entry& b) {
    return !b.is_here && a.piece.file == b.piece.file && a.piece.begin == b.piece.begin &&
           a.piece.end == b.piece.end;
  };
  if (first_ranks_.size() > 1) all.erase(std::unique(all.begin(), all.end(), is_copy), all.end());
  return all;
}

Manifest SharedSave::manifest_of(const std::vector<State>& words) const {
  Manifest manifest;
  for (const PlannedFile& file : plan_.files) manifest.files[file.name].size = file.size;
  manifest.weights = plan_.weights;
  std::vector<int64_t> ends(plan_.files.size(), 0);
  const auto check_none_missing = [&](size_t index, int64_t next) {
    const PlannedFile& file = plan_.files[index];
    LEVIN_CHECK(ends[index] >= next, "checkpoint.slice",
                "no rank has the bytes from {} on of {}, in '{}'; let a rank hold each row",
                ends[index], file.name, tensor_at(file, ends[index]));
  };
  for (const auto& [piece, is_here] : entries_in(words)) {
    const auto index = static_cast<size_t>(piece.file);
    const PlannedFile& file = plan_.files[index];
    check_none_missing(index, piece.begin);
    LEVIN_CHECK(piece.begin == ends[index], "checkpoint.slice",
                "two ranks have the bytes from {} on of {}, in '{}'; let one rank hold each row",
                piece.begin, file.name, tensor_at(file, piece.begin));
    manifest.files[file.name].pieces.push_back({piece.end, piece.xxh3, is_here});
    ends[index] = piece.end;
  }
  for (size_t i = 0; i < ends.size(); ++i) check_none_missing(i, plan_.files[i].size);
  if (first_ranks_.size() > 1) {
    const auto place = std::ranges::find(first_ranks_, team_.front()) - first_ranks_.begin();
    manifest.part = Part{save_, place, std::ssize(first_ranks_)};
  }
  return manifest;
}

}  // namespace levin::detail
