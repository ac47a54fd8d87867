// Reads a sealed segment through its index: which steps there are at once, columns when somebody
// asks. Used by trace/ only. Not thread-safe; safe on hostile bytes: nothing is read or allocated
// beyond what the size of the file justifies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trace/column_codec.h"
#include "trace/index_format.h"
#include "trace/window_reader.h"

namespace tensortap::trace {

// A column in memory.
struct DecodedColumn {
  std::vector<std::byte> memory;
  ColumnView view;  // into memory
};

// What the index says about one tensor.
struct TensorIndex {
  TensorHead head;
  std::vector<TensorColumn> columns;

  const TensorColumn* find(std::uint8_t code) const;
};

class SegmentIndex {
 public:
  enum class Outcome { kOk, kNotSealed, kDamaged };

  // Reads trailer, head and the list of steps.
  static Outcome open(WindowReader& reader, std::uint64_t file_size,
                      std::unique_ptr<SegmentIndex>& out);

  const std::vector<StepEntry>& steps() const { return steps_; }
  const IndexHead& head() const { return head_; }
  std::uint64_t index_offset() const { return index_offset_; }
  // Whether every byte of the INDEX frame is as it was written; the other questions check what they
  // read.
  bool is_whole(WindowReader& reader) const;
  // Adds to `into`; false when damaged or contradicting.
  bool read_dictionary(WindowReader& reader, Dictionary& into) const;

  // False when the bytes are damaged. A tensor that is not in the segment has no columns.
  bool read_tensor(WindowReader& reader, TensorId tensor, TensorIndex& out) const;
  // The steps (within the segment) at which the tensor has a row, ascending.
  bool read_row_ordinals(WindowReader& reader, const TensorIndex& tensor,
                         std::vector<std::uint32_t>& out) const;
  // The same for anything: a row, a raw value or a text.
  bool read_all_ordinals(WindowReader& reader, const TensorIndex& tensor,
                         std::vector<std::uint32_t>& out) const;
  // A column of numbers of this tensor.
  bool read_column(WindowReader& reader, const TensorIndex& tensor, const TensorColumn& column,
                   DecodedColumn& out) const;

 private:
  bool read_steps(WindowReader& reader);
  bool read_block(WindowReader& reader, const BlockRef& block,
                  std::span<const std::byte>& out) const;
  bool read_bytes(WindowReader& reader, const TensorColumn& column, std::uint64_t decoded_size,
                  std::vector<std::byte>& out) const;
  bool read_value_ordinals(WindowReader& reader, const TensorColumn& column,
                           std::size_t record_size, std::vector<std::uint32_t>& out) const;

  std::uint64_t file_size_ = 0;
  std::uint64_t index_offset_ = 0;
  std::uint64_t index_payload_size_ = 0;
  IndexHead head_;
  std::vector<StepEntry> steps_;
};

}  // namespace tensortap::trace
