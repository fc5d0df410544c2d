#pragma once
// TrainerOptions: all that a run can be told, under Lightning's names and in their order.

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "levin/accelerator/options.h"
#include "levin/base/export.h"
#include "levin/base/options.h"
#include "levin/module/module.h"
#include "levin/observe/logger.h"

// Option types that Lightning's users write as a fraction or a count, a number or a word.

namespace levin {

/// Part of an epoch: a floating number is a fraction of its batches (1.0: all), an integer a count.
/// As text "1.0" is the fraction and "1" the count.
class LEVIN_API Portion {
 public:
  template <std::integral T>
  Portion(T count) : count_(count) {}  // NOLINT: reads as the number it is
  template <std::floating_point T>
  Portion(T fraction) : is_fraction_(true), fraction_(fraction) {}  // NOLINT

  /// Of total batches, rounded down.
  int64_t of(int64_t total) const;
  bool is_fraction() const { return is_fraction_; }
  /// The fraction 1.0.
  bool is_whole() const { return is_fraction_ && fraction_ == 1.0; }
  /// 0 or 0.0.
  bool is_none() const { return is_fraction_ ? fraction_ == 0.0 : count_ == 0; }
  /// False for a negative number or a fraction above 1.
  bool valid() const;

  friend LEVIN_API std::string to_text(const Portion& portion);
  friend LEVIN_API void from_text(std::string_view text, Portion& portion);

 private:
  bool is_fraction_ = false;
  int64_t count_ = 0;
  double fraction_ = 0.0;
};

/// A number of devices, at least 1, or "auto".
class LEVIN_API Devices {
 public:
  template <std::integral T>
  Devices(T count) : count_(count) {}                    // NOLINT: reads as the number it is
  Devices(const char* text) { from_text(text, *this); }  // NOLINT

  /// 0 stands for "auto".
  int64_t count() const { return is_auto_ ? 0 : count_; }
  bool valid() const { return is_auto_ || count_ > 0; }

  friend LEVIN_API std::string to_text(const Devices& devices);
  friend LEVIN_API void from_text(std::string_view text, Devices& devices);

 private:
  bool is_auto_ = false;
  int64_t count_ = 0;
};

LEVIN_API std::string to_text(const Portion& portion);
LEVIN_API void from_text(std::string_view text, Portion& portion);
LEVIN_API std::string to_text(const Devices& devices);
LEVIN_API void from_text(std::string_view text, Devices& devices);

/// true: a CSV and a TensorBoard logger in one folder; false: none; or the loggers themselves.
class LEVIN_API Loggers {
 public:
  Loggers(bool on = true) : on_(on) {}  // NOLINT: reads as the value it is
  template <class T>
    requires std::derived_from<T, Logger>
  Loggers(std::shared_ptr<T> logger) : loggers_{std::move(logger)} {}  // NOLINT
  Loggers(std::initializer_list<std::shared_ptr<Logger>> list) : loggers_(list) {}

  bool on() const { return on_; }
  const std::vector<std::shared_ptr<Logger>>& list() const { return loggers_; }

 private:
  bool on_ = true;
  std::vector<std::shared_ptr<Logger>> loggers_;
};
LEVIN_API std::string to_text(const Loggers& loggers);
LEVIN_API void from_text(std::string_view text, Loggers& loggers);

struct TrainerOptions {
  // Behaviour
  std::string accelerator = "auto";  ///< auto, cpu, gpu, tpu or xla
  std::string strategy = "auto";     ///< one of strategy_names()
  /// Processes on this machine, one for each device; of tpu and xla, devices of one process, which
  /// share its batches. auto: as many as a launcher has started; else one for each GPU, or all TPU
  /// cores or GPUs of xla, of a CPU plugin one.
  Devices devices = "auto";
  int64_t num_nodes = 1;  ///< machines
  std::string precision =
      "32-true";  ///< 32-true, 64-true, bf16-true, 16-true, bf16-mixed, 16-mixed
  Loggers logger = true;
  std::vector<std::shared_ptr<Callback>> callbacks;
  int64_t fast_dev_run = 0;           ///< run so many batches of each loop, write nothing; 0: off
  std::optional<int64_t> max_epochs;  ///< 1000 when no limit is given; -1: none
  int64_t min_epochs = 0;  ///< no stop before; 1 where min_steps is given and this is not
  int64_t max_steps = -1;  ///< optimizer steps; -1: no limit
  int64_t min_steps = 0;
  std::string max_time;  ///< DD:HH:MM:SS; empty: no limit
  Portion limit_train_batches = 1.0;
  Portion limit_val_batches = 1.0;
  Portion limit_test_batches = 1.0;
  Portion limit_predict_batches = 1.0;
  Portion val_check_interval = 1.0;  ///< validate after this part of an epoch
  int64_t check_val_every_n_epoch = 1;
  int64_t num_sanity_val_steps = 2;  ///< validation batches before training; -1: all
  int64_t log_every_n_steps = 50;    ///< how often loggers and the bar read values
  bool enable_checkpointing = true;
  bool enable_progress_bar = true;
  bool enable_model_summary = true;
  int64_t accumulate_grad_batches = 1;
  std::optional<double> gradient_clip_val;
  std::string gradient_clip_algorithm = "norm";  ///< norm or value
  bool deterministic = false;                    ///< as torch.use_deterministic_algorithms
  // Performance
  bool benchmark = false;      ///< let cuDNN try its algorithms
  bool inference_mode = true;  ///< evaluation in c10::InferenceMode, else without gradients
  // Behaviour
  bool detect_anomaly = false;         ///< name the operator whose gradient is NaN; slow
  bool barebones = false;              ///< nothing but the steps, to measure overhead
  std::string default_root_dir = ".";  ///< logs and checkpoints go to levin_logs in it
  // levin's own
  std::string ckpt_path;  ///< resume: a checkpoint's folder, or "last"; empty: start anew
  /// A resumed run goes on in the folder of logs and checkpoints that it has written, without rows from after the
  /// checkpoint; where that is not there or another run's, and with false, in a new one.
  bool resume_in_place = true;
  std::optional<int64_t> seed;    ///< seed_everything(seed), by parse and when the trainer is made
  bool exit_on_signal = true;     ///< after SIGTERM or SIGINT and the save, exit with 143 or 130
  bool dispatch_batches = false;  ///< rank 0 alone reads the data and hands out the batches
  int64_t tpu_cores = 0;          ///< accelerator = "tpu" with so many devices; 0: unset

  EngineOptions engine = {};  ///< all that an Accelerator takes too

  LEVIN_API void fields(FieldVisitor& field);
};

namespace detail {
/// seed_everything, where a seed was given.
LEVIN_API void seed_as_told(const TrainerOptions& options);
template <class Options>
void seed_as_told(const Options&) {}
}  // namespace detail

/// As for any options. A seed that is given, as a flag, in the file or by the program, is set here
/// (seed_everything), so that it also holds for what is made before the Trainer.
template <class... Options>
  requires(std::same_as<Options, TrainerOptions> || ...)
void parse_into(int argc, const char* const* argv, Options&... options) {
  detail::read_options_or_exit(argc, argv,
                               [&](FieldVisitor& field) { (options.fields(field), ...); });
  (detail::seed_as_told(options), ...);
}

}  // namespace levin
