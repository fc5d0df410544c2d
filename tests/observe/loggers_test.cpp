// Loggers of JSON lines and TensorBoard, and what all of them do with images, texts and prefixes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "levin/base/error.h"
#include "levin/files/writing/png.h"
#include "levin/observe/logger.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"

namespace loggers {
namespace {

namespace fs = std::filesystem;
using levin::test::error_of;
using levin::test::get;
using levin::test::names_in;
using levin::test::put;
using levin::test::Scratch;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

levin::LoggerOptions in(const Scratch& folder) { return {.save_dir = folder.str(), .version = 0}; }

std::string rows(const Scratch& folder) { return get(folder / "version_0/metrics.jsonl"); }

TEST(JsonlLogger, WritesAnObjectPerRow) {
  const Scratch folder;
  const auto logger = levin::jsonl_logger(in(folder));
  logger->log_metrics({{"loss", 0.1}, {"lr", 1e-5}}, 0, 10);
  logger->log_metrics({{"acc", 2}}, 1, 20);
  EXPECT_EQ(rows(folder),
            "{\"step\":10,\"epoch\":0,\"loss\":0.1,\"lr\":1e-05}\n"
            "{\"step\":20,\"epoch\":1,\"acc\":2}\n");
}

TEST(JsonlLogger, WritesWhatJsonCannotAsTextsAndKeepsTheColumnsApart) {
  const Scratch folder;
  const auto logger = levin::jsonl_logger(in(folder));
  logger->log_metrics({{"a", std::nan("")}, {"b", INFINITY}, {"c", -INFINITY}}, 0, 1);
  logger->log_metrics({{"step", 1}, {"epoch", 2}, {"q\"\\\n\x01", 3}, {"\xff", 4}}, 0, 2);
  EXPECT_EQ(rows(folder),
            "{\"step\":1,\"epoch\":0,\"a\":\"NaN\",\"b\":\"Infinity\",\"c\":\"-Infinity\"}\n"
            "{\"step\":2,\"epoch\":0,\"value/step\":1,\"value/epoch\":2,"
            "\"q\\\"\\\\\\u000a\\u0001\":3,\"\xef\xbf\xbd\":4}\n");
}

TEST(JsonlLogger, ContinuesItsFileWithoutRowsFromAfterTheCheckpoint) {
  const Scratch folder;
  levin::State state;
  {
    const auto logger = levin::jsonl_logger({.save_dir = folder.str()});
    logger->log_metrics({{"loss", 1.0}}, 0, 1);
    state = logger->state_dict();
    logger->log_metrics({{"loss", 2.0}}, 0, 2);
    logger->log_metrics({{"acc", 3.0}}, 0, 3);
  }
  const auto logger = levin::jsonl_logger({.save_dir = folder.str()});
  EXPECT_TRUE(logger->resume(state, 1));
  logger->log_metrics({{"loss", 4.0}}, 0, 2);
  EXPECT_EQ(rows(folder),
            "{\"step\":1,\"epoch\":0,\"loss\":1}\n{\"step\":2,\"epoch\":0,\"loss\":4}\n");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("version_0"));
  put(folder / "version_0/run_id", "another\n");
  EXPECT_FALSE(levin::jsonl_logger({.save_dir = folder.str()})->resume(state, 1));
}

TEST(JsonlLogger, DropsARowThatWasCutShortAndLeavesAForeignFileAlone) {
  const Scratch folder;
  levin::jsonl_logger(in(folder))->log_metrics({{"loss", 1}}, 0, 1);
  put(folder / "version_0/metrics.jsonl", rows(folder) + "{\"step\":2,\"ep");
  levin::jsonl_logger(in(folder))->log_metrics({{"loss", 2}}, 0, 2);
  EXPECT_EQ(rows(folder),
            "{\"step\":1,\"epoch\":0,\"loss\":1}\n{\"step\":2,\"epoch\":0,\"loss\":2}\n");
  put(folder / "version_0/metrics.jsonl", "[1, 2]\n");
  ::testing::internal::CaptureStderr();
  const auto logger = levin::jsonl_logger(in(folder));
  logger->log_metrics({{"loss", 1}}, 0, 1);
  EXPECT_EQ(logger->state_dict().integer("bytes"), -1);
  EXPECT_FALSE(logger->resume(logger->state_dict(), 0));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("observe.logger.jsonl: "));
  EXPECT_EQ(rows(folder), "[1, 2]\n");
}

TEST(Logger, PutsItsPrefixBeforeEachName) {
  const Scratch folder;
  const std::vector<std::shared_ptr<levin::Logger>> loggers = {
      levin::csv_logger({.save_dir = folder.str(), .version = 0, .prefix = "run"}),
      levin::jsonl_logger({.save_dir = folder.str(), .version = 0, .prefix = "run"}),
      levin::tensorboard_logger({.save_dir = folder.str(), .version = 0, .prefix = "run"})};
  for (const auto& logger : loggers) logger->log_metrics({{"loss", 1}}, 0, 1);
  EXPECT_EQ(get(folder / "version_0/metrics.csv"), "step,epoch,run-loss\n1,0,1\n");
  EXPECT_EQ(rows(folder), "{\"step\":1,\"epoch\":0,\"run-loss\":1}\n");
  for (const std::string& name : names_in(folder / "version_0")) {
    if (!name.starts_with("events")) continue;
    EXPECT_THAT(get(folder / "version_0" / name), HasSubstr("run-loss"));
  }
}

TEST(Logger, SaysItsNameVersionAndFolder) {
  const Scratch folder;
  for (const auto& logger : {levin::csv_logger({.save_dir = folder.str(), .name = "mnist"}),
                             levin::jsonl_logger({.save_dir = folder.str(), .name = "mnist"})}) {
    EXPECT_EQ(logger->name(), "mnist");
    EXPECT_EQ(logger->save_dir(), folder.str());
    EXPECT_EQ(logger->log_dir(), folder.str() + "/mnist/" + logger->version());
  }
  EXPECT_THAT(names_in(folder / "mnist"), ElementsAre("version_0", "version_1"));
}

TEST(Logger, WritesImagesAndTextsAsFilesWhereItHasNoOtherPlaceForThem) {
  const Scratch folder;
  for (const auto& logger : {levin::csv_logger(in(folder)), levin::jsonl_logger(in(folder))}) {
    logger->log_image("val/a b", at::zeros({3, 2, 4}), 7);
    logger->log_text("../said\n", "hello", 8);
    EXPECT_THAT(names_in(folder / "version_0/images"), ElementsAre("val_a b_7.png"));
    EXPECT_THAT(names_in(folder / "version_0/texts"), ElementsAre("_._said__8.txt"));
    EXPECT_EQ(get(folder / "version_0/texts/_._said__8.txt"), "hello");
    fs::remove_all(folder / "version_0/images");
    fs::remove_all(folder / "version_0/texts");
  }
}

TEST(Logger, WithoutHistogramsSaysSoOnce) {
  const Scratch folder;
  const auto logger = levin::csv_logger(in(folder));
  ::testing::internal::CaptureStderr();
  logger->log_histogram("weights", at::ones({2}), 1);
  logger->log_histogram("bias", at::ones({2}), 1);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the logger has no histograms, so it drops 'weights'"));
  EXPECT_EQ(said.find("bias"), said.npos);
}

/// A logger of one's own that has neither images nor texts.
struct Plain : levin::Logger {
  void log_metrics(const levin::Scalars&, int64_t, int64_t) override {}
  void log_hyperparams(const std::map<std::string, std::string>&) override {}
  void flush() override { ++flushes; }
  std::string log_dir() const override { return ""; }
  int flushes = 0;
};

TEST(Logger, OfOnesOwnNeedsNeitherImagesNorTexts) {
  Plain plain;
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 2; ++i) {
    plain.log_image("a", at::zeros({1, 2, 2}), 1);
    plain.log_text("b", "", 1);
  }
  plain.finalize("success");
  plain.after_save_checkpoint("x");
  plain.log_graph(torch::nn::Linear(1, 1).operator*());
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("the logger has no images"));
  EXPECT_THAT(said, HasSubstr("the logger has no texts"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2);
  EXPECT_EQ(plain.flushes, 1);
  EXPECT_EQ(plain.name() + plain.version() + plain.save_dir(), "");
}

TEST(Logger, NamesWhatIsNoImageAndNoHistogram) {
  const Scratch folder;
  Plain plain;
  const std::vector<std::shared_ptr<levin::Logger>> loggers = {
      levin::csv_logger(in(folder)),
      levin::tensorboard_logger({.save_dir = folder.str(), .version = 0})};
  for (const auto& logger : loggers) {
    const std::vector<std::pair<std::function<void()>, std::string>> cases = {
        {[&] { logger->log_image("a", at::Tensor(), 1); },
         "observe.logger.image: 'a' got an undefined tensor"},
        {[&] { logger->log_image("a", at::ones({2, 2}), 1); },
         "observe.logger.image: 'a' got the shape [2, 2] as CHW"},
        {[&] { logger->log_image("a", at::ones({2, 5, 5}), 1); }, "got the shape [2, 5, 5] as CHW"},
        {[&] { logger->log_image("a", at::ones({3, 0, 5}), 1); }, "got the shape [3, 0, 5]"},
        {[&] { logger->log_image("a", at::ones({8, 3, 5, 5}), 1); }, "log a batch image by image"},
        {[&] { logger->log_image("a", at::ones({3, 2, 2}), 1, "WHC"); },
         "got the format 'WHC', wanted CHW, HWC or HW"},
        {[&] { logger->log_image("a", at::ones({3, 2, 2}, at::kLong), 1); }, "got Long, wanted"},
        {[&] { logger->log_histogram("h", at::ones({0}), 1); },
         "observe.logger.histogram: 'h' got a tensor without elements"},
        {[&] { logger->log_histogram("h", at::Tensor(), 1); }, "got an undefined tensor"},
        {[&] { logger->log_histogram("h", at::ones({2}, at::kComplexFloat), 1); },
         "got a complex tensor"}};
    for (const auto& [run, expected] : cases) EXPECT_THAT(error_of(run), HasSubstr(expected));
  }
  EXPECT_THAT(error_of([&] { plain.log_image("a", at::ones({2, 2}), 1); }),
              HasSubstr("observe.logger.image"));
  EXPECT_THAT(error_of([&] { plain.log_histogram("h", at::ones({0}), 1); }),
              HasSubstr("observe.logger.histogram"));
}

TEST(Png, RefusesWhatItCannotHold) {
  const std::vector<uint8_t> pixels(12);
  EXPECT_THAT(error_of([&] { levin::files::png_of(pixels, {2, 2, 2}); }),
              HasSubstr("files.write: got an image of 2 x 2 pixels with 2 channels"));
  EXPECT_THAT(error_of([&] { levin::files::png_of(pixels, {0, 2, 3}); }), HasSubstr("files.write"));
  EXPECT_THAT(error_of([&] { levin::files::png_of(pixels, {3, 2, 3}); }),
              HasSubstr("files.write: got 12 bytes for an image of 3 x 2"));
}

TEST(TensorBoardLogger, WritesEventsInItsSubFolder) {
  const Scratch folder;
  const auto logger =
      levin::tensorboard_logger({.save_dir = folder.str(), .version = 0, .sub_dir = "a/b"});
  logger->log_metrics({{"loss", 1}}, 0, 1);
  EXPECT_EQ(logger->log_dir(), folder / "version_0");
  EXPECT_THAT(names_in(folder / "version_0"), UnorderedElementsAre("a", "run_id"));
  EXPECT_THAT(names_in(folder / "version_0/a/b").front(), HasSubstr("events.out.tfevents"));
  for (const char* outside : {"../c", "a/../../c", "/c"}) {
    EXPECT_THAT(error_of([&] { levin::tensorboard_logger({.sub_dir = outside}); }),
                HasSubstr("observe.logger.dir: got sub_dir = "));
  }
}

TEST(TensorBoardLogger, LeavesOutAHistogramWithoutFiniteElements) {
  const Scratch folder;
  const auto logger = levin::tensorboard_logger({.save_dir = folder.str(), .version = 0});
  ::testing::internal::CaptureStderr();
  logger->log_histogram("grad", at::full({2}, NAN), 1);
  logger->log_histogram("grad", at::full({2}, NAN), 2);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("'grad' has no finite element"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

TEST(TensorBoardOptions, AreReadFromFlags) {
  const auto text = levin::options_as_text(levin::TensorBoardOptions{.hp_metrics = {"a", "b"}});
  EXPECT_EQ(text.at("default_hp_metric"), "true");
  EXPECT_EQ(text.at("hp_metrics"), "a,b");
  EXPECT_EQ(text.size(), 8U);
}

/// The color of a cell's corner.
std::vector<int64_t> corner(const at::Tensor& picture, int64_t y, int64_t x) {
  const at::Tensor pixel = picture[y][x].to(at::kLong);
  return {pixel[0].item<int64_t>(), pixel[1].item<int64_t>(), pixel[2].item<int64_t>()};
}

TEST(PictureOfMatrix, IsDarkerWhereTheValueIsHigher) {
  const at::Tensor picture = levin::picture_of_matrix(at::tensor({0, 5, 10, 5}).reshape({2, 2}));
  EXPECT_EQ(picture.scalar_type(), at::kByte);
  EXPECT_EQ(picture.size(2), 3);
  // Labels take a letter of 12 pixels and 8 on each side, a cell two letters; a row is 30 high.
  EXPECT_THAT(corner(picture, 30, 28), ElementsAre(247, 251, 255));
  EXPECT_THAT(corner(picture, 30, 28 + 40), ElementsAre(107, 174, 214));
  EXPECT_THAT(corner(picture, 60, 28), ElementsAre(8, 48, 107));
}

TEST(PictureOfMatrix, TakesWhatAConfusionMatrixMayHold) {
  for (const at::Tensor& matrix :
       {at::zeros({1, 1}), at::full({3, 3}, NAN), at::full({2, 2}, INFINITY), at::rand({64, 64}),
        at::full({2, 2}, -3.5), at::full({2, 2}, 12345678)}) {
    EXPECT_EQ(levin::picture_of_matrix(matrix).dim(), 3);
  }
  EXPECT_EQ(levin::picture_of_matrix(at::ones({2, 2}), {"\xc3\xbc"
                                                        "ber",
                                                        "a very long name"})
                .dim(),
            3);
}

TEST(PictureOfMatrix, NamesWhatItCannotDraw) {
  const std::vector<std::pair<std::function<void()>, std::string>> cases = {
      {[] { levin::picture_of_matrix({}); }, "observe.logger.image: got an undefined tensor"},
      {[] { levin::picture_of_matrix(at::ones({3, 2, 2})); }, "got the shape [3, 2, 2]"},
      {[] { levin::picture_of_matrix(at::ones({65, 2})); },
       "wanted real numbers [R, C] with 1 to 64"},
      {[] { levin::picture_of_matrix(at::ones({0, 2})); }, "got the shape [0, 2]"},
      {[] { levin::picture_of_matrix(at::ones({2, 2}), {"a"}); },
       "observe.logger.image: got 1 labels for a matrix of 2 x 2, wanted one per row"}};
  for (const auto& [run, expected] : cases) EXPECT_THAT(error_of(run), HasSubstr(expected));
}

}  // namespace
}  // namespace loggers
