#include <ATen/core/DistributionsHelper.h>
#include <ATen/ops/empty.h>

#include "levin/base/check.h"
#include "levin/base/random/mersenne_twister.h"
#include "levin/graph/meta/draw_place_impl.h"

namespace levin::graph::meta {

GeneratorState GeneratorState::of(at::CPUGeneratorImpl& generator) {
  return {.engine = generator.engine().data(),
          .next_float = generator.next_float_normal_sample(),
          .next_double = generator.next_double_normal_sample()};
}

void GeneratorState::put(at::CPUGeneratorImpl& generator) const {
  at::mt19937 moved;
  moved.set_data(engine);
  generator.set_engine(moved);
  generator.set_next_float_normal_sample(next_float);
  generator.set_next_double_normal_sample(next_double);
}

bool GeneratorState::operator==(const GeneratorState& other) const {
  return engine.seed_ == other.engine.seed_ && engine.left_ == other.engine.left_ &&
         engine.next_ == other.engine.next_ && engine.state_ == other.engine.state_ &&
         next_float == other.next_float && next_double == other.next_double;
}

void DrawPlace::put(at::CPUGeneratorImpl& generator) const {
  GeneratorState state = *start;
  if (!kept.is_starts) state.next_double = std::nullopt;
  if (!kept.is_starts && kept.pair) {
    detail::discard(state.engine, *kept.pair);
    state.put(generator);
    at::normal_distribution<double> normal(0.0, 1.0);
    normal(&generator);
    state.next_double = generator.next_double_normal_sample();
    state.engine = start->engine;
  }
  detail::discard(state.engine, words);
  state.put(generator);
}

at::CPUGeneratorImpl& cpu_generator(const at::Generator& generator) {
  return *at::check_generator<at::CPUGeneratorImpl>(
      generator.defined() ? generator : at::detail::getDefaultCPUGenerator());
}

namespace {

constexpr uint64_t kPairWords = 4;  // two doubles

/// Words that filling a tensor of so many elements draws.
uint64_t words_drawn(Fill fill, at::ScalarType dtype, int64_t count) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{1});
  auto& cpu = *generator.get<at::CPUGeneratorImpl>();
  cpu.random();  // from here on the engine counts down
  const int before = cpu.engine().data().left_;
  const at::Tensor trial = at::empty({count}, at::dtype(dtype).device(at::kCPU));
  if (fill == Fill::kUniform) {
    trial.uniform_(0, 1, generator);
  } else {
    trial.normal_(0, 1, generator);
  }
  return static_cast<uint64_t>(before - cpu.engine().data().left_);
}

std::optional<uint64_t> try_words_each(Fill fill, at::ScalarType dtype) {
  if (!c10::isFloatingType(dtype) || c10::isFloat8Type(dtype)) return std::nullopt;
  constexpr int64_t kBlock = DrawRules::kNormalBlock;
  const uint64_t each = words_drawn(fill, dtype, 2 * kBlock) / (2 * kBlock);
  const uint64_t uneven = words_drawn(fill, dtype, 2 * kBlock + 5);
  const uint64_t again = fill == Fill::kNormal ? kBlock : 0;
  if (each == 0 || uneven != each * (2 * kBlock + 5 + again)) return std::nullopt;
  if (words_drawn(fill, dtype, 0) != 0) return std::nullopt;
  if (fill == Fill::kNormal && words_drawn(fill, dtype, 7) != 4 * kPairWords) return std::nullopt;
  return each;
}

/// Returns the place behind normal numbers that are drawn one by one, in pairs.
DrawPlace after_pairs(const DrawPlace& place, int64_t count) {
  if (count == 0) return place;
  DrawPlace after = place;
  const int64_t fresh = count - (place.keeps_one() ? 1 : 0);
  const auto pairs = static_cast<uint64_t>((fresh + 1) / 2);
  after.words += kPairWords * pairs;
  after.kept = {.is_starts = false, .pair = std::nullopt};
  if (fresh % 2 != 0) after.kept.pair = after.words - kPairWords;
  return after;
}

}  // namespace

std::optional<uint64_t> DrawRules::words_each(Fill fill, at::ScalarType dtype) {
  const int key = static_cast<int>(dtype) * 2 + (fill == Fill::kNormal ? 1 : 0);
  const auto [entry, is_new] = words_each_.try_emplace(key);
  if (is_new) entry->second = try_words_each(fill, dtype);
  return entry->second;
}

std::optional<DrawPlace> DrawRules::after(const DrawPlace& place, Fill fill,
                                          const at::Tensor& tensor) {
  const std::optional<uint64_t> each = words_each(fill, tensor.scalar_type());
  if (!each) return std::nullopt;
  const int64_t count = tensor.numel();
  if (fill == Fill::kUniform) return place.after(static_cast<uint64_t>(count) * *each);
  if (count < kNormalBlock || !tensor.is_contiguous()) return after_pairs(place, count);
  const int64_t again = count % kNormalBlock != 0 ? kNormalBlock : 0;
  return place.after(static_cast<uint64_t>(count + again) * *each);
}

DrawPlaces::Followed& DrawPlaces::followed(const at::Generator& generator) {
  at::CPUGeneratorImpl& cpu = cpu_generator(generator);
  const at::Generator& met = generator.defined() ? generator : at::detail::getDefaultCPUGenerator();
  const auto [entry, is_new] = generators_.try_emplace(&cpu, Followed{met, {}});
  Followed& followed = entry->second;
  GeneratorState now = GeneratorState::of(cpu);
  if (!is_new && now == *followed.place.start) return followed;
  const bool is_seeded_anew =
      now.engine.state_ == at::mt19937(now.engine.seed_).data().state_ && now.engine.left_ == 1;
  const bool owes = !is_new && (followed.place.words > 0 || !followed.place.kept.is_starts);
  LEVIN_CHECK(!owes || is_seeded_anew, "graph.meta.generator",
              "the constructor advances a random generator directly, while the values of tensors "
              "created before are not drawn from it yet; draw with torch::rand or a similar "
              "operator, or build without init_on_meta");
  followed.place = {.start = std::make_shared<GeneratorState>(std::move(now))};
  return followed;
}

DrawPlace DrawPlaces::place(const at::Generator& generator) {
  const std::scoped_lock lock(cpu_generator(generator).mutex_);
  return followed(generator).place;
}

void DrawPlaces::move(const at::Generator& generator, DrawPlace to) {
  const std::scoped_lock lock(cpu_generator(generator).mutex_);
  Followed& of = followed(generator);
  if (to.start != of.place.start) {
    // Somebody had to draw in truth to learn where that ends.
    to.put(cpu_generator(generator));
  }
  of.place = std::move(to);
}

void DrawPlaces::put_back(const at::Generator& generator) {
  at::CPUGeneratorImpl& cpu = cpu_generator(generator);
  const std::scoped_lock lock(cpu.mutex_);
  generators_.at(&cpu).place.start->put(cpu);
}

void DrawPlaces::settle(const at::Generator& generator) {
  at::CPUGeneratorImpl& cpu = cpu_generator(generator);
  const std::scoped_lock lock(cpu.mutex_);
  Followed& of = followed(generator);
  if (of.place.words == 0 && of.place.kept.is_starts) return;
  of.place.put(cpu);
  of.place = {.start = std::make_shared<GeneratorState>(GeneratorState::of(cpu))};
}

void DrawPlaces::settle_all() {
  std::vector<at::Generator> all;
  for (const auto& [impl, of] : generators_) all.push_back(of.generator);
  for (const at::Generator& generator : all) settle(generator);
}

void DrawPlaces::moved_itself(const at::Generator& generator) {
  at::CPUGeneratorImpl& cpu = cpu_generator(generator);
  const std::scoped_lock lock(cpu.mutex_);
  const auto entry = generators_.find(&cpu);
  if (entry == generators_.end()) return;
  entry->second.place = {.start = std::make_shared<GeneratorState>(GeneratorState::of(cpu))};
}

}  // namespace levin::graph::meta
