// Options of a section ("optimizer.lr"), their environment variables, and the help on one word.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "levin/base/error.h"
#include "levin/base/options.h"
#include "levin/base/options/option_group.h"
#include "levin/base/options/option_section.h"
#include "levin/base/options/read_options.h"
#include "tests/support/error_of.h"

namespace {
namespace option_sections {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

struct Stopping {
  std::string monitor;
  int64_t patience = 3;
  double min_delta = 0.5;

  void fields(levin::FieldVisitor& field) {
    field("monitor", monitor, "what to follow");
    field("patience", patience, "checks");
    field("min_delta", min_delta, "change");
  }
};

struct Options {
  int64_t max_epochs = 5;
  std::string optimizer;
  std::optional<double> lr;
  std::optional<bool> nesterov;
  std::optional<bool> wanted;
  Stopping stopping;
  levin::OptionSection section = levin::OptionSection("early_stopping");

  void fields(levin::FieldVisitor& field) {
    field("max_epochs", max_epochs, "epochs to train");
    levin::option_group(field, "optimization");
    field("optimizer", optimizer, "which optimizer");
    levin::optional_field(field, "optimizer.lr", lr, "learning rate");
    levin::optional_field(field, "optimizer.nesterov", nesterov, "momentum of Nesterov");
    levin::option_group(field, "callbacks");
    field.take({.name = "early_stopping",
                .help = "stop early",
                .is_switch = true,
                .is_number = true,
                .get = [this] { return levin::to_text(wanted.value_or(false)); },
                .set = [this](std::string_view text) { levin::from_text(text, wanted); },
                .is_given = [this] { return wanted.has_value(); }});
    section.fields(field, stopping);
  }
  std::string read(std::vector<std::string> words) {
    const auto read = levin::detail::read_options(
        words, {.environment = true}, [this](levin::FieldVisitor& field) { fields(field); });
    given = read.given;
    return read.text.value_or("");
  }
  std::string error(std::vector<std::string> words) {
    return levin::test::error_of([&] { read(std::move(words)); });
  }
  std::set<std::string> given;
};

std::string write_toml(const std::string& text) {
  const std::string path = ::testing::TempDir() + "/levin_option_sections_test.toml";
  std::ofstream(path) << text;
  return path;
}

class Variable {
 public:
  Variable(std::string name, const std::string& value) : name_(std::move(name)) {
    EXPECT_EQ(setenv(name_.c_str(), value.c_str(), 1), 0);
  }
  ~Variable() { unsetenv(name_.c_str()); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  std::string name_;
};

TEST(OptionSections, FlagsHaveADotAndEitherSpelling) {
  for (const char* flag : {"--early-stopping.min-delta", "--early_stopping.min_delta",
                           "--early-stopping.min_delta", "--early_stopping.min-delta"}) {
    Options options;
    options.read({flag, "0.25"});
    EXPECT_EQ(options.stopping.min_delta, 0.25) << flag;
    EXPECT_TRUE(options.section.is_given());
  }
  Options options;
  options.read(
      {"--optimizer", "sgd", "--optimizer.lr=0.1", "--optimizer.nesterov", "--max-epochs", "2"});
  EXPECT_EQ(options.lr, 0.1);
  EXPECT_EQ(options.nesterov, true);
  EXPECT_EQ(options.max_epochs, 2);
  EXPECT_FALSE(options.section.is_given());
  EXPECT_THAT(options.error({"--early-stopping.patiense", "2"}),
              HasSubstr("did you mean '--early-stopping.patience'?"));
  EXPECT_THAT(options.error({"--early-stopping.patience", "two"}),
              StartsWith("base.options.value: early_stopping.patience of the command line: got "
                         "'two'"));
  // A flag of a section is no value of the flag before it.
  EXPECT_THAT(options.error({"--optimizer", "--optimizer.lr", "1"}),
              HasSubstr("--optimizer got no value"));
}

TEST(OptionSections, ATomlTableHasThem) {
  Options options;
  options.read({"--config", write_toml("max_epochs = 2\n[optimizer]\nclass = 'sgd'\nlr = 1\n"
                                       "[early-stopping]\nmin-delta = 0.25\nenabled = false\n")});
  EXPECT_EQ(options.optimizer, "sgd");
  EXPECT_EQ(options.lr, 1.0);
  EXPECT_EQ(options.stopping.min_delta, 0.25);
  EXPECT_EQ(options.wanted, false);
  EXPECT_THAT(options.given, ElementsAre("early_stopping", "early_stopping.min_delta", "max_epochs",
                                         "optimizer", "optimizer.lr"));
  Options flat;
  flat.read({"--config", write_toml("optimizer = 'sgd'\n\"optimizer.lr\" = 1\n")});
  EXPECT_EQ(flat.optimizer, "sgd");
  EXPECT_EQ(flat.lr, 1.0);
  Options empty;
  empty.read({"--config", write_toml("[early_stopping]\n")});
  EXPECT_EQ(empty.wanted, true);

  EXPECT_THAT(Options().error({"--config", write_toml("[optimizer]\nlrr = 1\n")}),
              HasSubstr("line 2 has no option 'optimizer.lrr'; did you mean 'optimizer.lr'?"));
  EXPECT_THAT(Options().error({"--config", write_toml("[optimiser]\nlr = 1\n")}),
              HasSubstr("line 1 has no option 'optimiser'; did you mean 'optimizer'?"));
  EXPECT_THAT(Options().error({"--config", write_toml("\"optimizer.lr\" = 1\n[optimizer]\nlr = "
                                                      "2\n")}),
              HasSubstr("base.options.config"));
  EXPECT_THAT(Options().error({"--config", write_toml("[max_epochs]\nn = 1\n")}),
              HasSubstr("got a table, wanted one value"));
}

TEST(OptionSections, PrintConfigWritesTablesOfWhatWasGivenAndReadsThem) {
  EXPECT_EQ(Options().read({"--print-config"}),
            "# epochs to train\nmax_epochs = 5\n# which optimizer\noptimizer = \"\"\n");
  const std::string text =
      Options().read({"--optimizer", "sgd", "--optimizer.lr", "0.5", "--early-stopping.monitor",
                      "a \"b\"", "--early-stopping", "--print-config"});
  EXPECT_EQ(text,
            "# epochs to train\nmax_epochs = 5\n\n"
            "[optimizer]\n# which optimizer\nclass = \"sgd\"\n# learning rate\nlr = 0.5\n\n"
            "[early_stopping]\n# stop early\nenabled = true\n# what to follow\nmonitor = "
            "\"a \\\"b\\\"\"\n");
  Options again;
  again.read({"--config", write_toml(text)});
  EXPECT_EQ(again.optimizer, "sgd");
  EXPECT_EQ(again.lr, 0.5);
  EXPECT_EQ(again.stopping.monitor, "a \"b\"");
  EXPECT_EQ(again.wanted, true);
}

TEST(OptionSections, RecordsHaveWhatWasGiven) {
  Options options;
  options.read({"--optimizer.lr", "0.5"});
  const auto text = [&] {
    return levin::detail::options_as_text(
        [&](levin::FieldVisitor& field) { options.fields(field); });
  };
  EXPECT_THAT(text(), ElementsAre(Pair("max_epochs", "5"), Pair("optimizer", ""),
                                  Pair("optimizer.lr", "0.5")));
  options.read({"--early-stopping.patience", "3"});  // the default, given
  EXPECT_THAT(text(), ::testing::Contains(Pair("early_stopping.patience", "3")));
}

TEST(OptionSections, HelpFoldsThemAndAWordUnfoldsThem) {
  const std::string help = Options().read({"--help"});
  EXPECT_THAT(help, AllOf(HasSubstr("  --optimizer []                      which optimizer\n"
                                    "  --optimizer.OPTION                  lr, nesterov; --help "
                                    "optimizer describes them\n"),
                          HasSubstr("\ncallbacks:\n  --early-stopping [false]            stop "
                                    "early\n  --early-stopping.OPTION             monitor, "
                                    "patience, min_delta; --help"),
                          Not(HasSubstr("checks"))));
  const std::string all = Options().read({"--help-all"});
  EXPECT_THAT(all, AllOf(HasSubstr("  --early-stopping.patience [3]       checks\n"),
                         HasSubstr("--optimizer.lr []"), HasSubstr("--max-epochs [5]"),
                         Not(HasSubstr(".OPTION"))));
  for (const char* word : {"early_stopping", "early-stopping", "--early-stopping"}) {
    const std::string one = Options().read({std::string("--help=") + word});
    EXPECT_THAT(one, AllOf(HasSubstr("--early-stopping.patience [3]       checks\n"),
                           HasSubstr("--early-stopping [false]"), Not(HasSubstr("--optimizer")),
                           Not(HasSubstr("--max-epochs [5]"))));
  }
  EXPECT_THAT(Options().read({"--help", "epoch"}),
              AllOf(HasSubstr("--max-epochs [5]"), Not(HasSubstr("--optimizer"))));
  EXPECT_THAT(Options().read({"--help", "optimization"}),
              AllOf(HasSubstr("--optimizer.lr []"), Not(HasSubstr("--max-epochs [5]"))));
  EXPECT_THAT(Options().error({"--help", "optimiser"}),
              StartsWith("base.options.unknown: --help has no option 'optimiser'; did you mean "
                         "'optimizer'?"));
  EXPECT_EQ(Options().read({"--help=false", "--help-all=false"}), "");
}

TEST(OptionSections, AnEnvironmentVariableIsAFlag) {
  const Variable epochs("LEVIN_MAX_EPOCHS", "7"), lr("LEVIN_OPTIMIZER__LR", "0.125"),
      patience("LEVIN_EARLY_STOPPING__PATIENCE", "9");
  Options options;
  options.read({});
  EXPECT_EQ(options.max_epochs, 7);
  EXPECT_EQ(options.lr, 0.125);
  EXPECT_EQ(options.stopping.patience, 9);
  EXPECT_TRUE(options.section.is_given());
  EXPECT_THAT(options.given, ElementsAre("early_stopping.patience", "max_epochs", "optimizer.lr"));
  // Flags, environment, file, program.
  const std::string file = write_toml("max_epochs = 8\n[optimizer]\nclass = 'sgd'\nlr = 2\n");
  Options all;
  all.read({"--max-epochs", "1", "--config", file});
  EXPECT_EQ(all.max_epochs, 1);
  EXPECT_EQ(all.lr, 0.125);
  EXPECT_EQ(all.optimizer, "sgd");
  {
    const Variable broken("LEVIN_EARLY_STOPPING__MIN_DELTA", "x");
    EXPECT_THAT(Options().error({}),
                StartsWith("base.options.value: early_stopping.min_delta of the environment "
                           "variable LEVIN_EARLY_STOPPING__MIN_DELTA: got 'x'"));
  }
  const Variable none("LEVIN_MAX_EPOCHS", "");
  Options empty;
  empty.read({});
  EXPECT_EQ(empty.max_epochs, 5);
  // parse reads them too.
  const Variable eleven("LEVIN_MAX_EPOCHS", "11");
  const char* words[] = {"program"};
  EXPECT_EQ(levin::parse<Options>(1, words).max_epochs, 11);
}

TEST(OptionSections, CommandsAndSettingsOfLevinAreNoOptions) {
  struct Named {
    std::string log = "none", pjrt_plugin = "none", name = "none";
    void fields(levin::FieldVisitor& field) {
      field("log", log, "a log");
      field("pjrt_plugin", pjrt_plugin, "a plugin");
      field("name", name, "a name");
    }
  } named;
  const Variable log("LEVIN_LOG", "error"), plugin("LEVIN_PJRT_PLUGIN", "/no/file"),
      name("LEVIN_NAME", "x");
  const auto walk = [&](levin::FieldVisitor& field) { named.fields(field); };
  levin::detail::read_options(std::vector<std::string>(), {}, walk);  // a command of levin
  EXPECT_EQ(named.name, "none");
  EXPECT_THAT(
      levin::detail::read_options(std::vector<std::string>(), {.environment = true}, walk).given,
      ElementsAre("name"));
  EXPECT_EQ(named.log, "none");
  EXPECT_EQ(named.pjrt_plugin, "none");
}

TEST(OptionSections, AMisspeltVariableIsAWarning) {
  const Variable epoch("LEVIN_MAX_EPOCH", "7"), other("LEVIN_HIDDEN_UNITS_OF_ANOTHER", "3"),
      setting("LEVIN_LOGS_TO", "");
  ::testing::internal::CaptureStderr();
  Options options;
  options.read({});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(options.max_epochs, 5);
  EXPECT_THAT(said, HasSubstr("LEVIN_MAX_EPOCH is no option of this program, so it has no effect; "
                              "did you mean LEVIN_MAX_EPOCHS?"));
  EXPECT_THAT(said, AllOf(Not(HasSubstr("HIDDEN_UNITS")), Not(HasSubstr("LOGS_TO"))));
}

TEST(OptionSections, ARecordOfARunMayHaveMoreThanOptions) {
  ::testing::internal::CaptureStderr();
  Options options;
  options.read({"--config", write_toml("# hyperparameters of a run of levin\nlayers = 3\n"
                                       "max_epochs = 4\n\"optimizer.lr\" = 0.5\n")});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("line 2: 'layers' is no option of this program, so it is left out"));
  EXPECT_EQ(options.max_epochs, 4);
  EXPECT_EQ(options.lr, 0.5);
}

}  // namespace option_sections
}  // namespace
