// Each option of a program with an empty value, an odd one, and given twice: it is used, or an error names it. What
// stands behind it on the command line is heard in either case.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "levin/accelerator/options.h"
#include "levin/base/error.h"
#include "tests/trainer/small_run.h"

namespace {

using ::testing::HasSubstr;

struct Collect : levin::FieldVisitor {
  std::vector<levin::Field> all;
  void visit(levin::Field field) override {
    if (!field.name.empty()) all.push_back(std::move(field));
  }
};

template <class Options>
struct WithMark {
  Options options;
  std::string mark = "unheard";
  void fields(levin::FieldVisitor& field) {
    options.fields(field);
    field("mark", mark, "what stands behind the option");
  }
};

std::string flag_of(std::string name) {
  std::ranges::replace(name, '_', '-');
  return "--" + name;
}

template <class Options>
std::vector<levin::Field> fields_of(WithMark<Options>& options) {
  Collect collect;
  options.options.fields(collect);
  return collect.all;
}

/// Its text after that command line; "error: " and what it says where it says something.
template <class Options>
std::string value_after(WithMark<Options>& options, const std::string& name,
                        std::vector<std::string> words) {
  words.insert(words.begin(), "program");
  words.insert(words.end(), {"--mark", "heard"});
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  try {
    const auto printed =
        levin::detail::read_options(static_cast<int>(arguments.size()), arguments.data(),
                                    [&](levin::FieldVisitor& field) { options.fields(field); });
    if (printed) return "printed";
  } catch (const levin::Error& error) {
    return std::string("error: ") + error.what();
  }
  if (options.mark != "heard") return "the flag behind it was not heard";
  for (const levin::Field& field : fields_of(options)) {
    if (field.name == name) return field.get();
  }
  return "no such field";
}

template <class Options>
class AllOptionValues : public ::testing::Test {};
using AllOptions = ::testing::Types<levin::TrainerOptions, levin::AcceleratorOptions>;
TYPED_TEST_SUITE(AllOptionValues, AllOptions);

TYPED_TEST(AllOptionValues, AnEmptyOneIsTheEmptyTextOrAnErrorThatNamesTheOption) {
  WithMark<TypeParam> defaults;
  for (const levin::Field& field : fields_of(defaults)) {
    const std::string flag = flag_of(field.name);
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{flag + "="}, {flag, ""}}) {
      WithMark<TypeParam> options;
      const std::string value = value_after(options, field.name, words);
      if (value.starts_with("error: ")) {
        EXPECT_THAT(value, HasSubstr(field.name + " of the command line: got ''")) << flag;
      } else {
        EXPECT_EQ(value, "") << flag;
      }
    }
    WithMark<TypeParam> options;
    EXPECT_THAT(
        value_after(options, field.name, {flag, "--another"}),
        field.is_switch ? HasSubstr("no option '--another'") : HasSubstr(flag + " got no value"));
  }
}

TYPED_TEST(AllOptionValues, AnOddOneIsTakenAsItIsOrAnErrorThatNamesTheOption) {
  WithMark<TypeParam> defaults;
  for (const levin::Field& field : fields_of(defaults)) {
    for (const std::string odd : {"true", "-7", "x y"}) {
      WithMark<TypeParam> options;
      const std::string value = value_after(options, field.name, {flag_of(field.name), odd});
      if (value.starts_with("error: ")) {
        EXPECT_THAT(value, HasSubstr(field.name + " of the command line: got '" + odd + "'"));
      } else {
        EXPECT_EQ(value, odd) << field.name;
      }
    }
  }
}

TYPED_TEST(AllOptionValues, OfOneGivenTwiceTheLastCounts) {
  WithMark<TypeParam> defaults;
  for (const levin::Field& field : fields_of(defaults)) {
    for (const std::string text : {"1", "true", "auto", "0.5"}) {
      WithMark<TypeParam> once, twice;
      const std::string wanted = value_after(once, field.name, {flag_of(field.name), text});
      if (wanted.starts_with("error: ")) continue;
      EXPECT_EQ(
          value_after(twice, field.name, {flag_of(field.name) + "=", flag_of(field.name), text}),
          wanted);
    }
  }
}

/// Of a run that is over after its first steps.
std::string error_of_run(const levin::TrainerOptions& options) {
  try {
    levin::Trainer trainer(options);
    const levin::DataLoader loader(small_run::dataset(8), {.batch_size = 4});
    trainer.fit(std::make_shared<small_run::Net>(), loader, loader);
  } catch (const levin::Error& error) {
    return error.what();
  }
  return "";
}

std::string error_of_run(const levin::AcceleratorOptions& options) {
  try {
    levin::Accelerator accelerator(options);
    accelerator.init_trackers("run");
    torch::nn::Linear net(2, 1);
    auto [model, optimizer, loader] = accelerator.prepare(
        net, levin::optim::sgd({.lr = 0.1}),
        levin::DataLoader(levin::data::tensors({{"x", torch::ones({4, 2})}}), {.batch_size = 2}));
    for (const auto& batch : loader) {
      optimizer.zero_grad();
      accelerator.backward(model->forward(batch["x"]).sum());
      optimizer.step();
    }
  } catch (const levin::Error& error) {
    return error.what();
  }
  return "";
}

/// Odd values that have a meaning all the same.
// NOLINTNEXTLINE(bugprone-throwing-static-initialization)
const std::set<std::string> kMeaningful = {
    "max_time=",     // no limit
    "pjrt_plugin=",  // what is found
    "ckpt_path=",    // anew
    "seed=-7",
    "data_seed=-7",  // numbers
    "project_dir=",
    "offload_folder=",
    "mesh=",                        // one copy
    "fsdp_ignored_params=",         // none
    "fsdp_reshard_after_forward=",  // what the memory says
    "profiler=",                    // none
    "deterministic=true",
    "log_with=",
    "rng_types=",  // lists without an item
};

/// The message names the option, with or without the word before it (scaler_growth_factor, growth_factor), or the
/// value of one that is a path.
bool names_option(const std::string& message, const std::string& name, const std::string& value) {
  std::string flat = message;
  std::ranges::replace(flat, '-', '_');
  const std::string tail = name.substr(name.find('_') + 1);
  return flat.find(tail) != std::string::npos ||
         (name == "ckpt_path" && message.find("checkpoint folder '" + value) != std::string::npos);
}

template <class Options>
void expect_used_or_named(const Options& defaults, const std::set<std::string>& left_out) {
  WithMark<Options> any;
  for (const levin::Field& field : fields_of(any)) {
    if (field.is_switch || left_out.contains(field.name)) continue;
    for (const std::string odd : {"true", "-7", ""}) {
      WithMark<Options> options{defaults};
      const std::string value = value_after(options, field.name, {flag_of(field.name) + "=" + odd});
      if (value.starts_with("error: ")) continue;
      const std::string error = error_of_run(options.options);
      if (kMeaningful.contains(field.name + "=" + odd)) {
        EXPECT_EQ(error, "") << field.name << " = '" << odd << "'";
      } else {
        EXPECT_TRUE(names_option(error, field.name, odd))
            << field.name << " = '" << odd << "': " << error;
      }
    }
  }
}

TEST(OptionValues, WhatNoTrainerCanUseIsAnErrorThatNamesTheOption) {
  const small_run::Scratch root;
  levin::TrainerOptions options = small_run::quiet(root.str());
  options.max_epochs = 1;
  // Folders of any name, and a switch.
  expect_used_or_named(
      options, {"default_root_dir", "logger", "logger.save_dir", "logger.name", "logger.version"});
}

TEST(OptionValues, WhatNoAcceleratorCanUseIsAnErrorThatNamesTheOption) {
  expect_used_or_named(levin::AcceleratorOptions{}, {"project_dir"});  // a folder of any name
}

}  // namespace
