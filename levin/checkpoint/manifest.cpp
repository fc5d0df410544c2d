#include <nlohmann/json.hpp>

#include <charconv>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/options.h"
#include "levin/checkpoint/manifest_impl.h"
#include "levin/files/checksum.h"
#include "levin/files/file_writer.h"
#include "levin/files/read_file.h"

namespace levin::detail {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// 1: each file is one piece, each file of weights a model. 2: pieces, models of several files.
constexpr int kFormat = 2;
constexpr std::string_view kElsewhere = " elsewhere";

/// A hash of the manifest's own content, so that a flipped bit shows there too.
std::string seal(const json& manifest) {
  const std::string text = manifest.dump(-1, ' ', false, json::error_handler_t::replace);
  return fmt::format("{:016x}", files::xxh3(std::as_bytes(std::span(text.data(), text.size()))));
}

bool is_name_of_a_checkpoint(const std::string& name) {
  const bool has_form = name.ends_with(kWeightsSuffix) || name.ends_with(kIndexSuffix);
  return name == kTrainingJson || (is_plain_name(name) && has_form);
}

bool is_weights(const std::string& name) {
  return name.ends_with(kWeightsSuffix) && name != kTrainingTensors;
}

/// "END XXH3", with " elsewhere" behind it for a piece of another host.
std::string text_of(const Piece& piece) {
  return fmt::format("{} {:016x}{}", piece.end, piece.xxh3, piece.is_here ? "" : kElsewhere);
}

/// Takes a number off the front of the text.
template <class T>
bool take_number(std::string_view& text, T& number, int base) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number, base);
  text.remove_prefix(static_cast<size_t>(stop - text.data()));
  return error == std::errc();
}

std::optional<Piece> piece_of(const json& written) {
  if (!written.is_string()) return std::nullopt;
  std::string_view text = written.get_ref<const std::string&>();
  Piece piece;
  const bool has_end = take_number(text, piece.end, 10) && text.starts_with(' ');
  if (!has_end) return std::nullopt;
  text.remove_prefix(1);
  if (!take_number(text, piece.xxh3, 16)) return std::nullopt;
  piece.is_here = text != kElsewhere;
  const bool is_whole = text.empty() || !piece.is_here;
  return is_whole ? std::optional(piece) : std::nullopt;
}

/// Pieces that cover the file, or nothing.
std::optional<std::vector<Piece>> pieces_in(const json& list, int64_t size) {
  if (!list.is_array()) return std::nullopt;
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (const json& written : list) {
    const std::optional<Piece> piece = piece_of(written);
    if (!piece || piece->end <= begin) return std::nullopt;
    begin = piece->end;
    pieces.push_back(*piece);
  }
  return begin == size ? std::optional(std::move(pieces)) : std::nullopt;
}

/// Reads an entry of format 1, which has one checksum of the file instead of pieces.
std::optional<std::vector<Piece>> whole_piece(const json& entry, int64_t size) {
  if (!entry.contains("xxh3") || !entry["xxh3"].is_string()) return std::nullopt;
  return pieces_in(json::array({fmt::format("{} {}", size, entry["xxh3"].get<std::string>())}),
                   size);
}

ListedFile file_in(const json& entry, int format, const fs::path& file, const std::string& name) {
  ListedFile listed;
  std::optional<std::vector<Piece>> pieces;
  if (entry.is_object() && entry.contains("size") && entry["size"].is_number_integer()) {
    listed.size = entry["size"].get<int64_t>();
    pieces = format == 1 ? whole_piece(entry, listed.size)
                         : pieces_in(entry.value("pieces", json()), listed.size);
  }
  if (!pieces || listed.size < 0) {
    fail_corrupt(file, fmt::format("it lacks the size and checksums of '{}'", name));
  }
  listed.pieces = std::move(*pieces);
  return listed;
}

void read_weights(Manifest& manifest, const json& all, const fs::path& file) {
  const json weights = all.value("weights", json());
  if (!weights.is_object()) fail_corrupt(file, "it does not list its weights");
  for (const auto& [model, names] : weights.items()) {
    bool are_listed = is_plain_name(model) && names.is_array();
    for (const json& name : are_listed ? names : json::array()) {
      are_listed = name.is_string() && is_weights(name.get<std::string>()) &&
                   manifest.files.contains(name.get<std::string>());
      if (!are_listed) break;
      manifest.weights[model].push_back(name.get<std::string>());
    }
    if (!are_listed) {
      fail_corrupt(file, fmt::format("it does not list the files of the weights '{}'", model));
    }
  }
}

void read_part(Manifest& manifest, const json& all, const fs::path& file) {
  if (!all.contains("part")) return;
  const json& part = all["part"];
  const bool is_whole = part.is_object() && part.contains("save") && part["save"].is_string() &&
                        part.contains("index") && part["index"].is_number_integer() &&
                        part.contains("count") && part["count"].is_number_integer();
  if (!is_whole) fail_corrupt(file, "it does not name the host of its part");
  manifest.part = Part{part["save"], part["index"], part["count"]};
}

int format_of(const json& all, const fs::path& file) {
  const json format = all.value("format", json());
  const bool is_known = format.is_number_integer() && format >= 1;
  if (!is_known) fail_corrupt(file, "it lacks its format number");
  LEVIN_CHECK(format <= kFormat, "checkpoint.version",
              "{}: it has format {}, but this levin reads formats up to {}; load it with the levin "
              "that saved it, or a newer one",
              printable(file.string()), format.dump(), kFormat);
  return format.get<int>();
}

/// The manifest's text as JSON, with a seal that is its own.
json sealed_json(const std::string& text, const fs::path& file) {
  json all = json::parse(shallow_json(text), nullptr, /*allow_exceptions=*/false);
  if (!all.is_object() || !all.contains("seal") || !all["seal"].is_string()) {
    fail_corrupt(file, "it is not a manifest");
  }
  const std::string sealed = all["seal"];
  all.erase("seal");
  if (sealed != seal(all)) fail_corrupt(file, "its content does not match its own checksum");
  return all;
}

}  // namespace

void fail_corrupt(const fs::path& file, std::string_view reason) {
  LEVIN_FAIL("checkpoint.corrupt", "{}: {}; nothing was loaded, resume from another checkpoint",
             printable(file.string()), printable(reason));
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

void write_manifest(const fs::path& folder, const Manifest& manifest) {
  json listed = json::object();
  for (const auto& [name, file] : manifest.files) {
    json pieces = json::array();
    for (const Piece& piece : file.pieces) pieces.push_back(text_of(piece));
    listed[name] = {{"size", file.size}, {"pieces", std::move(pieces)}};
  }
  json all = {
      {"format", kFormat}, {"files", std::move(listed)}, {"weights", json(manifest.weights)}};
  if (const auto& part = manifest.part) {
    all["part"] = {{"save", part->save}, {"index", part->index}, {"count", part->count}};
  }
  all["seal"] = seal(all);
  files::FileWriter writer(folder / kManifestName);
  writer.write(all.dump(1));
  writer.close();
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path file = folder / kManifestName;
  std::error_code error;
  LEVIN_CHECK(fs::is_directory(folder, error), "checkpoint.missing",
              "the checkpoint folder '{}' does not exist", folder.string());
  const fs::file_status there = fs::symlink_status(file, error);
  LEVIN_CHECK(fs::exists(there), "checkpoint.missing",
              "'{}' holds no {}, so it is not a complete checkpoint of levin", folder.string(),
              kManifestName);
  if (!fs::is_regular_file(there)) fail_corrupt(file, "it is a link or not a regular file");
  const json all = sealed_json(files::read_file(file), file);
  const int format = format_of(all, file);
  if (!all.contains("files") || !all["files"].is_object()) fail_corrupt(file, "it lists no files");
  Manifest manifest;
  for (const auto& [name, entry] : all["files"].items()) {
    if (!is_name_of_a_checkpoint(name)) {
      fail_corrupt(file,
                   fmt::format("it lists '{}', which is not a file name of a checkpoint", name));
    }
    manifest.files[name] = file_in(entry, format, file, name);
    if (format == 1 && is_weights(name)) {
      manifest.weights[fs::path(name).stem().string()] = {name};
    }
  }
  for (const char* name : {kTrainingJson, kTrainingTensors}) {
    if (!manifest.files.contains(name)) {
      fail_corrupt(file, fmt::format("it does not list {}", name));
    }
  }
  if (format > 1) {
    read_weights(manifest, all, file);
    read_part(manifest, all, file);
  }
  return manifest;
}

}  // namespace levin::detail
