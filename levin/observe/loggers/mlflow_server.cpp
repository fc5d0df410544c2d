#include "levin/observe/loggers/mlflow_server.h"

#include <nlohmann/json.hpp>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "levin/base/check.h"
#include "levin/base/json.h"
#include "levin/base/text/utf8.h"

namespace levin::detail {
namespace {

using nlohmann::json;
using Kind = MlflowResult::Kind;

constexpr std::string_view kArtifacts = "mlflow-artifacts:";

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

std::vector<std::string> headers() {
  const std::string token = variable("MLFLOW_TRACKING_TOKEN");
  if (token.empty()) return {};
  return {"Authorization: Bearer " + token};
}

/// Bytes that are no UTF-8 are replaced.
std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

json parsed(const std::string& text) {
  return json::parse(shallow_json(text), nullptr, /*allow_exceptions=*/false);
}

/// The text at a path of keys; empty if there is none.
std::string text_at(const json& value, std::initializer_list<const char*> keys) {
  const json* at = &value;
  for (const char* key : keys) {
    if (!at->is_object() || !at->contains(key)) return "";
    at = &(*at)[key];
  }
  return at->is_string() ? at->get<std::string>() : "";
}

/// MLflow reads these texts as the numbers, which JSON does not have.
json number_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

/// At most so many bytes, and no part of a code point.
std::string cut(const std::string& text, size_t bytes) {
  if (text.size() <= bytes) return utf8::lossy(text);
  size_t end = bytes;
  while (end > 0 && utf8::is_inner(text[end])) --end;
  return utf8::lossy(text.substr(0, end));
}

}  // namespace

// MLflow's names have these characters, and are paths that no normalization changes.
std::string mlflow_name(const std::string& name) {
  constexpr size_t kLongestName = 250;
  std::string result, part;
  const auto end_part = [&] {
    if (part.empty() || part == "." || part == "..") part = "_";
    result += part;
    part.clear();
  };
  for (const char c : name.substr(0, kLongestName)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '/') {
      end_part();
      result += '/';
    } else {
      const bool is_allowed = (byte < 128 && std::isalnum(byte) != 0) ||
                              std::string_view("_-. ").find(c) != std::string_view::npos;
      part += is_allowed ? c : '_';
    }
  }
  end_part();
  return result;
}

MlflowServer::MlflowServer(MlflowOptions options, const std::atomic<bool>& is_stopped)
    : options_(std::move(options)), is_stopped_(is_stopped) {
  while (options_.tracking_uri.ends_with('/')) options_.tracking_uri.pop_back();
  http_.set_headers(headers());
  const std::string user = variable("MLFLOW_TRACKING_USERNAME");
  if (!user.empty()) http_.set_user(user + ":" + variable("MLFLOW_TRACKING_PASSWORD"));
}

MlflowResult MlflowServer::call(const std::string& method, const std::string& path,
                                const std::string& body, std::string* reply) {
  const HttpReply got =
      http_.send({method, options_.tracking_uri + "/api/2.0/mlflow/" + path, body}, is_stopped_);
  if (got.status == 0) return {Kind::kNoReply, got.error};
  const json answer = parsed(got.body);
  if (got.status == 429 || got.status >= 500) {
    return {Kind::kNoReply, fmt::format("it answered with HTTP status {}", got.status)};
  }
  if (!answer.is_object()) {
    constexpr size_t kShown = 60;
    return {Kind::kRefused,
            fmt::format("it answered '{}' with HTTP status {}, which is not what an "
                        "MLflow server says",
                        cut(got.body, kShown), got.status)};
  }
  if (got.status != 200) {
    return {Kind::kRefused,
            fmt::format("{}: {}", text_at(answer, {"error_code"}), text_at(answer, {"message"})),
            text_at(answer, {"error_code"}) == "RESOURCE_DOES_NOT_EXIST"};
  }
  if (reply != nullptr) *reply = got.body;
  return {};
}

MlflowResult MlflowServer::find_experiment(std::string& id) {
  const std::string query =
      "experiments/get-by-name?experiment_name=" + url_encoded(options_.experiment_name);
  std::string reply;
  for (int attempt = 0; attempt < 2; ++attempt) {  // somebody else may make it in between
    MlflowResult found = call("GET", query, "", &reply);
    id = text_at(parsed(reply), {"experiment", "experiment_id"});
    if (found.kind == Kind::kDone && id.empty()) {
      return {Kind::kRefused, "it answered without an experiment_id"};
    }
    if (!found.is_missing) return found;
    json experiment = {{"name", options_.experiment_name}};
    if (!options_.artifact_location.empty()) {
      experiment["artifact_location"] = options_.artifact_location;
    }
    MlflowResult made = call("POST", "experiments/create", text_of(experiment), &reply);
    id = text_at(parsed(reply), {"experiment_id"});
    if (made.kind == Kind::kDone || made.kind == Kind::kNoReply || attempt == 1) return made;
  }
  return {};
}

MlflowResult MlflowServer::take_run(const std::string& reply) {
  const json run = parsed(reply);
  run_id_ = text_at(run, {"run", "info", "run_id"});
  artifact_uri_ = text_at(run, {"run", "info", "artifact_uri"});
  if (run_id_.empty()) return {Kind::kRefused, "it answered without a run_id"};
  return {};
}

MlflowResult MlflowServer::begin(const std::string& run_id) {
  std::string reply;
  if (!run_id.empty()) {
    MlflowResult got = call("GET", "runs/get?run_id=" + url_encoded(run_id), "", &reply);
    if (got.kind != Kind::kDone) return got;
    got = take_run(reply);
    if (got.kind != Kind::kDone) return got;
    got = set_status("RUNNING");
    if (got.kind != Kind::kDone) run_id_.clear();
    return got;
  }
  std::string experiment;
  MlflowResult got = find_experiment(experiment);
  if (got.kind != Kind::kDone) return got;
  json tags = json::array();
  for (const auto& [key, value] : options_.tags) {
    tags.push_back({{"key", mlflow_name(key)}, {"value", value}});
  }
  json run = {{"experiment_id", experiment}, {"start_time", now_ms()}, {"tags", std::move(tags)}};
  if (!options_.run_name.empty()) run["run_name"] = options_.run_name;
  const std::string user = variable("USER");
  if (!user.empty()) run["user_id"] = user;
  got = call("POST", "runs/create", text_of(run), &reply);
  return got.kind == Kind::kDone ? take_run(reply) : got;
}

MlflowResult MlflowServer::log_metrics(const std::vector<MlflowMetric>& metrics) {
  json all = json::array();
  for (const auto& [key, value, step, time_ms] : metrics) {
    all.push_back({{"key", mlflow_name(key)},
                   {"value", number_of(value)},
                   {"step", step},
                   {"timestamp", time_ms}});
  }
  return call("POST", "runs/log-batch",
              text_of({{"run_id", run_id_}, {"metrics", std::move(all)}}));
}

MlflowResult MlflowServer::log_params(const std::map<std::string, std::string>& params) {
  json all = json::array();
  for (const auto& [key, value] : params) {
    all.push_back({{"key", mlflow_name(key)}, {"value", cut(value, kLongestValue)}});
  }
  return call("POST", "runs/log-batch", text_of({{"run_id", run_id_}, {"params", std::move(all)}}));
}

MlflowResult MlflowServer::set_tag(const std::string& key, const std::string& value) {
  return call("POST", "runs/set-tag",
              text_of({{"run_id", run_id_}, {"key", mlflow_name(key)}, {"value", value}}));
}

MlflowResult MlflowServer::set_status(const std::string& status) {
  json run = {{"run_id", run_id_}, {"status", status}};
  if (status != "RUNNING") run["end_time"] = now_ms();
  return call("POST", "runs/update", text_of(run));
}

MlflowResult MlflowServer::upload(const std::filesystem::path& file, const std::string& path) {
  if (!artifact_uri_.starts_with(kArtifacts)) {
    return {Kind::kRefused, fmt::format("its artifacts are in '{}' and not served by it; let the "
                                        "server serve artifacts",
                                        artifact_uri_)};
  }
  std::string place = artifact_uri_.substr(kArtifacts.size());
  if (place.starts_with("//")) place.erase(0, std::min(place.find('/', 2), place.size()));
  while (place.starts_with('/')) place.erase(0, 1);
  const HttpReply got =
      http_.send({.method = "PUT",
                  .url = options_.tracking_uri + "/api/2.0/mlflow-artifacts/artifacts/" +
                         url_encoded(place + "/" + path),
                  .file = file},
                 is_stopped_);
  if (got.status == 200) return {};
  if (got.status == 0 || got.status == 429 || got.status >= 500) {
    return {Kind::kNoReply, got.status == 0
                                ? got.error
                                : fmt::format("it answered with HTTP status {}", got.status)};
  }
  return {Kind::kRefused, fmt::format("it answered with HTTP status {}", got.status)};
}

}  // namespace levin::detail
