// What a trial reads a run through: a run on disk, a live process, other people's formats (later).
// One TraceSource is one run; inside it one WorkerSource a worker. Ordinals number the complete
// steps of a worker in the order they were written; they never change, new ones are added by
// refresh(). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/step_record.h"

namespace tensortap {

// One statistic of one tensor over steps: entry i belongs to the step with ordinal ordinals[i].
struct SourceColumn {
  std::vector<std::uint32_t> ordinals;
  std::vector<double> values;
};

class WorkerSource {
 public:
  virtual ~WorkerSource() = default;

  virtual const std::string& name() const = 0;
  virtual bool has_ended() const = 0;  // the worker said that nothing more will come
  virtual const Dictionary& dictionary() const = 0;
  virtual std::span<const StepInfo> steps() const = 0;  // by ordinal; valid until refresh()

  // Steps (ordinals, ascending) at which the tensor has anything: a row, a raw value or a text.
  virtual std::vector<std::uint32_t> tensor_ordinals(TensorId tensor) const = 0;
  // Whether it ever had anything: a dictionary may hold names that were never recorded.
  virtual bool is_recorded(TensorId tensor) const { return !tensor_ordinals(tensor).empty(); }
  // Appends the values of a stored or derived statistic for ordinals in [first, last).
  virtual void read_column(TensorId tensor, StatisticId statistic, std::uint32_t first,
                           std::uint32_t last, SourceColumn& out) const = 0;
  virtual std::optional<StatisticsRow> read_row(TensorId tensor, std::uint32_t ordinal) const = 0;
  virtual std::optional<RawTensor> read_raw(TensorId tensor, std::uint32_t ordinal) const = 0;
  virtual std::optional<std::string> read_text(TensorId tensor, std::uint32_t ordinal) const = 0;
  // The whole step, raw values left out (left_out_raws says whose). Fast when called in ascending
  // order.
  virtual std::shared_ptr<const StepRecord> read_step(std::uint32_t ordinal) const = 0;
};

struct SourceProblem {
  std::string where;  // file and byte offset
  std::string what;   // one sentence
};

class TraceSource {
 public:
  virtual ~TraceSource() = default;

  virtual const std::string& uri() const = 0;
  // Looks for new workers, steps and end marks, reading only new bytes. True when anything is new.
  virtual bool refresh() = 0;
  virtual std::vector<const WorkerSource*> workers() const = 0;  // sorted by name
  virtual std::string run_json() const = 0;                      // "" when there is none
  // Content of collections/<worker>.json files, in worker order.
  virtual std::vector<std::string> collections_json() const = 0;
  // Damage met so far: bytes that were skipped and what that lost.
  virtual std::vector<SourceProblem> problems() const = 0;
};

}  // namespace tensortap
