#include "levin/base/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "levin/base/error.h"
#include "levin/base/options/option_group.h"
#include "levin/base/options/placed_fields.h"
#include "levin/base/options/read_options.h"
#include "tests/support/error_of.h"

namespace {

using levin::test::error_id;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct RunOptions {
  int64_t max_epochs = 5;
  double lr = 0.1;
  bool shuffle = true;
  std::string name = "run";
  std::vector<int64_t> sizes = {1, 2};
  std::optional<double> clip;

  void fields(levin::FieldVisitor& field) {
    field("max_epochs", max_epochs, "epochs to train");
    field("lr", lr, "learning rate");
    field("shuffle", shuffle, "new order each epoch");
    field("name", name, "name of the run");
    field("sizes", sizes, "widths");
    field("clip", clip, "largest gradient norm");
  }
};

struct Outcome {
  RunOptions options;
  std::optional<std::string> printed;
};

Outcome read(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "program");
  Outcome outcome;
  outcome.printed = levin::detail::read_options(
      static_cast<int>(arguments.size()), arguments.data(),
      [&](levin::FieldVisitor& field) { outcome.options.fields(field); });
  return outcome;
}

std::string error_of(std::vector<const char*> arguments) {
  try {
    read(std::move(arguments));
  } catch (const levin::Error& error) {
    return error.what();
  }
  return "no error";
}

std::string write_toml(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/levin_options_test.toml";
  std::ofstream(path) << text;
  return path;
}

TEST(Options, FlagsFillTheAggregate) {
  const auto options =
      read({"--max-epochs", "7", "--lr=0.5", "--shuffle=false", "--sizes", "3,4", "--clip", "1"})
          .options;
  EXPECT_EQ(options.max_epochs, 7);
  EXPECT_EQ(options.lr, 0.5);
  EXPECT_FALSE(options.shuffle);
  EXPECT_EQ(options.sizes, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(options.clip, 1.0);
  EXPECT_EQ(options.name, "run");
}

TEST(Options, UnderscoresAndBareSwitchesAreTaken) {
  const auto options = read({"--max_epochs=7", "--shuffle", "--name", "a b"}).options;
  EXPECT_EQ(options.max_epochs, 7);
  EXPECT_TRUE(options.shuffle);
  EXPECT_EQ(options.name, "a b");
}

TEST(Options, NegativeNumbersAreValues) {
  EXPECT_EQ(read({"--max-epochs", "-1"}).options.max_epochs, -1);
}

TEST(Options, FlagsWinOverTheFileWhateverTheirOrder) {
  const std::string file = write_toml("max_epochs = 9\nlr = 2\nsizes = [5, 6]\nshuffle = false\n");
  const auto options = read({"--max-epochs", "7", "--config", file.c_str()}).options;
  EXPECT_EQ(options.max_epochs, 7);
  EXPECT_EQ(options.lr, 2.0);
  EXPECT_EQ(options.sizes, (std::vector<int64_t>{5, 6}));
  EXPECT_FALSE(options.shuffle);
}

TEST(Options, PrintedConfigReadsBack) {
  const auto printed = read({"--lr", "1e-3", "--name", "a \"b\"\n", "--print-config"}).printed;
  ASSERT_TRUE(printed.has_value());
  const std::string file = write_toml(*printed);
  const auto options = read({"--config", file.c_str()}).options;
  EXPECT_EQ(options.lr, 1e-3);
  EXPECT_EQ(options.name, "a \"b\"\n");
  EXPECT_EQ(options.clip, std::nullopt);
}

TEST(Options, PrintedConfigKeepsEmptyItemsAndControlCharacters) {
  struct Lists {
    std::vector<std::string> names = {"a", ""}, none, empty = {""};
    std::string text = "\x7f\x1b\t\\";
    void fields(levin::FieldVisitor& field) {
      field("names", names, "names");
      field("none", none, "no names");
      field("empty", empty, "one name");
      field("text", text, "a text");
    }
  };
  const auto read_lists = [](Lists& lists, std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    return levin::detail::read_options(static_cast<int>(arguments.size()), arguments.data(),
                                       [&](levin::FieldVisitor& field) { lists.fields(field); });
  };
  Lists written, read{{"x"}, {"x"}, {"x"}, "x"};
  const auto printed = read_lists(written, {"--print-config"});
  ASSERT_TRUE(printed.has_value());
  const std::string file = write_toml(*printed);
  read_lists(read, {"--config", file.c_str()});
  EXPECT_EQ(read.names, written.names);
  EXPECT_EQ(read.none, written.none);
  EXPECT_EQ(read.empty, written.empty);
  EXPECT_EQ(read.text, written.text);
  const std::string array = write_toml("names = ['b', '']\nnone = []\nempty = ['']\n");
  read_lists(read, {"--config", array.c_str()});
  EXPECT_EQ(read.names, (std::vector<std::string>{"b", ""}));
  EXPECT_EQ(read.none, written.none);
  EXPECT_EQ(read.empty, written.empty);
}

TEST(Options, WhatIsNoUtf8IsAnErrorInTomlEitherWay) {
  EXPECT_THAT(error_of({"--name", "\xff", "--print-config"}),
              HasSubstr("base.options.value: name is '\\xff', which is not UTF-8"));
  const std::string file = write_toml("lr = 1\nname = '\xff'\n");
  EXPECT_THAT(error_of({"--config", file.c_str()}), HasSubstr("base.options.config: "));
}

TEST(Options, AFileThatCannotBeReadIsAnErrorAndNoCrash) {
  const std::string folder = ::testing::TempDir();
  EXPECT_THAT(error_of({"--config", folder.c_str()}), HasSubstr("is a folder, wanted a TOML file"));
  const std::string long_name(5000, 'x');
  EXPECT_THAT(error_of({"--config", long_name.c_str()}), HasSubstr("base.options.config: no file"));
  const std::string pipe = std::string(::testing::TempDir()) + "levin_options_pipe";
  std::filesystem::remove(pipe);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of({"--config", pipe.c_str()}), HasSubstr("it is a pipe, wanted a file"));
  std::filesystem::remove(pipe);
  EXPECT_THAT(error_of({"--config", "/proc/self/mem"}),
              HasSubstr("base.options.config: cannot read '/proc/self/mem'"));
  const std::string empty = write_toml("");
  EXPECT_THAT(error_of({"--config", empty.c_str()}), HasSubstr("no error"));
}

TEST(Options, WhatTomlsParserAssertsNeverToBeIsAnErrorToo) {
  for (const char* text : {"a = 1979-05-27T0", "lr = \xc3\x97-3", "lr = 1979-05-27 x:"}) {
    const std::string file = write_toml(text);
    EXPECT_THAT(error_of({"--config", file.c_str()}), HasSubstr("base.options.config: ")) << text;
  }
}

TEST(Options, WordsOfAFileDoNotReachTheTerminal) {
  const std::string file = write_toml("\"ev\\u001b[2Jil\" = 1\n");
  EXPECT_THAT(error_of({"--config", file.c_str()}), HasSubstr("has no option 'ev\\x1b[2Jil'"));
}

TEST(Options, HelpListsEveryOptionWithItsDefault) {
  const auto printed = read({"--help"}).printed;
  ASSERT_TRUE(printed.has_value());
  EXPECT_THAT(*printed, HasSubstr("--max-epochs"));
  EXPECT_THAT(*printed, HasSubstr("[5]"));
  EXPECT_THAT(*printed, HasSubstr("epochs to train"));
}

TEST(Options, UnknownFlagNamesTheNearest) {
  EXPECT_THAT(error_of({"--max-epoch", "3"}),
              HasSubstr("base.options.unknown: the command line has no option '--max-epoch'; did "
                        "you mean '--max-epochs'?"));
}

TEST(Options, UnknownKeyNamesFileLineAndTheNearest) {
  const std::string file = write_toml("lr = 1\nmax_epoch = 3\n");
  const std::string message = error_of({"--config", file.c_str()});
  EXPECT_THAT(message, HasSubstr("base.options.unknown"));
  EXPECT_THAT(message, HasSubstr("line 2 has no option 'max_epoch'; did you mean 'max_epochs'?"));
}

TEST(Options, AKeyMayHaveEitherSpellingOnce) {
  std::string file = write_toml("max-epochs = 3\n");
  EXPECT_EQ(read({"--config", file.c_str()}).options.max_epochs, 3);
  file = write_toml("max-epochs = 3\nmax_epochs = 4\n");
  EXPECT_THAT(
      error_of({"--config", file.c_str()}),
      AllOf(
          HasSubstr("base.options.config: "),
          HasSubstr("got 'max_epochs' twice, with - and with _ or in a table and outside of it")));
}

TEST(Options, WrongValuesAreNamed) {
  EXPECT_THAT(error_of({"--max-epochs", "five"}),
              HasSubstr("base.options.value: max_epochs of the command line: got 'five', wanted an "
                        "integer"));
  const std::string file = write_toml("max_epochs = [1, 2]\n");
  EXPECT_THAT(error_of({"--config", file.c_str()}), HasSubstr("got an array, wanted one value"));
}

TEST(Options, BrokenOrMissingFileIsNamed) {
  const std::string file = write_toml("lr = \n");
  EXPECT_THAT(error_of({"--config", file.c_str()}), HasSubstr("base.options.config"));
  EXPECT_THAT(error_of({"--config", "/no/such/file.toml"}), HasSubstr("no file"));
}

TEST(Options, TwoOfOneNameAreRefused) {
  RunOptions a, b;
  EXPECT_EQ(error_id([&] {
              levin::detail::options_as_text([&](levin::FieldVisitor& field) {
                a.fields(field);
                b.fields(field);
              });
            }),
            "base.options.duplicate");
}

/// An option whose value is the empty text or an error, before a flag that must be heard in either case.
TEST(Options, AnEmptyValueIsTheEmptyValueInBothSpellings) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--name", ""},
      {"--sizes", ""},
      {"--max-epochs", "max_epochs of the command line: got '', wanted an integer"},
      {"--lr", "lr of the command line: got '', wanted a number"},
      {"--clip", "clip of the command line: got '', wanted a number"},
      {"--shuffle", "shuffle of the command line: got '', wanted true or false"},
  };
  for (const auto& [flag, error] : cases) {
    const std::string joined = flag + "=";
    for (const std::vector<const char*>& words :
         {std::vector<const char*>{joined.c_str()}, std::vector<const char*>{flag.c_str(), ""}}) {
      std::vector<const char*> line = words;
      line.insert(line.end(), {"--max-epochs", "7"});
      if (flag == "--max-epochs") line = words;
      if (!error.empty()) {
        EXPECT_THAT(error_of(line), HasSubstr(error)) << flag;
        continue;
      }
      const auto options = read(line).options;
      EXPECT_EQ(options.max_epochs, 7) << flag;
      EXPECT_EQ(options.name, flag == "--name" ? "" : "run");
      EXPECT_EQ(options.sizes.empty(), flag == "--sizes");
    }
  }
}

TEST(Options, AFlagIsNoValueOfTheFlagBeforeIt) {
  EXPECT_THAT(error_of({"--name", "--max-epochs", "1"}),
              HasSubstr("--name got no value, because the next word '--max-epochs' is an option"));
  EXPECT_THAT(error_of({"--name", "--max-epoch=1"}), HasSubstr("--name got no value"));
  EXPECT_THAT(error_of({"--name", "-h"}), HasSubstr("--name got no value"));
  EXPECT_THAT(error_of({"--name", "--"}), HasSubstr("--name got no value"));
  EXPECT_THAT(error_of({"--max-epochs"}), HasSubstr("--max-epochs got no value; give one"));
  EXPECT_EQ(read({"--name=--max-epochs"}).options.name, "--max-epochs");
  EXPECT_EQ(read({"--name", "-- a title --"}).options.name, "-- a title --");
  EXPECT_EQ(read({"--name", "a=b"}).options.name, "a=b");
  EXPECT_EQ(read({"--lr", "-.5"}).options.lr, -0.5);
  const auto options = read({"--shuffle", "--name", "x"}).options;
  EXPECT_TRUE(options.shuffle);
  EXPECT_EQ(options.name, "x");
}

TEST(Options, OfTwoValuesTheLastCounts) {
  EXPECT_EQ(read({"--name", "a", "--name="}).options.name, "");
  EXPECT_EQ(read({"--max-epochs=1", "--max_epochs", "2"}).options.max_epochs, 2);
}

TEST(Options, WhatNoFieldTakesIsAnError) {
  EXPECT_THAT(error_of({"--config="}),
              HasSubstr("base.options.config: --config: got an empty name"));
  EXPECT_THAT(error_of({"--print-config="}),
              HasSubstr("--print-config: got '', wanted true or false"));
  EXPECT_THAT(error_of({""}), HasSubstr("base.options.unknown: the command line has no option ''"));
  EXPECT_THAT(error_of({"--", "--name=a"}), HasSubstr("base.options.unknown"));
  EXPECT_EQ(read({"--help=false", "--print-config=false"}).printed, std::nullopt);
}

TEST(Options, AnAggregateShowsThePartThatItHoldsInAnOrderOfItsOwn) {
  struct Part {
    int64_t width = 1, rate = 2, net_depth = 3, net_heads = 4;
    void fields(levin::FieldVisitor& field) {
      field("width", width, "an option");
      field("net_depth", net_depth, "an option");
      field("rate", rate, "an option");
      field("net_heads", net_heads, "an option");
    }
  };
  struct Whole {
    Part part;
    int64_t own = 5;
    void fields(levin::FieldVisitor& field) {
      levin::PlacedFields part_fields(part);
      part_fields.hand_on(field, {"rate"});
      field("own", own, "an option");
      part_fields.hand_on(field, {"net_*", "rate"});
      part_fields.hand_on(field, {"*"});
      part_fields.hand_on(field, {"*"});  // nothing is left
    }
  } options;
  const char* arguments[] = {"program", "--net-heads", "8", "--print-config"};
  EXPECT_EQ(*levin::detail::read_options(
                4, arguments, [&](levin::FieldVisitor& field) { options.fields(field); }),
            "# an option\nrate = 2\n# an option\nown = 5\n# an option\nnet_depth = 3\n"
            "# an option\nnet_heads = 8\n# an option\nwidth = 1\n");
  EXPECT_EQ(options.part.net_heads, 8);
}

/// The options of a command that starts a program.
struct Launched {
  int64_t ranks = 1;
  std::string place;
  bool alone = false, hidden = false;

  void fields(levin::FieldVisitor& field) {
    field("ranks", ranks, "how many", "n");
    field.take({.name = "place",
                .help = "where",
                .variable = "LEVIN_TEST_PLACE",
                .get = [this] { return place; },
                .set = [this](std::string_view text) { place = text; }});
    field("alone", alone, "a switch");
    field("hidden", hidden, "");
  }
  levin::detail::OptionsRead read(const std::vector<std::string>& words, std::string config = "") {
    return levin::detail::read_options(words,
                                       {.program = "start",
                                        .about = "Starts it.",
                                        .takes_program = true,
                                        .config = std::move(config),
                                        .error_id = "test.start"},
                                       [this](levin::FieldVisitor& field) { fields(field); });
  }
};

TEST(Options, BeforeAProgramEndWhereItBegins) {
  Launched options;
  const auto read = options.read({"-n", "2", "--alone", "./train", "--ranks", "3", "--help"});
  EXPECT_EQ(read.text, std::nullopt);
  EXPECT_THAT(read.program, ElementsAre("./train", "--ranks", "3", "--help"));
  EXPECT_THAT(read.given, ElementsAre("alone", "ranks"));
  EXPECT_EQ(options.ranks, 2);
  EXPECT_TRUE(options.alone);
  EXPECT_THAT(options.read({"-n4", "--", "--train"}).program, ElementsAre("--train"));
  EXPECT_EQ(options.ranks, 4);
  EXPECT_THAT(levin::test::error_of([&] { options.read({"--rank", "2", "./train"}); }),
              StartsWith("test.start: the command line has no option '--rank'; did you mean "
                         "'--ranks'?"));
  EXPECT_THAT(levin::test::error_of([&] { options.read({"--ranks=two", "./train"}); }),
              StartsWith("test.start: ranks of the command line: got 'two', wanted an integer"));
}

TEST(Options, AFlagWinsOverTheFileAndThatOverTheVariable) {
  ASSERT_EQ(setenv("LEVIN_TEST_PLACE", "variable", 1), 0);
  Launched by_variable, by_file, by_flag;
  EXPECT_THAT(by_variable.read({}).given, ElementsAre("place"));
  const std::string file = write_toml("place = \"file\"\nalone = true\n");
  by_file.read({}, file);
  by_flag.read({"--place", "flag"}, file);
  ASSERT_EQ(unsetenv("LEVIN_TEST_PLACE"), 0);
  EXPECT_EQ(by_variable.place, "variable");
  EXPECT_EQ(by_file.place, "file");
  EXPECT_EQ(by_flag.place, "flag");
  EXPECT_TRUE(by_flag.alone);
  EXPECT_TRUE(by_flag.read({}, "/no/such/file").given.empty());
}

TEST(Options, OneWithoutHelpIsHidden) {
  Launched options;
  EXPECT_EQ(options.read({"--print-config"}).text,
            "# how many\nranks = 1\n# where\nplace = \"\"\n# a switch\nalone = false\n");
  EXPECT_THAT(*options.read({"--help"}).text,
              AllOf(StartsWith("Usage: start [OPTIONS] PROGRAM [ARGUMENTS OF THE PROGRAM]\n\n"
                               "Starts it.\n\nFlags override"),
                    HasSubstr("  --ranks, -n [1] "), Not(HasSubstr("hidden"))));
  options.read({"--hidden"});
  EXPECT_TRUE(options.hidden);
}

TEST(Options, HelpHasEachOptionOnceUnderItsHeading) {
  struct Grouped {
    int64_t width = 1, depth_of_net = 2;
    std::string file;
    void fields(levin::FieldVisitor& field) {
      field("file", file, "where");
      levin::option_group(field, "network");
      field("width", width, "units of a layer");
      levin::option_group(field, "");
      levin::option_group(field, "network");
      field("depth_of_net", depth_of_net, std::string(40, 'a') + " " + std::string(40, 'b'));
      levin::option_group(field, "");
    }
  } options;
  const char* arguments[] = {"program", "--help"};
  EXPECT_EQ(*levin::detail::read_options(
                2, arguments, [&](levin::FieldVisitor& field) { options.fields(field); }),
            "Usage: program [OPTIONS]\n\n"
            "Flags override environment variables (LEVIN_MAX_EPOCHS for --max-epochs), which "
            "override the\nfile given by --config, which overrides the defaults, shown in "
            "brackets.\n\n"
            "options:\n"
            "  --help, -h                          print this help and exit\n"
            "  --help WORD                         print the options with this word in name or "
            "heading\n"
            "  --config FILE                       TOML file to read these options from\n"
            "  --print-config                      print all options as TOML and exit\n"
            "  --file []                           where\n\n"
            "network:\n"
            "  --width [1]                         units of a layer\n"
            "  --depth-of-net [2]                  aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n"
            "                                      bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\n");
  // A heading is no option.
  EXPECT_EQ(levin::options_as_text(options).size(), 3U);
}

}  // namespace
