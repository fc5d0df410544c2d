#pragma once
// Names of files and folders in the making, and whether their maker still lives.
// Not for users.
//
//   .tmp-NAME@HOST-PID-START-RANDOM      what will become NAME
//   .old-NAME@HOST-PID-START-RANDOM      the NAME that is being replaced in two steps

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace levin::files::detail {

constexpr std::string_view kNew = ".tmp-";
constexpr std::string_view kOld = ".old-";

/// A new name beside final_path; kind is kNew or kOld.
std::filesystem::path staging_path(const std::filesystem::path& final_path, std::string_view kind);

struct Leftover {
  std::string_view kind;  ///< kNew or kOld
  std::string name;       ///< of the final path
};

/// What a file name says, if it is a staging name of this machine whose process has died.
std::optional<Leftover> leftover(const std::string& filename);

}  // namespace levin::files::detail
