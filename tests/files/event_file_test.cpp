#include "levin/files/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/support/child_process.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace levin::files {
namespace {

using test::error_of;
using test::get;
using test::put;
using test::Scratch;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

template <class Number>
Number number_at(const std::string& bytes, size_t at) {
  Number number{};
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

/// The messages of a file's records, their checksums not looked at.
std::vector<std::string> records(const std::string& bytes) {
  std::vector<std::string> messages;
  for (size_t at = 0; at < bytes.size();) {
    const auto length = number_at<uint64_t>(bytes, at);
    messages.push_back(bytes.substr(at + 12, length));
    at += 16 + length;
  }
  return messages;
}

/// What an event of wall time 1.5 and step 3 begins with.
const std::string kTimeAndStep("\x09\0\0\0\0\0\0\xf8\x3f\x10\x03", 11);

TEST(EventFile, IsNamedAsTensorBoardLooksForIt) {
  const Scratch scratch;
  const EventFile first(scratch / "run");
  const EventFile second(scratch / "run");
  const std::string pid = std::to_string(::getpid());
  EXPECT_THAT(first.path().filename().string(),
              MatchesRegex("events\\.out\\.tfevents\\.[0-9]+\\..+\\." + pid + "\\.[0-9]+"));
  EXPECT_NE(first.path(), second.path());
  EXPECT_EQ(first.path().parent_path(), scratch / "run");
}

TEST(EventFile, BeginsWithTheVersion) {
  const Scratch scratch;
  const EventFile events(scratch.path());
  const auto messages = records(get(events.path()));
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(messages[0][0], '\x09');
  EXPECT_GT(number_at<double>(messages[0], 1), 1.6e9);
  EXPECT_EQ(messages[0].substr(9),
            "\x1a\x0d"
            "brain.Event:2");
}

TEST(EventFile, FramesARecordWithMaskedChecksums) {
  const Scratch scratch;
  EventFile events(scratch.path());
  const size_t start = get(events.path()).size();
  events.add_scalar("loss", 0.5, 3, 1.5);
  events.flush();
  // Event {wall_time 1.5, step 3, summary {value {tag "loss", simple_value 0.5}}}.
  const std::string message =
      kTimeAndStep + std::string("\x2a\x0d\x0a\x0b\x0a\x04loss\x15\0\0\0\x3f", 15);
  const std::string record = get(events.path()).substr(start);
  ASSERT_EQ(record.size(), 16 + message.size());
  EXPECT_EQ(number_at<uint64_t>(record, 0), message.size());
  EXPECT_EQ(record.substr(12, message.size()), message);
  // From the crc32c of PyPI's tensorboard: masked_crc32c of the length's 8 bytes and the message.
  EXPECT_EQ(number_at<uint32_t>(record, 8), 0x2dd89b12u);
  EXPECT_EQ(number_at<uint32_t>(record, 12 + message.size()), 0xe35e6580u);
}

TEST(EventFile, WritesScalarsThatAreNotNumbers) {
  const Scratch scratch;
  EventFile events(scratch.path());
  events.add_scalar("a", std::nan(""), -1, 1.5);
  events.add_scalar("a", 1e300, 3, 1.5);
  events.flush();
  const auto messages = records(get(events.path()));
  ASSERT_EQ(messages.size(), 3u);
  EXPECT_TRUE(std::isnan(number_at<float>(messages[1], messages[1].size() - 4)));
  EXPECT_TRUE(std::isinf(number_at<float>(messages[2], messages[2].size() - 4)));
}

TEST(EventFile, WritesTextsForTheTextPlugin) {
  const Scratch scratch;
  EventFile events(scratch.path());
  events.add_text("hp", "lr=1", 3, 1.5);
  events.flush();
  // value {tag "hp", tensor {dtype 7, shape {dim {size 1}}, string_val "lr=1"},
  //        metadata {plugin_data {plugin_name "text"}, data_class 2}}.
  const std::string tensor("\x08\x07\x12\x04\x12\x02\x08\x01\x42\x04lr=1", 14);
  const std::string metadata("\x0a\x06\x0a\x04text\x20\x02", 10);
  const std::string value =
      "\x0a\x02hp"
      "\x42\x0e" +
      tensor + "\x4a\x0a" + metadata;
  EXPECT_EQ(records(get(events.path())).at(1), kTimeAndStep + "\x2a\x22\x0a\x20" + value);
}

TEST(EventFile, KeepsWhatItHasWhenItGoes) {
  const Scratch scratch;
  std::filesystem::path path;
  {
    EventFile events(scratch.path());
    path = events.path();
    for (int64_t step = 0; step < 1000; ++step) events.add_scalar("loss", 0.5, step);
  }
  EXPECT_EQ(records(get(path)).size(), 1001u);
}

TEST(EventFile, NamesTheFolderItCannotMakeAndTheFileItCannotWrite) {
  const Scratch scratch;
  put(scratch / "file", "");
  EXPECT_THAT(error_of([&] { EventFile events(scratch / "file" / "run"); }),
              HasSubstr("files.write: cannot make the folder"));
  EXPECT_EQ(0, test::run_child([&] {
              ::signal(SIGXFSZ, SIG_IGN);
              const rlimit limit{1 << 12, 1 << 12};
              if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
              EventFile events(scratch.path());
              events.add_text("hp", std::string(1 << 13, 'x'), 0);
              const std::string message = error_of([&] { events.flush(); });
              return message.find("files.write: cannot write " + events.path().string()) == 0 ? 0
                                                                                              : 2;
            }));
}

}  // namespace
}  // namespace levin::files
