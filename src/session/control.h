// Wishes from outside: what another process asks of a running training, through files in the run's
// control/. docs/findings.md has their form. Written by `tensortap stop` and `tensortap check
// --follow`; read by the ControlWatcher of each session that records into the run.
//
// A training obeys what is asked while it runs: what lies in control/ when it starts was meant for
// an earlier session and is left alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "actions/action.h"
#include "rules/finding.h"
#include "storage/storage.h"

namespace tensortap {

struct ControlRequest {
  enum class Kind : std::uint8_t { kStop, kCaptureMore };
  std::string id;  // chosen by write_request
  Kind kind = Kind::kStop;
  // Why: of a person's own request only the message counts, and `rule` is empty.
  Finding finding;
  DetailWish wish;  // of kCaptureMore
};

// Gives the id. Throws Error(kIo).
std::string write_request(Storage& storage, const ControlRequest& request);

// What actions may do beside a training: it is asked through its control/; of one that has ended
// there is nothing to ask.
ActionContext context_beside(std::shared_ptr<Storage> storage, bool has_ended);

// Which workers have obeyed a request.
std::vector<std::string> answers(const Storage& storage, const std::string& id);

// Looks at control/ now and then, on a thread of its own, so that the training pays for nothing but
// an atomic read. has_request and take from any thread.
class ControlWatcher {
 public:
  // `storage` must outlive the watcher.
  ControlWatcher(Storage& storage, std::string worker, std::int64_t interval_ms = 500);
  ~ControlWatcher();
  ControlWatcher(const ControlWatcher&) = delete;
  ControlWatcher& operator=(const ControlWatcher&) = delete;

  bool has_request() const noexcept { return has_request_.load(std::memory_order_relaxed); }
  // What has come since the last call; each is answered, for whoever asked.
  std::vector<ControlRequest> take();

 private:
  void watch() noexcept;
  void look();
  void answer_taken();

  Storage& storage_;
  const std::string worker_;
  const std::int64_t interval_ms_;
  std::set<std::string> seen_;  // names of request files; of the watching thread after the start

  std::mutex mutex_;  // from here to is_ending_
  std::condition_variable changed_;
  std::vector<ControlRequest> requests_;
  std::vector<std::string> taken_;  // ids to be answered
  bool is_ending_ = false;
  std::atomic<bool> has_request_ = false;
  std::thread thread_;
};

}  // namespace tensortap
