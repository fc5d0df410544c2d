#pragma once
// CarefulHandler: records the operators of a scope. If something cannot be recorded, the code runs
// on without a recording.

#include <memory>
#include <mutex>
#include <string>

#include "levin/base/error.h"
#include "levin/graph/record/current_place.h"
#include "levin/graph/record/interposer.h"
#include "levin/graph/record/recorder_impl.h"

namespace levin::graph {

class CarefulHandler final : public OperatorHandler {
 public:
  explicit CarefulHandler(Recorder& recorder) : recorder_(recorder) {}

  void call(OperatorCall& call) override {
    std::unique_ptr<Recorder::Call> recorded;
    attempt([&] { recorded = recorder_.begin(call.op(), call.stack()); }, Place::kOperator);
    call.proceed();
    attempt([&] { recorder_.end(std::move(recorded), call.stack()); }, Place::kOperator);
  }

  /// Why there is no recording; empty where there is one.
  const std::string& reason() const { return reason_; }

  /// Where the step runs: an operator's error is reported with the line that runs it.
  enum class Place { kOperator, kElsewhere };
  template <class Step>
  void attempt(const Step& step, Place place = Place::kElsewhere) {
    const std::scoped_lock lock(mutex_);
    if (!reason_.empty()) return;
    try {
      step();
    } catch (const Error& error) {
      reason_ = error.text();
      const bool has_place = reason_.find(", in ") != std::string::npos;
      if (place == Place::kOperator && !has_place) reason_ = with_place(reason_, current_place());
    }
  }

 private:
  Recorder& recorder_;
  std::mutex mutex_;
  std::string reason_;
};

}  // namespace levin::graph
