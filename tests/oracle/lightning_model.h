#pragma once
// The model, callback and logger of lightning_model.py: they tell what they are told of.

#include <nlohmann/json.hpp>

#include <memory>

#include "levin/module/module.h"
#include "levin/observe/logger.h"
#include "levin/trainer/trainer.h"
#include "tests/oracle/lightning_record.h"

namespace lightning_grid {

/// What all of them look at; the trainer and the record are those of the command that runs.
struct Scene {
  const json& setting;
  std::unique_ptr<levin::Trainer> trainer;
  std::unique_ptr<Record> record;
};

std::shared_ptr<levin::Module> make_model(Scene& scene);
/// Told of each hook, and looks at callback_metrics where callbacks decide.
std::shared_ptr<levin::Callback> make_listener(Scene& scene);
std::shared_ptr<levin::Logger> make_rows(Scene& scene);

}  // namespace lightning_grid
