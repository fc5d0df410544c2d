#pragma once
// CliFlags: the options of levin::cli beside those of the Trainer, the module and the data: the optimizer, its schedule
// and callbacks. Not for users.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "levin/base/options.h"
#include "levin/base/options/option_section.h"
#include "levin/module/module.h"
#include "levin/optim/optim.h"

namespace levin::detail {

/// Callbacks that flags add: by name in --callbacks, as a switch, or by one of their options.
class CallbackFlags {
 public:
  CallbackFlags();

  void fields(FieldVisitor& field);
  /// Throws Error "trainer.cli.callback" for an unknown name in --callbacks, and for a callback that the program has
  /// added itself.
  void add_to(std::vector<std::shared_ptr<Callback>>& callbacks) const;

 private:
  struct Entry {
    OptionSection section;
    std::string help;
    std::function<void(FieldVisitor&, OptionSection&)> fields;
    std::function<std::shared_ptr<Callback>()> make;
    std::optional<bool> wanted = {};
  };
  template <class Options, class Made>
  void add(std::string name, std::string help, void (*visit)(FieldVisitor&, Options&),
           std::shared_ptr<Made> (*make)(Options));
  bool is_on(const Entry& entry) const;

  std::vector<Entry> entries_;
  std::vector<std::string> names_;
};

class CliFlags {
 public:
  /// The module's and the data's own options; an option of theirs replaces ours of that name. If the module overrides
  /// configure_optimizers, the optimizer's flags are errors.
  CliFlags(const WalkFields& own, bool overrides_optimizer);

  void fields(FieldVisitor& field);
  /// Throws Error "trainer.cli.optimizer" and "optim.choice", and what the optimizer's options throw.
  void check() const;
  /// Gives the chosen optimizer to the module, if one was chosen.
  void give_optimizer(Module& module) const;
  const CallbackFlags& callbacks() const { return callbacks_; }

 private:
  bool chooses_optimizer() const;

  std::set<std::string> taken_;
  bool overrides_optimizer_;
  optim::OptimizerOptions optimizer_;
  CallbackFlags callbacks_;
};

}  // namespace levin::detail
