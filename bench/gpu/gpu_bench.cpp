// levin's side of the GPU benchmarks: one system on one work. It takes commands from run.py, so that the steps
// of all systems are timed in turn, each in a process that is warm.
//
//   gpu_bench --work gpt2 --mode replay --folder FOLDER
//   < warm 12        > {"losses": [10.98, 10.61, ...]}          12 steps
//   < time 3 20      > {"seconds": 1.31}                        3 steps, then 20 that are timed
//   < trim           > {}                                       memory not in use goes back to the device
//   < about          > {"parameters": 124373760, "peak_mb": 30012.2, ...}
//
// Ends at the end of its input. Exits with 77 where --device cuda finds no GPU.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include "bench/gpu/session.h"

namespace {

constexpr int kNoGpu = 77;  // as ctest counts a test that is skipped

void say(const std::string& json) {
  std::puts(json.c_str());
  std::fflush(stdout);
}

std::string in_quotes(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + '"';
}

class Server {
 public:
  explicit Server(gpu::Session& session) : session_(session) {}

  void answer(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    int64_t first = 0, second = 0;
    words >> command >> first >> second;
    if (command == "warm") {
      warm(first);
    } else if (command == "time") {
      time(first, second);
    } else if (command == "trim") {
      session_.trim();
      say("{}");
    } else if (command == "about") {
      about();
    } else {
      say(R"({"error": "wanted warm, time, trim or about"})");
    }
  }

 private:
  at::Tensor run(int64_t steps) {
    at::Tensor loss;
    for (int64_t i = 0; i < steps; ++i) loss = session_.step(next_++);
    return loss;
  }

  void warm(int64_t steps) {
    std::string losses;
    for (int64_t i = 0; i < steps; ++i) {
      const at::Tensor loss = session_.step(next_++);
      losses += fmt::format("{}{:.9g}", losses.empty() ? "" : ", ", loss.item<double>());
    }
    session_.synchronize();
    say(fmt::format("{{\"losses\": [{}]}}", losses));
  }

  void time(int64_t before, int64_t steps) {
    run(before);
    session_.synchronize();
    const auto began = std::chrono::steady_clock::now();
    const at::Tensor loss = run(steps);
    session_.synchronize();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
    say(fmt::format("{{\"seconds\": {:.9g}, \"last_loss\": {:.9g}}}", seconds.count(),
                    loss.item<double>()));
  }

  void about() {
    std::string replays, refusals;
    for (const levin::graph::ReplayReport& replay : session_.replays()) {
      replays += fmt::format(
          "{}{{\"operators\": {}, \"captured\": {}, \"allocating\": {}, \"arena_mb\": {:.1f}}}",
          replays.empty() ? "" : ", ", replay.num_operators, replay.num_captured,
          replay.num_allocating, static_cast<double>(replay.arena_bytes) / 1e6);
    }
    for (const std::string& refusal : session_.refusals()) {
      refusals += (refusals.empty() ? "" : ", ") + in_quotes(refusal);
    }
    say(fmt::format(R"({{"parameters": {}, "peak_mb": {:.1f}, "replays": [{}], "refusals": [{}]}})",
                    session_.num_parameters, static_cast<double>(session_.peak_bytes()) / 1e6,
                    replays, refusals));
  }

  gpu::Session& session_;
  int64_t next_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const auto options = levin::parse<gpu::Options>(argc, argv);
  if (options.device == "cuda" && !torch::cuda::is_available()) {
    std::puts("no GPU: LibTorch sees no CUDA device; --device cpu proves that the program runs");
    return kNoGpu;
  }
  const auto session = gpu::make_session(options);
  if (options.once) {
    session->step(0);
    session->synchronize();
    say("first step done");
    return 0;
  }
  say("{\"ready\": true}");
  Server server(*session);
  for (std::string line; std::getline(std::cin, line);) server.answer(line);
}
