#include "monitor/sampler.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <exception>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <utility>

#include <fmt/core.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "monitor/gpu_reader.h"
#include "monitor/host_reader.h"

namespace tensortap {
namespace {

constexpr std::int64_t kMinIntervalMs = 100;
constexpr std::int64_t kMaxIntervalMs = 60000;

// Signals belong to the program's own threads: a thread made in this scope takes none.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

void validate(const SamplerOptions& options) {
  if (options.interval_ms >= kMinIntervalMs && options.interval_ms <= kMaxIntervalMs) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the interval of system metrics must be {} to {} ms, not {}",
                          kMinIntervalMs, kMaxIntervalMs, options.interval_ms));
}

struct Sampler::State {
  explicit State(SamplerOptions given) : options(std::move(given)) {}

  void run() noexcept;
  void sample_until_stopped();
  void keep(Sample sample);

  const SamplerOptions options;
  const pid_t pid = ::getpid();
  std::mutex mutex;
  std::condition_variable wake;
  bool is_stopped = false;
  std::vector<Sample> samples;
  std::atomic<std::size_t> count = 0;  // of samples
  std::thread thread;
};

void Sampler::State::run() noexcept {
  try {
    sample_until_stopped();
  } catch (const std::exception& error) {
    log(LogLevel::kWarning, std::string("system metrics end here: ") + error.what());
  }
}

void Sampler::State::sample_until_stopped() {
  HostReader host(options.proc_root, options.sys_root);
  GpuReader gpus(options.gpu_library);
  std::int64_t last_ns = monotonic_time_ns();
  // Soon, so that the time from the start to the first step is seen; by 100 ms rates mean
  // something.
  auto due = std::chrono::steady_clock::now() + std::chrono::milliseconds(kMinIntervalMs);
  while (true) {
    {
      std::unique_lock lock(mutex);
      if (wake.wait_until(lock, due, [this] { return is_stopped; })) return;
    }
    Sample sample;
    sample.time_s = static_cast<double>(wall_time_ns()) * 1e-9;
    const std::int64_t now_ns = monotonic_time_ns();
    host.read(static_cast<double>(now_ns - std::exchange(last_ns, now_ns)) * 1e-9, sample);
    gpus.read(sample);
    keep(std::move(sample));
    // A machine that slept owes no samples.
    const auto interval = std::chrono::milliseconds(options.interval_ms);
    due += interval;
    if (const auto now = std::chrono::steady_clock::now(); due <= now) due = now + interval;
  }
}

void Sampler::State::keep(Sample sample) {
  const std::lock_guard lock(mutex);
  if (samples.size() >= std::max<std::size_t>(options.capacity, 2)) {
    for (std::size_t i = 1; 2 * i < samples.size(); ++i) samples[i] = std::move(samples[2 * i]);
    samples.resize((samples.size() + 1) / 2);
  }
  samples.push_back(std::move(sample));
  count.store(samples.size(), std::memory_order_relaxed);
}

Sampler::Sampler(SamplerOptions options) : state_(std::make_unique<State>(std::move(options))) {
  validate(state_->options);
  const SignalsBlocked blocked;
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Sampler::~Sampler() {
  // A forked child has no thread to join, and the lock may be held by it.
  if (state_->pid != ::getpid()) {
    (void)state_.release();
    return;
  }
  stop();
}

std::size_t Sampler::pending() const noexcept {
  return state_->count.load(std::memory_order_relaxed);
}

void Sampler::take(std::vector<Sample>& samples) {
  samples.clear();
  const std::lock_guard lock(state_->mutex);
  state_->samples.swap(samples);
  state_->count.store(0, std::memory_order_relaxed);
}

void Sampler::stop() noexcept {
  if (state_->pid != ::getpid() || !state_->thread.joinable()) return;
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_stopped = true;
  }
  state_->wake.notify_all();
  state_->thread.join();
}

}  // namespace tensortap
