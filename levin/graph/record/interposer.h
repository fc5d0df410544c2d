#pragma once
// Interposer: sees every operator that the code of a scope runs, below autograd and above the
// kernels, backward included. It is the place for a recorder, and for code that must act on a
// tensor before an operator first touches it.
//
//   struct Count : levin::graph::OperatorHandler {
//     int64_t calls = 0;
//     void call(levin::graph::OperatorCall& call) override { ++calls; call.proceed(); }
//   } count;
//   { const levin::graph::HandlerScope scope(count); net->forward(x).sum().backward(); }

#include <c10/util/FunctionRef.h>

#include <memory>
#include <vector>

#include "levin/base/export.h"

namespace c10 {
class OperatorHandle;
struct IValue;
}  // namespace c10

namespace levin::graph {

/// One operator under way to its kernel, in the thread that runs it.
class LEVIN_API OperatorCall {
 public:
  const c10::OperatorHandle& op() const { return *op_; }
  /// Ends with the operator's arguments before proceed(), with its results after.
  std::vector<c10::IValue>& stack() { return stack_; }
  /// Hands the call to the scope around this one, in the end to the kernel.
  void proceed();
  /// Hands the call to the kernel, past the scopes around this one.
  void proceed_unseen();
  /// The same with another operator, whose arguments have taken the place of this one's.
  void proceed_as(const c10::OperatorHandle& op);
  /// Runs another operator on its arguments, which end the stack, through the scopes around this
  /// one: a recorder there sees it, before or after this call. The results are on the stack then.
  void run(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack) const;
  /// The same for all operators that the code calls; autograd does not see them.
  void run(c10::function_ref<void()> code) const;

 private:
  friend struct Interposition;
  struct Below;
  OperatorCall(const c10::OperatorHandle& op, std::vector<c10::IValue>& stack, Below& below)
      : op_(&op), stack_(stack), below_(below) {}

  const c10::OperatorHandle* op_;
  std::vector<c10::IValue>& stack_;
  Below& below_;
};

class LEVIN_API OperatorHandler {
 public:
  virtual ~OperatorHandler() = default;
  /// Calls proceed() once, or leaves results on the stack itself. No handler sees operators that
  /// run within it: kernels and their inner calls. Composite operators are not seen either, only
  /// the operators that they call.
  virtual void call(OperatorCall& call) = 0;
};

/// The handler sees the operators of this thread as long as the object lives, and operators that
/// other threads run on its behalf: LibTorch carries this state to the autograd engine's device
/// threads (one handler may then be called from several of them) and to at::launch, not to a
/// std::thread. Scopes nest; the innermost is called first. Without a scope there is no cost.
class LEVIN_API HandlerScope {
 public:
  explicit HandlerScope(OperatorHandler& handler);
  ~HandlerScope();
  HandlerScope(const HandlerScope&) = delete;
  HandlerScope& operator=(const HandlerScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// No handler sees the operators of this thread for the time of the object, as those with which a
/// strategy once finds out what the ranks do alike.
class LEVIN_API UnseenScope {
 public:
  UnseenScope();
  ~UnseenScope();
  UnseenScope(const UnseenScope&) = delete;
  UnseenScope& operator=(const UnseenScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace levin::graph
