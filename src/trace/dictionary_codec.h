// Dictionary frames: names, collections, dtypes and shapes by id. Used by trace/ only. Pure
// functions.
#pragma once

#include <cstddef>
#include <span>

#include "base/bytes.h"
#include "trace/step_record.h"

namespace tensortap::trace {

// Appends a payload that defines everything in `dictionary` from these ids on.
void encode_dictionary(const Dictionary& dictionary, std::size_t first_tensor,
                       std::size_t first_layout, ByteBuffer& out);

enum class DictionaryOutcome {
  kOk,
  kCorrupt,   // not a dictionary, or a dtype this version does not know
  kGap,       // does not continue `into`: an earlier dictionary frame was lost
  kConflict,  // defines an id of `into` as something else
};

// Adds the definitions to `into`, which stays as it was unless the answer is kOk. Ids that `into`
// has already must mean the same.
DictionaryOutcome decode_dictionary(std::span<const std::byte> payload, Dictionary& into);

// Adds what `other` defines beyond `into`; false (and no change) when they disagree about an id.
bool merge_dictionary(const Dictionary& other, Dictionary& into);

}  // namespace tensortap::trace
