#define XXH_INLINE_ALL
#include <nlohmann/json.hpp>
#include <xxhash.h>

#include <charconv>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/text.h"
#include "levin/checkpoint/manifest_impl.h"
#include "levin/files/read_file.h"

namespace levin::detail {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr std::string_view kWeightsSuffix = ".safetensors";

/// A hash of the manifest's own content, so that a flipped bit shows there too.
std::string seal(const json& manifest) {
  const std::string text = manifest.dump(-1, ' ', false, json::error_handler_t::replace);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

bool is_name_of_a_checkpoint(const std::string& name) {
  return name == kTrainingJson || (is_plain_name(name) && name.ends_with(kWeightsSuffix));
}

files::FileDigest digest_in(const json& entry, const fs::path& file, const std::string& name) {
  files::FileDigest digest;
  const bool has_both = entry.is_object() && entry.contains("size") && entry.contains("xxh3") &&
                        entry["size"].is_number_integer() && entry["xxh3"].is_string();
  if (has_both) {
    const auto& text = entry["xxh3"].get_ref<const std::string&>();
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), digest.xxh3, 16);
    digest.size = entry["size"].get<int64_t>();
    const bool is_whole = error == std::errc() && end == text.data() + text.size();
    if (is_whole && digest.size >= 0) return digest;
  }
  fail_corrupt(file, fmt::format("it does not say the size and checksum of '{}'", name));
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
  json written = json::object();
  for (const auto& [name, digest] : manifest) {
    written[name] = {{"size", digest.size}, {"xxh3", fmt::format("{:016x}", digest.xxh3)}};
  }
  json all = {{"format", kFormat}, {"files", std::move(written)}};
  all["seal"] = seal(all);
  files::FileWriter writer(folder / kManifestName);
  writer.write(all.dump(1));
  writer.close();
}

Manifest read_manifest(const fs::path& folder) {
  const fs::path file = folder / kManifestName;
  std::error_code error;
  LEVIN_CHECK(fs::is_directory(folder, error), "checkpoint.missing", "no checkpoint folder '{}'",
              folder.string());
  const fs::file_status there = fs::symlink_status(file, error);
  LEVIN_CHECK(fs::exists(there), "checkpoint.missing",
              "'{}' holds no {}, so it is no complete checkpoint of levin", folder.string(),
              kManifestName);
  if (!fs::is_regular_file(there)) fail_corrupt(file, "it is a link or no file");
  const std::string text = files::read_file(file);
  json all = json::parse(shallow_json(text), nullptr, /*allow_exceptions=*/false);
  if (!all.is_object() || !all.contains("seal") || !all["seal"].is_string()) {
    fail_corrupt(file, "it is no manifest");
  }
  const std::string sealed = all["seal"];
  all.erase("seal");
  if (sealed != seal(all)) fail_corrupt(file, "its content does not match its own checksum");
  const json format = all.value("format", json());
  if (format != kFormat) {
    fail_corrupt(file, fmt::format("format {} is of another version of levin, wanted {}",
                                   format.dump(), kFormat));
  }
  if (!all.contains("files") || !all["files"].is_object()) fail_corrupt(file, "it lists no files");
  Manifest manifest;
  for (const auto& [name, entry] : all["files"].items()) {
    if (!is_name_of_a_checkpoint(name)) {
      fail_corrupt(file, fmt::format("it lists '{}', which is no file of a checkpoint", name));
    }
    manifest[name] = digest_in(entry, file, name);
  }
  for (const char* name : {kTrainingJson, kTrainingTensors}) {
    if (!manifest.contains(name)) fail_corrupt(file, fmt::format("it does not list {}", name));
  }
  return manifest;
}

}  // namespace levin::detail
