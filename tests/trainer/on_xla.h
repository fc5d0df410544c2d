#pragma once
// Small runs on XLA devices of the CPU's plugin.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/trainer/small_run.h"

namespace small_run {

inline levin::TrainerOptions on_xla(const std::string& root, levin::Devices devices,
                                    int64_t epochs) {
  levin::TrainerOptions options = quiet(root);
  options.accelerator = "xla";
  options.engine.pjrt_plugin = "cpu";
  options.devices = devices;
  options.max_epochs = epochs;
  options.num_sanity_val_steps = 0;
  return options;
}

inline void expect_same_rows(const std::vector<Recorder::Row>& rows,
                             const std::vector<Recorder::Row>& wanted) {
  ASSERT_EQ(rows.size(), wanted.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].name, wanted[i].name);
    EXPECT_NEAR(rows[i].value, wanted[i].value, 1e-5) << rows[i].name << " of " << rows[i].step;
  }
}

}  // namespace small_run
