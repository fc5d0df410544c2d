// The fused updates of ATen, as aten/src/ATen/native/cpu/Fused*Kernel.cpp compute them.
#include <ATen/core/dispatch/Dispatcher.h>

#include <cmath>

#include "levin/xla/stablehlo/lower/lowering.h"

namespace levin::xla {
namespace {

/// Arithmetic on full tensors in one dtype; numbers are repeated.
struct Maths {
  Lowering& at;
  at::ScalarType dtype;

  Hlo number(double value) const { return at.runtime(value, dtype); }
  Hlo of(std::string_view name, const Hlo& a, const Hlo& b) const {
    const Dims& sizes = a.rank() >= b.rank() ? a.sizes : b.sizes;
    return at.hlo.binary(name, at.hlo.expand(a, sizes), at.hlo.expand(b, sizes));
  }
  Hlo add(const Hlo& a, const Hlo& b) const { return of("add", a, b); }
  Hlo subtract(const Hlo& a, const Hlo& b) const { return of("subtract", a, b); }
  Hlo multiply(const Hlo& a, const Hlo& b) const { return of("multiply", a, b); }
  Hlo divide(const Hlo& a, const Hlo& b) const { return of("divide", a, b); }
  Hlo root(const Hlo& a) const { return at.hlo.unary("sqrt", a); }
  /// a + weight * (b - a)
  Hlo lerp(const Hlo& a, const Hlo& b, double weight) const {
    return add(a, multiply(number(weight), subtract(b, a)));
  }
};

/// By name, because there are many arguments and the overloads differ in some.
size_t index_of(const Lowering& at, std::string_view name) {
  return static_cast<size_t>(*at.node.op().schema().argumentIndexWithName(name));
}

struct Update {
  Lowering& at;

  std::vector<Hlo> list(std::string_view name) { return at.tensors(index_of(at, name)); }
  double number(std::string_view name) { return at.number(index_of(at, name)); }
  bool flag(std::string_view name) { return at.flag(index_of(at, name)); }
  /// The learning rate, a number or a tensor of one.
  Hlo rate(at::ScalarType dtype) { return at.tensor(index_of(at, "lr"), dtype); }
  std::vector<graph::Value*> values(std::string_view name) {
    return std::get<graph::Values>(at.node.arguments()[index_of(at, name)]);
  }
  Hlo step(std::string_view name, size_t i, at::ScalarType dtype) {
    return at.hlo.reshape(at.tensor_of(*values(name)[i], dtype), {});
  }
};

/// The gradient as it goes into the update: unscaled, its sign turned, decayed in L2's way.
Hlo gradient_of(const Maths& maths, Update& update, const Hlo& gradient, const Hlo& parameter,
                double weight_decay) {
  Hlo g = maths.at.hlo.convert(gradient, maths.dtype);
  const size_t scale = index_of(maths.at, "grad_scale");
  if (maths.at.has(scale)) g = maths.divide(g, maths.at.tensor(scale, maths.dtype));
  if (update.flag("maximize")) g = maths.at.hlo.unary("negate", g);
  if (weight_decay != 0) g = maths.add(g, maths.multiply(maths.number(weight_decay), parameter));
  return g;
}

/// 1 - beta^step, without the loss of digits that the difference has near 1.
Hlo bias_correction(const Maths& maths, double beta, const Hlo& step) {
  if (beta == 0) return maths.number(1);
  const Hlo exponent = maths.multiply(maths.number(std::log(beta)), step);
  return maths.at.hlo.unary("negate", maths.at.hlo.unary("exponential_minus_one", exponent));
}

struct Lists {
  std::vector<Hlo> parameters, gradients;
  std::vector<std::vector<Hlo>> slots;

  /// Gives the results in the order of the written arguments. Values without an update stay the
  /// same.
  void give(Lowering& at) const {
    for (const Hlo& value : parameters) at.give(value);
    for (const Hlo& value : gradients) at.give(value);
    for (const auto& slot : slots) {
      for (const Hlo& value : slot) at.give(value);
    }
  }
};

/// The loss scaler has found an infinity: nothing changes.
void keep_where_infinite(Lowering& at, const Lists& before, Lists& after) {
  const size_t found = index_of(at, "found_inf");
  if (!at.has(found)) return;
  const Hlo is_infinite = at.hlo.convert(at.hlo.reshape(at.tensor(found), {}), at::kBool);
  const auto keep = [&](const std::vector<Hlo>& old_values, std::vector<Hlo>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const Hlo value = at.hlo.convert(values[i], old_values[i].dtype);
      values[i] = at.hlo.select(at.spread(is_infinite, value), old_values[i], value);
    }
  };
  keep(before.parameters, after.parameters);
  for (size_t i = 0; i < after.slots.size(); ++i) keep(before.slots[i], after.slots[i]);
}

LowerFunction adam(bool is_decoupled) {
  return [is_decoupled](Lowering& at) {
    Update update{at};
    const Lists before{
        update.list("self"),
        update.list("grads"),
        {update.list("exp_avgs"), update.list("exp_avg_sqs"), update.list("max_exp_avg_sqs")}};
    Lists after = before;
    const double beta1 = update.number("beta1");
    const double beta2 = update.number("beta2");
    const double decay = update.number("weight_decay");
    for (size_t i = 0; i < before.parameters.size(); ++i) {
      const Maths maths{at, Lowering::compute_dtype(before.parameters[i].dtype)};
      const auto load = [&](const Hlo& value) { return at.hlo.convert(value, maths.dtype); };
      const Hlo rate = update.rate(maths.dtype);
      Hlo p = load(before.parameters[i]);
      const Hlo g = gradient_of(maths, update, before.gradients[i], p, is_decoupled ? 0.0 : decay);
      if (is_decoupled && decay != 0) {
        const Hlo kept = maths.subtract(maths.number(1), maths.multiply(rate, maths.number(decay)));
        p = maths.multiply(p, kept);
      }
      const Hlo mean = maths.lerp(load(before.slots[0][i]), g, 1 - beta1);
      const Hlo square = maths.add(maths.multiply(maths.number(beta2), load(before.slots[1][i])),
                                   maths.multiply(maths.multiply(maths.number(1 - beta2), g), g));
      const Hlo step = update.step("state_steps", i, maths.dtype);
      Hlo greatest = square;
      if (update.flag("amsgrad")) {
        greatest = maths.of("maximum", load(before.slots[2][i]), square);
        after.slots[2][i] = greatest;
      }
      const Hlo correction = maths.root(bias_correction(maths, beta2, step));
      const Hlo divisor = maths.add(maths.divide(maths.root(greatest), correction),
                                    maths.number(update.number("eps")));
      const Hlo size = maths.divide(rate, bias_correction(maths, beta1, step));
      after.parameters[i] = maths.subtract(p, maths.divide(maths.multiply(size, mean), divisor));
      after.slots[0][i] = mean;
      after.slots[1][i] = square;
    }
    keep_where_infinite(at, before, after);
    after.give(at);
  };
}

void lower_sgd(Lowering& at) {
  Update update{at};
  const Lists before{
      update.list("self"), update.list("grads"), {update.list("momentum_buffer_list")}};
  Lists after = before;
  const double momentum = update.number("momentum");
  const bool is_first = update.flag("is_first_step");
  for (size_t i = 0; i < before.parameters.size(); ++i) {
    const Maths maths{at, Lowering::compute_dtype(before.parameters[i].dtype)};
    const Hlo p = at.hlo.convert(before.parameters[i], maths.dtype);
    Hlo g = gradient_of(maths, update, before.gradients[i], p, update.number("weight_decay"));
    if (momentum != 0) {
      Hlo buffer = g;
      if (!is_first) {
        const Hlo old = at.hlo.convert(before.slots[0][i], maths.dtype);
        buffer = maths.add(maths.multiply(maths.number(momentum), old),
                           maths.multiply(maths.number(1 - update.number("dampening")), g));
      }
      after.slots[0][i] = buffer;
      g = update.flag("nesterov") ? maths.add(g, maths.multiply(maths.number(momentum), buffer))
                                  : buffer;
    }
    after.parameters[i] = maths.subtract(p, maths.multiply(update.rate(maths.dtype), g));
  }
  keep_where_infinite(at, before, after);
  after.give(at);
}

void lower_adagrad(Lowering& at) {
  Update update{at};
  // The schema has the steps written, too, which they are not.
  const Lists before{update.list("self"),
                     update.list("grads"),
                     {update.list("state_sums"), update.list("state_steps")}};
  Lists after = before;
  for (size_t i = 0; i < before.parameters.size(); ++i) {
    const Maths maths{at, Lowering::compute_dtype(before.parameters[i].dtype)};
    const Hlo p = at.hlo.convert(before.parameters[i], maths.dtype);
    const Hlo g = gradient_of(maths, update, before.gradients[i], p, update.number("weight_decay"));
    const Hlo sum =
        maths.add(at.hlo.convert(before.slots[0][i], maths.dtype), maths.multiply(g, g));
    const Hlo steps_before =
        maths.subtract(update.step("state_steps", i, maths.dtype), maths.number(1));
    const Hlo slowed = maths.add(
        maths.number(1), maths.multiply(steps_before, maths.number(update.number("lr_decay"))));
    const Hlo rate = maths.divide(update.rate(maths.dtype), slowed);
    const Hlo divisor = maths.add(maths.root(sum), maths.number(update.number("eps")));
    after.parameters[i] = maths.subtract(p, maths.divide(maths.multiply(rate, g), divisor));
    after.slots[0][i] = sum;
  }
  keep_where_infinite(at, before, after);
  after.give(at);
}

}  // namespace

void add_optimizers(LoweringTable& table) {
  table["aten::_fused_adam_"] = table["aten::_fused_adam_.tensor_lr"] = adam(false);
  table["aten::_fused_adamw_"] = table["aten::_fused_adamw_.tensor_lr"] = adam(true);
  table["aten::_fused_sgd_"] = table["aten::_fused_sgd_.tensor_lr"] = lower_sgd;
  table["aten::_fused_adagrad_"] = lower_adagrad;
}

}  // namespace levin::xla
