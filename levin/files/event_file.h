#pragma once
// EventFile: scalars and texts as TensorBoard reads them.
// The end of a metric's way: the TensorBoard logger of observe/ writes one in each run's folder.
//
//   EventFile events("levin_logs/run_0");
//   events.add_scalar("train_loss", 0.25, 100);
//   events.flush();                                    // TensorBoard sees it now

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "levin/base/export.h"
#include "levin/files/file_writer.h"

namespace levin::files {

/// A new file events.out.tfevents.TIME.HOST.PID.N of TFRecords with tensorflow.Event messages.
/// Every failure throws Error "files.write". wall_time_s is in seconds since 1970; unset: now.
class LEVIN_API EventFile {
 public:
  /// Makes the folder where it is missing.
  explicit EventFile(const std::filesystem::path& directory);
  /// Flushes; what cannot be written then is lost.
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// TensorBoard keeps the value as float.
  void add_scalar(std::string_view tag, double value, int64_t step,
                  std::optional<double> wall_time_s = std::nullopt);
  /// Markdown, in the tab "Text": hyperparameters, samples.
  void add_text(std::string_view tag, std::string_view text, int64_t step,
                std::optional<double> wall_time_s = std::nullopt);
  /// Marks that a run resumes here: TensorBoard drops that step and later ones from earlier files
  /// of the folder (purge_step of torch.utils.tensorboard).
  void add_session_start(int64_t step);
  /// Adds a Summary.Value message of any kind.
  void add_value(const std::string& value, int64_t step,
                 std::optional<double> wall_time_s = std::nullopt);
  /// Adds a GraphDef message.
  void add_graph(const std::string& graph);
  void flush();

 private:
  void write_record(const std::string& event);

  std::filesystem::path path_;
  FileWriter file_;
};

}  // namespace levin::files
