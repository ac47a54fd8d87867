#include "session/control.h"

#include <chrono>
#include <exception>
#include <optional>
#include <random>
#include <signal.h>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

namespace tensortap {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kRequestPrefix = "control/request-";
constexpr std::string_view kAnswerPrefix = "control/answer-";
constexpr std::string_view kSuffix = ".json";
constexpr std::uint64_t kMaxRequestBytes = 1u << 20;  // a file that is larger is something else

std::string_view kind_name(ControlRequest::Kind kind) {
  return kind == ControlRequest::Kind::kStop ? "stop" : "capture_more";
}

std::string make_id() {
  std::random_device random;
  return fmt::format("{}-{}-{:08x}", wall_time_ns(), getpid(), random());
}

std::string to_json(const ControlRequest& request) {
  JsonWriter json;
  json.begin_object().field("request", kind_name(request.kind)).field("asked_ns", wall_time_ns());
  json.key("finding").raw(tensortap::to_json(request.finding));
  if (request.kind == ControlRequest::Kind::kCaptureMore) {
    json.field("steps", request.wish.step_count).field("raw", request.wish.with_raw);
    json.key("collections").begin_array();
    for (const std::string& collection : request.wish.collections) json.value(collection);
    json.end_array();
  }
  json.end_object();
  return json.text() + "\n";
}

// Members of the right type; what is missing or wrong stays as it was.
template <class Value>
void read(const Json& object, const char* key, Value& value) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  try {
    value = found->get<Value>();
  } catch (const Json::exception&) {
    // A program of another version, or of somebody else.
  }
}

// Those that JSON has no literal for are texts.
void read_number(const Json& object, const char* key, double& value) {
  std::string text;
  read(object, key, text);
  if (const auto number = parse_double(text)) {
    value = *number;
  } else {
    read(object, key, value);
  }
}

Finding read_finding(const Json& object) {
  Finding finding;
  if (!object.is_object()) return finding;
  read(object, "rule", finding.rule);
  read(object, "tensor", finding.tensor);
  read(object, "worker", finding.worker);
  read(object, "step", finding.step);
  read(object, "mode_step", finding.mode_step);
  read(object, "statistic", finding.statistic);
  read_number(object, "observed", finding.observed);
  read_number(object, "threshold", finding.threshold);
  read(object, "message", finding.message);
  std::string mode;
  read(object, "mode", mode);
  for (const Mode one : {Mode::kTrain, Mode::kEval, Mode::kPredict, Mode::kGlobal}) {
    if (mode_name(one) == mode) finding.mode = one;
  }
  std::string severity;
  read(object, "severity", severity);
  finding.severity = severity_from_name(severity).value_or(finding.severity);
  return finding;
}

std::optional<ControlRequest> parse_request(const std::string& text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  ControlRequest request;
  std::string kind;
  read(object, "request", kind);
  if (kind == kind_name(ControlRequest::Kind::kCaptureMore)) {
    request.kind = ControlRequest::Kind::kCaptureMore;
    read(object, "steps", request.wish.step_count);
    read(object, "raw", request.wish.with_raw);
    read(object, "collections", request.wish.collections);
    if (request.wish.step_count < 1) return std::nullopt;
  } else if (kind != kind_name(ControlRequest::Kind::kStop)) {
    return std::nullopt;
  }
  if (object.contains("finding")) request.finding = read_finding(object["finding"]);
  return request;
}

std::string id_of(const std::string& name) {
  return name.substr(kRequestPrefix.size(), name.size() - kRequestPrefix.size() - kSuffix.size());
}

bool is_request(const StorageEntry& entry) {
  return entry.name.ends_with(kSuffix) &&
         entry.name.size() > kRequestPrefix.size() + kSuffix.size();
}

}  // namespace

std::string write_request(Storage& storage, const ControlRequest& request) {
  const std::string id = make_id();
  storage.put(fmt::format("{}{}{}", kRequestPrefix, id, kSuffix), to_json(request));
  return id;
}

ActionContext context_beside(std::shared_ptr<Storage> storage, bool has_ended) {
  ActionContext context;
  context.run = storage->uri();
  if (has_ended) return context;
  context.request_stop = [storage](const Finding& finding) {
    write_request(*storage, {"", ControlRequest::Kind::kStop, finding, {}});
  };
  context.raise_detail = [storage](const Finding& finding, const DetailWish& wish) {
    write_request(*storage, {"", ControlRequest::Kind::kCaptureMore, finding, wish});
  };
  return context;
}

std::vector<std::string> answers(const Storage& storage, const std::string& id) {
  const std::string prefix = fmt::format("{}{}.", kAnswerPrefix, id);
  std::vector<std::string> workers;
  for (const StorageEntry& entry : storage.list(prefix)) {
    if (!entry.name.ends_with(kSuffix)) continue;
    workers.push_back(
        entry.name.substr(prefix.size(), entry.name.size() - prefix.size() - kSuffix.size()));
  }
  return workers;
}

ControlWatcher::ControlWatcher(Storage& storage, std::string worker, std::int64_t interval_ms)
    : storage_(storage), worker_(std::move(worker)), interval_ms_(interval_ms) {
  for (const StorageEntry& entry : storage_.list(kRequestPrefix)) seen_.insert(entry.name);
  thread_ = std::thread([this] { watch(); });
}

ControlWatcher::~ControlWatcher() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

std::vector<ControlRequest> ControlWatcher::take() {
  const std::lock_guard lock(mutex_);
  has_request_ = false;
  for (const ControlRequest& request : requests_) taken_.push_back(request.id);
  changed_.notify_all();
  return std::exchange(requests_, {});
}

void ControlWatcher::watch() noexcept {
  sigset_t all;  // signals are for the threads of the training
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  bool has_failed = false;
  while (true) {
    bool is_last = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::milliseconds(interval_ms_),
                        [&] { return is_ending_ || !taken_.empty(); });
      is_last = is_ending_;
    }
    try {
      answer_taken();
      if (!is_last) look();
    } catch (const std::exception& error) {
      if (!has_failed) log(LogLevel::kWarning, error.what());
      has_failed = true;
    }
    if (is_last) return;
  }
}

void ControlWatcher::look() {
  for (const StorageEntry& entry : storage_.list(kRequestPrefix)) {
    if (!is_request(entry) || !seen_.insert(entry.name).second) continue;
    if (entry.size_bytes > kMaxRequestBytes) continue;
    std::optional<ControlRequest> request = parse_request(storage_.get(entry.name).value_or(""));
    if (!request) continue;
    request->id = id_of(entry.name);
    const std::lock_guard lock(mutex_);
    requests_.push_back(std::move(*request));
    has_request_ = true;
  }
}

void ControlWatcher::answer_taken() {
  std::vector<std::string> ids;
  {
    const std::lock_guard lock(mutex_);
    ids.swap(taken_);
  }
  for (const std::string& id : ids) {
    JsonWriter json;
    json.begin_object().field("worker", worker_).field("obeyed_ns", wall_time_ns()).end_object();
    storage_.put(fmt::format("{}{}.{}{}", kAnswerPrefix, id, worker_, kSuffix), json.text() + "\n");
  }
}

}  // namespace tensortap
