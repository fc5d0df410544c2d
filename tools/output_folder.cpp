#include "tools/output_folder.h"

#include <nlohmann/json.hpp>

#include <system_error>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/posix.h"
#include "levin/base/reading/regular_file.h"
#include "levin/files/atomic.h"
#include "levin/files/folder.h"

namespace levin::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMark = "levin.json";
constexpr const char* kWrittenBy = "written_by";

bool is_marked(const fs::path& folder) {
  std::error_code unknown;
  if (fs::is_symlink(fs::symlink_status(folder / kMark, unknown))) return false;
  std::string ignored;
  const auto text = posix::read_text(folder / kMark, ignored);
  if (!text) return false;
  const auto mark =
      nlohmann::json::parse(detail::shallow_json(*text), nullptr, /*allow_exceptions=*/false);
  if (!mark.is_object() || !mark.contains(kWrittenBy) || !mark[kWrittenBy].is_string())
    return false;
  return mark[kWrittenBy].get_ref<const std::string&>().starts_with("levin ");
}

}  // namespace

void check_output_folder(const fs::path& folder, bool overwrite, const std::string& id) {
  std::error_code unknown;
  const fs::file_status there = fs::status(folder, unknown);
  if (there.type() == fs::file_type::not_found) return;
  LEVIN_CHECK(fs::is_directory(there), id, "--output: '{}' is no folder; name a new folder",
              folder.string());
  const auto entries = files::entries_of(folder);
  LEVIN_CHECK(entries.empty() || overwrite || is_marked(folder), id,
              "--output: '{}' holds '{}', and levin did not write that folder; name a new folder, "
              "or add --overwrite to replace files of the same names",
              folder.string(), entries.front().filename().string());
}

void mark_output_folder(const fs::path& folder, const std::string& command) {
  std::error_code error;
  fs::create_directories(folder, error);
  LEVIN_CHECK(!error, "files.write", "cannot make {}: {}", folder.string(),
              posix::reason(error.value()));
  const nlohmann::json mark = {{kWrittenBy, command}};
  files::write_file_atomically(folder / kMark, mark.dump() + "\n");
}

}  // namespace levin::tools
