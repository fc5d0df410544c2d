// The logger of MLflow against a server that speaks the recorded protocol, answers garbage or is gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "levin/base/error.h"
#include "levin/observe/logger.h"
#include "levin/observe/loggers/http.h"
#include "tests/observe/fake_mlflow.h"
#include "tests/support/error_of.h"
#include "tests/support/scratch.h"
#include "tests/support/variable.h"

namespace mlflow {
namespace {

using levin::test::Asked;
using levin::test::error_of;
using levin::test::FakeServer;
using levin::test::get;
using levin::test::put;
using levin::test::Scratch;
using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kRun =
    R"({"run": {"info": {"run_id": "abc", "artifact_uri": "mlflow-artifacts:/1/abc/artifacts"}}})";

/// As mlflow 3.18 answers for an experiment that does not exist yet.
FakeServer::Answer speak(const Asked& asked) {
  if (asked.line.starts_with("GET /api/2.0/mlflow/experiments/get-by-name")) {
    return {404, R"({"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no such experiment"})"};
  }
  if (asked.line.ends_with("experiments/create")) return {200, R"({"experiment_id": "1"})"};
  if (asked.line.ends_with("runs/create") || asked.line.find("runs/get?") != std::string::npos) {
    return {200, kRun};
  }
  return {};
}

levin::MlflowOptions to(const FakeServer& server, const Scratch& folder) {
  return {.experiment_name = "exp", .tracking_uri = server.uri(), .save_dir = folder.str()};
}

/// Bodies of the requests to this path.
std::vector<json> bodies(const FakeServer& server, const std::string& path) {
  std::vector<json> found;
  for (const Asked& asked : server.asked()) {
    if (asked.line == "POST /api/2.0/mlflow/" + path) found.push_back(json::parse(asked.body));
  }
  return found;
}

TEST(MlflowLogger, MakesExperimentAndRunAndSendsEachValue) {
  const Scratch folder;
  const FakeServer server(speak);
  auto options = to(server, folder);
  options.run_name = "first";
  options.tags = {{"team", "a"}};
  options.artifact_location = "s3://bucket";
  options.prefix = "p";
  const auto logger = levin::mlflow_logger(options);
  logger->log_hyperparams({{"lr", "0.1"}, {"odd:name", std::string(600, 'x')}});
  logger->log_metrics({{"loss", 0.5}, {"a//../b", NAN}, {"c", -INFINITY}}, 2, 7);
  logger->finalize("success");
  EXPECT_EQ(logger->version(), "abc");
  EXPECT_EQ(logger->name(), "exp");
  EXPECT_EQ(bodies(server, "experiments/create").at(0),
            (json{{"name", "exp"}, {"artifact_location", "s3://bucket"}}));
  const json run = bodies(server, "runs/create").at(0);
  EXPECT_EQ(run["experiment_id"], "1");
  EXPECT_EQ(run["run_name"], "first");
  EXPECT_EQ(run["tags"], (json::parse(R"([{"key": "team", "value": "a"}])")));
  const std::vector<json> batches = bodies(server, "runs/log-batch");
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0]["run_id"], "abc");
  EXPECT_EQ(batches[0]["params"][0], (json{{"key", "lr"}, {"value", "0.1"}}));
  EXPECT_EQ(batches[0]["params"][1], (json{{"key", "odd_name"}, {"value", std::string(500, 'x')}}));
  json metrics = batches[1]["metrics"];
  for (json& metric : metrics) {
    EXPECT_GT(metric["timestamp"].get<int64_t>(), 1'600'000'000'000);
    EXPECT_EQ(metric["step"], 7);
    metric.erase("timestamp");
    metric.erase("step");
  }
  EXPECT_EQ(metrics, json::parse(R"([{"key": "p-loss", "value": 0.5},
                                     {"key": "p-a/_/_/b", "value": "NaN"},
                                     {"key": "p-c", "value": "-Infinity"},
                                     {"key": "epoch", "value": 2.0}])"));
  const json status = bodies(server, "runs/update").at(0);
  EXPECT_EQ(status["status"], "FINISHED");
  EXPECT_GT(status["end_time"].get<int64_t>(), 1'600'000'000'000);
  EXPECT_THAT(get(folder / "exp/version_0/metrics.jsonl"), StartsWith("{\"step\":7,\"epoch\":2,"));
}

TEST(MlflowLogger, SendsManyValuesInBatchesThatMlflowTakes) {
  const Scratch folder;
  const FakeServer server(speak);
  const auto logger = levin::mlflow_logger(to(server, folder));
  std::map<std::string, std::string> params;
  for (int i = 0; i < 250; ++i) params["p" + std::to_string(i)] = "1";
  logger->log_hyperparams(params);
  for (int64_t step = 0; step < 1500; ++step) logger->log_metrics({{"x", 1}}, 0, step);
  levin::Scalars wide(2500, {"w", 1});
  logger->log_metrics(wide, 0, 1500);
  logger->flush();
  size_t sent_params = 0, sent_metrics = 0;
  for (const json& batch : bodies(server, "runs/log-batch")) {
    EXPECT_LE(batch.value("params", json::array()).size(), 100U);
    EXPECT_LE(batch.value("metrics", json::array()).size(), 1000U);
    sent_params += batch.value("params", json::array()).size();
    sent_metrics += batch.value("metrics", json::array()).size();
  }
  EXPECT_EQ(sent_params, 250U);
  EXPECT_EQ(sent_metrics, 2 * 1500U + 2501U);
  EXPECT_LT(server.asked().size(), 100U);  // and not one per row
}

TEST(MlflowLogger, SaysHowTheRunEnded) {
  for (const auto& [status, word] :
       {std::pair("failed", "FAILED"), std::pair("killed", "KILLED")}) {
    const Scratch folder;
    const FakeServer server(speak);
    auto options = to(server, folder);
    options.synchronous = true;
    const auto logger = levin::mlflow_logger(options);
    logger->log_metrics({{"x", 1}}, 0, 1);
    EXPECT_EQ(bodies(server, "runs/log-batch").size(), 1U);  // already
    logger->finalize(status);
    EXPECT_EQ(bodies(server, "runs/update").at(0)["status"], word);
  }
}

TEST(MlflowLogger, ContinuesTheRunOfItsCheckpoint) {
  const Scratch folder;
  const FakeServer server(speak);
  levin::State state;
  {
    const auto logger = levin::mlflow_logger(to(server, folder));
    logger->log_metrics({{"x", 1}}, 0, 1);
    logger->flush();
    state = logger->state_dict();
    logger->log_metrics({{"x", 2}}, 0, 2);
    logger->finalize("success");
  }
  EXPECT_EQ(state.text("mlflow_run_id"), "abc");
  const auto logger = levin::mlflow_logger(to(server, folder));
  EXPECT_TRUE(logger->resume(state, 1));
  logger->log_metrics({{"x", 3}}, 0, 2);
  logger->flush();
  EXPECT_EQ(bodies(server, "runs/create").size(), 1U);
  EXPECT_EQ(bodies(server, "runs/update").back()["status"], "RUNNING");
  EXPECT_EQ(get(folder / "exp/version_0/metrics.jsonl"),
            "{\"step\":1,\"epoch\":0,\"x\":1}\n{\"step\":2,\"epoch\":0,\"x\":3}\n");
}

TEST(MlflowLogger, UploadsCheckpoints) {
  for (const std::string log_model : {"false", "true", "all"}) {
    const Scratch folder;
    const FakeServer server(speak);
    auto options = to(server, folder);
    options.log_model = log_model;
    const auto logger = levin::mlflow_logger(options);
    logger->log_metrics({{"x", 1}}, 0, 1);
    for (const char* name : {"kept", "removed"}) {
      std::filesystem::create_directories(folder / name / "deep");
      put(folder / name / "deep/model 1.bin", std::string("weights\0", 8));
      logger->after_save_checkpoint(folder / name);
      logger->flush();
    }
    std::filesystem::remove_all(folder / "removed");
    logger->finalize("success");
    std::vector<std::string> lines;
    for (const Asked& asked : server.asked()) {
      if (!asked.line.starts_with("PUT")) continue;
      lines.push_back(asked.line);
      EXPECT_EQ(asked.body, std::string("weights\0", 8));
      EXPECT_THAT(asked.headers, HasSubstr("application/octet-stream"));
    }
    const std::string path = "PUT /api/2.0/mlflow-artifacts/artifacts/1/abc/artifacts/";
    std::vector<std::string> wanted;
    if (log_model != "false") wanted.push_back(path + "kept/deep/model%201.bin");
    if (log_model == "all") wanted.push_back(path + "removed/deep/model%201.bin");
    EXPECT_EQ(lines, wanted) << log_model;
  }
}

/// Returns the words of a run against this server on stderr.
std::string said_by_a_run(const levin::MlflowOptions& options) {
  ::testing::internal::CaptureStderr();
  {
    const auto logger = levin::mlflow_logger(options);
    for (int64_t step = 0; step < 50; ++step) logger->log_metrics({{"x", 1}}, 0, step);
    logger->log_hyperparams({{"lr", "1"}});
    logger->flush();
  }
  return ::testing::internal::GetCapturedStderr();
}

TEST(MlflowLogger, WarnsOfAServerThatAnswersGarbageAndKeepsTheValues) {
  const Scratch folder;
  const FakeServer server([](const Asked&) { return FakeServer::Answer{200, "<html>Hi</html>"}; });
  const std::string said = said_by_a_run(to(server, folder));
  EXPECT_THAT(said, HasSubstr("refuses this run (it answered '<html>Hi</html>' with HTTP status "
                              "200, which is not what an MLflow server says)"));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  const std::string rows = get(folder / "exp/version_0/metrics.jsonl");
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 50);
}

TEST(MlflowLogger, WarnsOfJsonThatIsNotMlflows) {
  for (const char* body : {"[]", "{}", "{\"experiment\": 3}", "{\"experiment_id\": 3}", "7", ""}) {
    const Scratch folder;
    const FakeServer server([&](const Asked&) { return FakeServer::Answer{200, body}; });
    EXPECT_THAT(said_by_a_run(to(server, folder)), HasSubstr("refuses this run (it answered"))
        << body;
  }
}

TEST(MlflowLogger, TriesAgainWhileTheServerIsBusy) {
  const Scratch folder;
  int64_t calls = 0;
  const FakeServer server([&](const Asked& asked) {
    return ++calls < 3 ? FakeServer::Answer{503, "busy"} : speak(asked);
  });
  const std::string said = said_by_a_run(to(server, folder));
  EXPECT_THAT(said, HasSubstr("cannot be reached (it answered with HTTP status 503); training goes "
                              "on, the logger tries again"));
  EXPECT_THAT(said, HasSubstr("answers again"));
  size_t metrics = 0;
  for (const json& batch : bodies(server, "runs/log-batch")) {
    metrics += batch.value("metrics", json::array()).size();
  }
  EXPECT_EQ(metrics, 100U);
}

TEST(MlflowLogger, KeepsWhatItCanOfParametersThatHaveOtherValuesThere) {
  const Scratch folder;
  const FakeServer server([](const Asked& asked) {
    const bool changes = asked.body.find("\"old\"") != std::string::npos;
    if (!changes) return speak(asked);
    return FakeServer::Answer{
        400, R"({"error_code": "INVALID_PARAMETER_VALUE", "message": "Changing param values"})"};
  });
  ::testing::internal::CaptureStderr();
  const auto logger = levin::mlflow_logger(to(server, folder));
  logger->log_hyperparams({{"lr", "old"}, {"new", "1"}});
  logger->flush();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("refused values of this run (INVALID_PARAMETER_VALUE: Changing param"));
  EXPECT_EQ(bodies(server, "runs/log-batch").at(2)["params"],
            json::parse(R"([{"key": "new", "value": "1"}])"));
}

TEST(MlflowLogger, DoesNotWaitForAServerThatIsGone) {
  const Scratch folder;
  levin::MlflowOptions options;
  {
    const FakeServer server(speak);  // whose port is free afterwards
    options = to(server, folder);
  }
  ::testing::internal::CaptureStderr();
  {
    const auto logger = levin::mlflow_logger(options);
    for (int64_t step = 0; step < 10'100; ++step) logger->log_metrics({{"x", 1}}, 0, step);
    EXPECT_EQ(logger->version(), "");
    EXPECT_EQ(logger->state_dict().text("mlflow_run_id"), "");
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("10000 rows wait for http://127.0.0.1:"));
  EXPECT_EQ(said.find("rows wait"), said.rfind("rows wait"));
  const std::string rows = get(folder / "exp/version_0/metrics.jsonl");
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 10'100);
}

TEST(MlflowLogger, SaysWhoItIs) {
  const Scratch folder;
  const FakeServer server(speak);
  {
    const levin::test::Variable token("MLFLOW_TRACKING_TOKEN", "secret");
    said_by_a_run(to(server, folder));
    EXPECT_THAT(server.asked().back().headers, HasSubstr("Authorization: Bearer secret"));
  }
  const levin::test::Variable user("MLFLOW_TRACKING_USERNAME", "me");
  const levin::test::Variable password("MLFLOW_TRACKING_PASSWORD", "pw");
  said_by_a_run(to(server, folder));
  EXPECT_THAT(server.asked().back().headers, HasSubstr("Authorization: Basic bWU6cHc="));
}

TEST(MlflowLogger, ReadsTheServerFromTheEnvironment) {
  const Scratch folder;
  const FakeServer server(speak);
  const levin::test::Variable uri("MLFLOW_TRACKING_URI", server.uri() + "/");
  said_by_a_run({.experiment_name = "e", .save_dir = folder.str()});
  EXPECT_EQ(bodies(server, "experiments/create").at(0)["name"], "e");
}

TEST(MlflowLogger, NamesOptionsThatItCannotUse) {
  const levin::test::Variable uri("MLFLOW_TRACKING_URI", "");
  EXPECT_THAT(error_of([] { levin::mlflow_logger(); }),
              HasSubstr("observe.logger.mlflow: got tracking_uri '', wanted http://HOST:PORT"));
  EXPECT_THAT(error_of([] { levin::mlflow_logger({.tracking_uri = "file:./mlruns"}); }),
              HasSubstr("got tracking_uri 'file:./mlruns'"));
  EXPECT_THAT(
      error_of([] { levin::mlflow_logger({.tracking_uri = "http://a", .log_model = "yes"}); }),
      HasSubstr("observe.logger.mlflow: got log_model 'yes', wanted false, true or all"));
  EXPECT_THAT(
      error_of([] { levin::mlflow_logger({.experiment_name = "", .tracking_uri = "http://a"}); }),
      HasSubstr("observe.logger.mlflow: got an empty experiment_name"));
}

TEST(MlflowLogger, WithoutLibcurlSaysWhatToInstall) {
  // The second is a library, and none that has curl's functions.
  for (const char* library : {"libcurl.so.none", "libm.so.6"}) {
    EXPECT_THAT(error_of([&] { levin::detail::Http({library}); }),
                HasSubstr("observe.logger.http: found no libcurl.so.4"));
  }
}

TEST(MlflowLogger, OfAFolderThatCannotBeMadeStillSends) {
  const Scratch folder;
  const FakeServer server(speak);
  put(folder / "file", "");
  auto options = to(server, folder);
  options.save_dir = (folder / "file").string();
  ::testing::internal::CaptureStderr();
  const auto logger = levin::mlflow_logger(options);
  logger->log_metrics({{"x", 1}}, 0, 1);
  logger->flush();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("observe.logger.dir"));
  EXPECT_EQ(bodies(server, "runs/log-batch").size(), 1U);
}

/// By hand, against MLflow itself: `mlflow server`, then LEVIN_MLFLOW_SERVER=http://127.0.0.1:5000. Its
/// installation has 400 MB, and it takes a minute to start.
TEST(MlflowLogger, IsUnderstoodByMlflow) {
  const char* const uri = std::getenv("LEVIN_MLFLOW_SERVER");
  if (uri == nullptr) GTEST_SKIP() << "no LEVIN_MLFLOW_SERVER, which names an mlflow server";
  const Scratch folder;
  const levin::MlflowOptions options{.experiment_name = "levin's test \xc3\xbc",
                                     .run_name = "one",
                                     .tracking_uri = uri,
                                     .tags = {{"team", "a"}},
                                     .save_dir = folder.str(),
                                     .log_model = "all"};
  levin::State state;
  {
    const auto logger = levin::mlflow_logger(options);
    logger->log_hyperparams({{"lr", "0.1"}, {"odd:name", "x"}});
    for (int64_t step = 0; step < 1500; ++step) {
      logger->log_metrics({{"loss", 0.5 * static_cast<double>(step)}, {"a//b", NAN}}, 0, step);
    }
    std::filesystem::create_directory(folder / "epoch=0");
    put(folder / "epoch=0/model.bin", "weights");
    logger->after_save_checkpoint(folder / "epoch=0");
    logger->flush();
    state = logger->state_dict();
    logger->finalize("failed");
  }
  const auto logger = levin::mlflow_logger(options);
  EXPECT_TRUE(logger->resume(state, 1500));
  logger->log_metrics({{"loss", -1}}, 1, 1500);
  logger->finalize("success");
  const std::atomic<bool> never = false;
  levin::detail::Http http;
  const auto get_json = [&](const std::string& path) {
    return json::parse(http.send({"GET", uri + path}, never).body);
  };
  const std::string id = logger->version();
  const json run = get_json("/api/2.0/mlflow/runs/get?run_id=" + id)["run"];
  EXPECT_EQ(run["info"]["status"], "FINISHED");
  EXPECT_EQ(run["info"]["run_name"], "one");
  std::map<std::string, json> metrics, params;
  for (const json& one : run["data"]["metrics"]) metrics[one["key"]] = one;
  for (const json& one : run["data"]["params"]) params[one["key"]] = one["value"];
  EXPECT_EQ(metrics.at("loss")["value"], -1);
  EXPECT_EQ(metrics.at("loss")["step"], 1500);
  EXPECT_EQ(metrics.at("a/_/b")["value"], "NaN");
  EXPECT_EQ(params, (std::map<std::string, json>{{"lr", "0.1"}, {"odd_name", "x"}}));
  const json files =
      get_json("/api/2.0/mlflow/artifacts/list?run_id=" + id + "&path=epoch%3D0")["files"];
  EXPECT_EQ(files.at(0)["path"], "epoch=0/model.bin");
  EXPECT_EQ(files.at(0)["file_size"].get<int64_t>(), 7);
}

}  // namespace
}  // namespace mlflow
