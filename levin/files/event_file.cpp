#include "levin/files/event_file.h"

#include <boost/crc.hpp>
#include <fcntl.h>
#include <protozero/pbf_writer.hpp>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "levin/base/check.h"
#include "levin/base/posix.h"

namespace levin::files {
namespace {

// Field numbers of tensorflow's event.proto, summary.proto, tensor.proto and tensor_shape.proto.
constexpr uint32_t kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventGraph = 4,
                   kEventSummary = 5, kEventSessionLog = 7;
constexpr uint32_t kSessionStatus = 1;
constexpr int32_t kSessionStart = 1;
constexpr uint32_t kSummaryValue = 1;
constexpr uint32_t kValueTag = 1, kValueSimple = 2, kValueTensor = 8, kValueMetadata = 9;
constexpr uint32_t kMetadataPlugin = 1, kMetadataDataClass = 4;
constexpr uint32_t kPluginName = 1;
constexpr uint32_t kTensorDtype = 1, kTensorShape = 2, kTensorStrings = 8;
constexpr uint32_t kShapeDim = 2, kDimSize = 1;
constexpr int32_t kDataClassTensor = 2, kDtString = 7;

using protozero::pbf_writer;

double now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// CRC-32C, rotated and offset so that the checksum of data that holds checksums stays good
/// (tensorflow/tsl/lib/hash/crc32c.h).
uint32_t masked_crc(std::string_view bytes) {
  boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true> crc;
  crc.process_bytes(bytes.data(), bytes.size());
  const uint32_t sum = crc.checksum();
  return ((sum >> 15) | (sum << 17)) + 0xa282ead8U;
}

template <class Number>
std::string little_endian(Number number) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(Number); ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
  return bytes;
}

std::string scalar_value(std::string_view tag, double number) {
  std::string message;
  pbf_writer value(message);
  value.add_string(kValueTag, tag.data(), tag.size());
  value.add_float(kValueSimple, static_cast<float>(number));
  return message;
}

/// A tensor of one text, marked for the text plugin, as torch.utils.tensorboard writes it.
std::string text_value(std::string_view tag, std::string_view text) {
  std::string dim, shape, tensor, plugin, metadata, message;
  pbf_writer(dim).add_int64(kDimSize, 1);
  pbf_writer(shape).add_message(kShapeDim, dim);
  pbf_writer(tensor).add_enum(kTensorDtype, kDtString);
  pbf_writer(tensor).add_message(kTensorShape, shape);
  pbf_writer(tensor).add_bytes(kTensorStrings, text.data(), text.size());
  pbf_writer(plugin).add_string(kPluginName, "text");
  pbf_writer(metadata).add_message(kMetadataPlugin, plugin);
  pbf_writer(metadata).add_enum(kMetadataDataClass, kDataClassTensor);
  pbf_writer value(message);
  value.add_string(kValueTag, tag.data(), tag.size());
  value.add_message(kValueTensor, tensor);
  value.add_message(kValueMetadata, metadata);
  return message;
}

/// Creates an empty file of a name that no one else has, this process's other event files included.
std::filesystem::path reserve(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  LEVIN_CHECK(!error, "files.write", "cannot make the folder {}: {}", directory.string(),
              posix::reason(error.value()));
  const std::string stem =
      fmt::format("events.out.tfevents.{}.{}.{}", static_cast<int64_t>(now_s()), posix::host_name(),
                  ::getpid());
  for (int64_t number = 0;; ++number) {
    std::filesystem::path path = directory / fmt::format("{}.{}", stem, number);
    if (posix::open_file(path, O_WRONLY | O_CREAT | O_EXCL)) return path;
    LEVIN_CHECK(errno == EEXIST, "files.write", "cannot write {}: {}", path.string(),
                posix::reason(errno));
  }
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& directory)
    : path_(reserve(directory)), file_(path_) {
  std::string event;
  pbf_writer writer(event);
  writer.add_double(kEventWallTime, now_s());
  writer.add_string(kEventFileVersion, "brain.Event:2");
  write_record(event);
  flush();
}

EventFile::~EventFile() {
  try {
    flush();
  } catch (const Error&) {
    // A destructor cannot report it; whoever must know calls flush().
  }
}

void EventFile::add_scalar(std::string_view tag, double value, int64_t step,
                           std::optional<double> wall_time_s) {
  add_value(scalar_value(tag, value), step, wall_time_s);
}

void EventFile::add_text(std::string_view tag, std::string_view text, int64_t step,
                         std::optional<double> wall_time_s) {
  add_value(text_value(tag, text), step, wall_time_s);
}

void EventFile::add_session_start(int64_t step) {
  std::string session, event;
  pbf_writer(session).add_enum(kSessionStatus, kSessionStart);
  pbf_writer writer(event);
  writer.add_double(kEventWallTime, now_s());
  writer.add_int64(kEventStep, step);
  writer.add_message(kEventSessionLog, session);
  write_record(event);
}

void EventFile::add_graph(const std::string& graph) {
  std::string event;
  pbf_writer writer(event);
  writer.add_double(kEventWallTime, now_s());
  writer.add_bytes(kEventGraph, graph);
  write_record(event);
}

void EventFile::flush() { file_.flush(); }

void EventFile::add_value(const std::string& value, int64_t step,
                          std::optional<double> wall_time_s) {
  std::string summary, event;
  pbf_writer(summary).add_message(kSummaryValue, value);
  pbf_writer writer(event);
  writer.add_double(kEventWallTime, wall_time_s ? *wall_time_s : now_s());
  writer.add_int64(kEventStep, step);
  writer.add_message(kEventSummary, summary);
  write_record(event);
}

/// TFRecord: length, its checksum, data, its checksum.
void EventFile::write_record(const std::string& event) {
  const std::string length = little_endian(static_cast<uint64_t>(event.size()));
  file_.write(length + little_endian(masked_crc(length)) + event +
              little_endian(masked_crc(event)));
}

}  // namespace levin::files
