#include "trace/trace_writer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "trace/names.h"
#include "trace/segment_writer.h"
#include "trace/trace_reader.h"

namespace tensortap {
namespace {

using trace::SegmentHeader;
using trace::SegmentWriter;

constexpr std::int64_t kFirstBackoffNs = 1'000'000'000;
constexpr std::int64_t kLastBackoffNs = 30'000'000'000;
constexpr auto kIdlePeriod = std::chrono::milliseconds(500);
constexpr int kCreateTries = 100;

struct Item {
  // Definitions of steps that were dropped before this one.
  Dictionary earlier;
  std::shared_ptr<const StepRecord> step;
};

std::array<std::byte, 16> run_id_bytes(const std::string& hex) {
  std::array<std::byte, 16> out{};
  for (std::size_t i = 0; i < out.size() && 2 * i + 1 < hex.size(); ++i) {
    const auto digit = [](char c) {
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      return c >= 'A' && c <= 'F' ? c - 'A' + 10 : 0;
    };
    out[i] = static_cast<std::byte>(digit(hex[2 * i]) * 16 + digit(hex[2 * i + 1]));
  }
  return out;
}

std::uint32_t next_sequence(const Storage& storage, const std::string& worker) {
  std::uint32_t next = 0;
  for (const StorageEntry& entry :
       storage.list(fmt::format("{}{}/", trace::kTraceFolder, worker))) {
    const auto name = trace::parse_segment_name(entry.name);
    if (name && name->worker == worker) next = std::max(next, name->sequence + 1);
  }
  return next;
}

void append_definitions(const StepRecord& step, Dictionary& into) {
  into.tensors.insert(into.tensors.end(), step.new_tensors.begin(), step.new_tensors.end());
  into.layouts.insert(into.layouts.end(), step.new_layouts.begin(), step.new_layouts.end());
}

}  // namespace

struct TraceWriter::State {
  State(std::shared_ptr<Storage> storage_in, TraceWriterOptions options_in)
      : storage(std::move(storage_in)),
        options(std::move(options_in)),
        queue(options.queue_size_bytes),
        dictionary(options.dictionary),
        sequence(next_sequence(*storage, options.worker)),
        owner_pid(::getpid()) {}

  // fork() copies this object but not its thread: the child must not write, wait or join.
  bool is_forked_child() const { return ::getpid() != owner_pid; }

  void run() noexcept;
  void write(const Item& item);
  bool is_valid(const StepRecord& step);
  void open_segment();
  void seal_segment(bool only_if_old);
  void give_up_segment(const std::string& why);
  void end_outage();
  void count(bool written, std::uint64_t bytes);

  const std::shared_ptr<Storage> storage;
  const TraceWriterOptions options;
  BoundedQueue<Item> queue;

  // Of the producer.
  Dictionary unsent;  // definitions of steps that were dropped on the way in
  bool closed = false;

  // Of the writer thread.
  Dictionary dictionary;
  std::uint32_t sequence;
  trace::SegmentWriterResources resources;
  std::unique_ptr<SegmentWriter> segment;
  std::int64_t segment_start_ns = 0;
  std::int64_t backoff_ns = 0;  // 0: no outage
  std::int64_t retry_at_ns = 0;
  std::uint64_t outage_drops = 0;
  std::vector<bool> seen;  // scratch of is_valid()
  bool told_invalid = false;

  mutable std::mutex mutex;  // guards what follows
  std::condition_variable progress;
  TraceWriterCounters counters;
  std::uint64_t submitted = 0;
  std::uint64_t finished = 0;  // written or dropped by the thread

  const pid_t owner_pid;
  std::thread thread;
};

void TraceWriter::State::run() noexcept {
  while (true) {
    std::optional<Item> item = queue.pop_for(kIdlePeriod);
    try {
      if (item) {
        write(*item);
      } else {
        if (queue.is_drained()) break;
        seal_segment(/*only_if_old=*/true);
      }
    } catch (const std::exception& error) {
      // Not the disk (that is handled below): no memory, or a bug. The step is lost, the thread
      // goes on.
      log(LogLevel::kError, fmt::format("a step was not written: {}", error.what()));
      segment.reset();
      if (item) count(false, 0);
    }
  }
  try {
    seal_segment(/*only_if_old=*/false);
  } catch (const std::exception& error) {
    log(LogLevel::kError, fmt::format("the last segment was not sealed: {}", error.what()));
  }
}

void TraceWriter::State::write(const Item& item) {
  dictionary.tensors.insert(dictionary.tensors.end(), item.earlier.tensors.begin(),
                            item.earlier.tensors.end());
  dictionary.layouts.insert(dictionary.layouts.end(), item.earlier.layouts.begin(),
                            item.earlier.layouts.end());
  append_definitions(*item.step, dictionary);
  if (!is_valid(*item.step)) return count(false, 0);
  if (backoff_ns != 0 && monotonic_time_ns() < retry_at_ns) {
    ++outage_drops;
    return count(false, 0);
  }
  std::string failure;
  try {
    const std::uint64_t before = segment == nullptr ? 0 : segment->size_bytes();
    if (segment == nullptr) open_segment();
    segment->append_step(*item.step, dictionary);
    end_outage();
    count(true, segment->size_bytes() - before);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo) throw;
    failure = error.what();
  }
  if (!failure.empty()) return give_up_segment(failure);
  if (segment->size_bytes() >= options.segment_size_bytes) {
    seal_segment(/*only_if_old=*/false);
  } else {
    seal_segment(/*only_if_old=*/true);
  }
}

// A reader refuses steps with undefined or repeated tensors, so such a mistake of the caller must
// not reach the disk, where it would cost the step silently.
bool TraceWriter::State::is_valid(const StepRecord& step) {
  seen.assign(dictionary.tensors.size(), false);
  bool valid = true;
  const auto check = [&](TensorId tensor, LayoutId layout) {
    valid &= tensor < dictionary.tensors.size() && layout < dictionary.layouts.size();
  };
  for (const StatisticsRow& row : step.rows) {
    check(row.tensor, row.layout);
    if (!valid || seen[row.tensor]) {
      valid = false;
      break;
    }
    seen[row.tensor] = true;
  }
  for (const RawTensor& raw : step.raws) check(raw.tensor, raw.layout);
  for (const TextValue& text : step.texts) valid &= text.tensor < dictionary.tensors.size();
  if (valid || std::exchange(told_invalid, true)) return valid;
  const std::string message =
      fmt::format("step {} names a tensor twice or one that is not defined; such steps are dropped",
                  step.info.step);
  log(LogLevel::kError, message);
  const std::lock_guard lock(mutex);
  counters.last_error = message;
  return false;
}

void TraceWriter::State::open_segment() {
  SegmentHeader header;
  header.run_id = run_id_bytes(options.run_id);
  header.session = options.session;
  header.created_ns = wall_time_ns();
  for (int tries = 0;; ++tries) {
    header.sequence = sequence++;
    try {
      segment = std::make_unique<SegmentWriter>(
          *storage, segment_name(options.worker, header.sequence), header, options.session_json,
          options.compress_raw, resources);
      break;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kAlreadyExists && tries < kCreateTries) continue;
      // A file that was made but not begun holds nothing.
      if (error.code() == ErrorCode::kIo) {
        storage->remove(segment_name(options.worker, header.sequence));
      }
      throw;
    }
  }
  segment_start_ns = monotonic_time_ns();
}

void TraceWriter::State::seal_segment(bool only_if_old) {
  if (segment == nullptr) return;
  if (only_if_old && monotonic_time_ns() - segment_start_ns < options.segment_duration_ns) return;
  // Whatever happens now, the steps are in the file and the next one goes into a new segment.
  const std::unique_ptr<SegmentWriter> sealed = std::move(segment);
  try {
    sealed->seal(dictionary);
  } catch (const Error& error) {
    log(LogLevel::kWarning,
        fmt::format("a segment stays without its index (its steps are readable): {}",
                    error.what()));
    const std::lock_guard lock(mutex);
    counters.last_error = error.what();
  }
}

// A torn frame may be at the end of the segment, so nothing may follow it there.
void TraceWriter::State::give_up_segment(const std::string& why) {
  if (segment != nullptr && segment->step_count() == 0) {
    const std::string name = segment->name();
    segment.reset();
    try {
      storage->remove(name);
    } catch (const Error&) {
      // The same outage; readers find no step in it.
    }
  }
  segment.reset();
  if (backoff_ns == 0) {
    log(LogLevel::kWarning,
        fmt::format("the trace cannot be written; steps are dropped until it can: {}", why));
  }
  backoff_ns = backoff_ns == 0 ? kFirstBackoffNs : std::min(backoff_ns * 2, kLastBackoffNs);
  retry_at_ns = monotonic_time_ns() + backoff_ns;
  ++outage_drops;
  {
    const std::lock_guard lock(mutex);
    counters.last_error = why;
  }
  count(false, 0);
}

void TraceWriter::State::end_outage() {
  if (backoff_ns == 0) return;
  log(LogLevel::kWarning,
      fmt::format("the trace is written again; {} steps were dropped", outage_drops));
  backoff_ns = 0;
  outage_drops = 0;
}

void TraceWriter::State::count(bool written, std::uint64_t bytes) {
  const std::lock_guard lock(mutex);
  ++(written ? counters.written_steps : counters.dropped_steps);
  counters.written_bytes += bytes;
  ++finished;
  progress.notify_all();
}

TraceWriter::TraceWriter(std::shared_ptr<Storage> storage, TraceWriterOptions options)
    : state_(std::make_unique<State>(std::move(storage), std::move(options))) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

TraceWriter::~TraceWriter() {
  close();
  // In a forked child nobody may touch the thread or the locks that its parent held: the copy is
  // left alone.
  if (state_->is_forked_child()) (void)state_.release();
}

bool TraceWriter::submit(std::shared_ptr<const StepRecord> step) noexcept {
  State& state = *state_;
  if (state.is_forked_child() || state.closed || step == nullptr) return false;
  try {
    Item item{std::exchange(state.unsent, Dictionary{}), step};
    const std::size_t size_bytes = step->size_bytes();
    {
      const std::lock_guard lock(state.mutex);
      ++state.submitted;
    }
    const bool blocks = state.options.backpressure == Backpressure::kBlock;
    const bool accepted =
        blocks ? state.queue.push(item, size_bytes) : state.queue.try_push(item, size_bytes);
    if (accepted) return true;
    state.unsent = std::move(item.earlier);
    append_definitions(*step, state.unsent);
    state.count(false, 0);
  } catch (const std::exception& error) {
    log(LogLevel::kError, fmt::format("a step was not handed to the writer: {}", error.what()));
  }
  return false;
}

bool TraceWriter::flush(std::int64_t timeout_ns) noexcept {
  State& state = *state_;
  if (state.is_forked_child()) return false;
  std::unique_lock lock(state.mutex);
  const std::uint64_t target = state.submitted;
  return state.progress.wait_for(lock, std::chrono::nanoseconds(timeout_ns),
                                 [&] { return state.finished >= target; });
}

void TraceWriter::close() noexcept {
  State& state = *state_;
  if (state.is_forked_child() || state.closed) return;
  state.closed = true;
  state.queue.close();
  if (state.thread.joinable()) state.thread.join();
}

TraceWriterCounters TraceWriter::counters() const {
  if (state_->is_forked_child()) return {};
  const std::lock_guard lock(state_->mutex);
  return state_->counters;
}

}  // namespace tensortap
