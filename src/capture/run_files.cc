#include "capture/run_files.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <filesystem>
#include <optional>
#include <sys/random.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"

namespace tensortap {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kRunVersion = 1;
constexpr std::string_view kRunFormat = "tensortap";
constexpr std::size_t kRunIdDigits = 32;

std::string iso_time(std::int64_t wall_time_ns) {
  constexpr std::int64_t kNsPerSecond = 1'000'000'000;
  const std::time_t seconds = wall_time_ns / kNsPerSecond;
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
                     wall_time_ns % kNsPerSecond);
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  return name.data();
}

// The process that writes: the part that run.json and a session have in common.
void write_origin(JsonWriter& out, const RunRequest& request) {
  out.field("framework", request.framework);
  out.key("versions").begin_object().field("tensortap", TENSORTAP_VERSION).end_object();
  out.field("host", host_name()).field("pid", std::int64_t{::getpid()});
}

std::string run_json(const RunRequest& request, const std::string& id) {
  JsonWriter out(1);
  out.begin_object();
  out.field("format", kRunFormat).field("version", kRunVersion).field("id", id);
  out.field("created", iso_time(wall_time_ns()));
  write_origin(out, request);
  out.key("configuration").raw(request.configuration_json);
  out.end_object();
  return out.text();
}

std::string session_json(const RunRequest& request, const OpenedRun& run) {
  JsonWriter out;
  out.begin_object().field("session", std::int64_t{run.resume_point.next_session});
  out.key("resumed_after_step");
  const std::int64_t last_step = run.resume_point.last_global_step;
  last_step >= 0 ? out.value(last_step) : out.null();
  out.field("started", iso_time(wall_time_ns())).field("run", run.id);
  write_origin(out, request);
  out.end_object();
  return out.text();
}

std::string path_in(const Storage& storage, std::string_view name) {
  return fmt::format("{}/{}", storage.uri(), name);
}

bool is_run_id(const std::string& text) {
  return text.size() == kRunIdDigits &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// The id in a run.json that another worker or an earlier session wrote.
std::string read_run_id(const Storage& storage) {
  const std::optional<std::string> text = storage.get(kRunFile);
  if (!text) throw Error(ErrorCode::kIo, fmt::format("run.json vanished: {}", storage.uri()));
  const Json document = Json::parse(*text, nullptr, false);
  if (!document.is_object() || document.value("format", Json()) != kRunFormat) {
    throw Error(ErrorCode::kAlreadyExists,
                fmt::format("a run.json that is not Tensortap's stands in the way; choose another "
                            "out_dir, or move it: {}",
                            path_in(storage, kRunFile)));
  }
  const Json version = document.value("version", Json(0));
  if (!version.is_number_integer() || version.get<std::int64_t>() > kRunVersion) {
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format("the run is of format version {}, newer than this Tensortap writes ({}): {}",
                    version.dump(), kRunVersion, path_in(storage, kRunFile)));
  }
  const Json id = document.value("id", Json());
  if (!id.is_string() || !is_run_id(id.get_ref<const std::string&>())) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("no valid run id in {}", path_in(storage, kRunFile)));
  }
  return id.get<std::string>();
}

bool has_segments(const Storage& storage, const std::string& worker) {
  const std::string segment = segment_name(worker, 0);
  return !storage.list(segment.substr(0, segment.rfind('/') + 1)).empty();
}

[[noreturn]] void refuse_run(const Storage& storage, const std::string& worker) {
  throw Error(ErrorCode::kAlreadyExists,
              fmt::format("a run of {} is there already: pass resume=True to go on in it, choose "
                          "another out_dir, or delete it: {}",
                          worker, storage.uri()));
}

// Writes sessions/<worker>-<n>.json, who writes and since when. Of several that start at once
// exactly one gets a number; the others are refused, or take the next when they resume.
void claim_session(Storage& storage, const RunRequest& request, OpenedRun& run) {
  while (true) {
    run.session_json = session_json(request, run);
    const std::string name =
        fmt::format("sessions/{}-{}.json", request.worker, run.resume_point.next_session);
    if (storage.put_if_absent(name, run.session_json)) return;
    if (!request.resume) refuse_run(storage, request.worker);
    ++run.resume_point.next_session;
  }
}

void require_directory(const Storage& storage) {
  std::error_code error;  // a URI of another kind is no path, and so no file
  const fs::file_status status = fs::status(storage.uri(), error);
  if (error || !fs::exists(status) || fs::is_directory(status)) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("a run is a directory, but this is a file; choose another out_dir: {}",
                          storage.uri()));
}

}  // namespace

std::string make_run_id() {
  // From the kernel and not from a generator of the process: a training's random numbers stay as
  // they are.
  std::array<unsigned char, kRunIdDigits / 2> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw Error(ErrorCode::kIo, "the system gave no random bytes for a run id");
  }
  std::string id;
  for (const unsigned char byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

void validate_run_request(const RunRequest& request) {
  const std::string& worker = request.worker;
  const bool is_plain = !worker.empty() && worker.front() != '.' &&
                        std::all_of(worker.begin(), worker.end(), [](unsigned char c) {
                          return c > ' ' && c != '/' && c != '\\' && c != 0x7f;
                        });
  if (!is_plain) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a worker's name becomes a file name; this one cannot: '{}'", worker));
  }
  if (!Json::accept(request.configuration_json)) {
    throw Error(ErrorCode::kInvalidArgument, "the configuration to keep in run.json is not JSON");
  }
}

OpenedRun open_run(Storage& storage, const RunRequest& request) {
  require_directory(storage);
  OpenedRun run;
  if (has_segments(storage, request.worker)) {
    if (!request.resume) refuse_run(storage, request.worker);
    run.resume_point = find_resume_point(storage, request.worker);
  }
  run.id = make_run_id();
  if (!storage.put_if_absent(kRunFile, run_json(request, run.id))) run.id = read_run_id(storage);
  claim_session(storage, request, run);
  // A mark of an earlier session would tell followers that nothing more comes.
  storage.remove(end_mark_name(request.worker));
  return run;
}

void write_end_mark(Storage& storage, const EndMark& mark) {
  JsonWriter out(1);
  out.begin_object();
  out.field("worker", mark.worker).field("reason", mark.reason);
  out.field("ended", iso_time(wall_time_ns()));
  out.field("session", std::int64_t{mark.session}).field("last_step", mark.last_step);
  out.field("written_steps", mark.counters.written_steps);
  out.field("dropped_steps", mark.counters.dropped_steps);
  out.field("written_bytes", mark.counters.written_bytes);
  out.field("last_error", mark.counters.last_error);
  out.end_object();
  storage.put(end_mark_name(mark.worker), out.text());
}

}  // namespace tensortap
