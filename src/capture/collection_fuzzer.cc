// collections/<worker>.json comes with a run that somebody sent: any bytes give a CollectionSet or
// an Error, and what was read writes and reads back the same.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "capture/collection.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const tensortap::CollectionSet set = tensortap::CollectionSet::from_json(text, "fuzzer");
    const std::string written = set.to_json();
    if (tensortap::CollectionSet::from_json(written, "written").to_json() != written) std::abort();
    (void)set.collections_of("Net_conv1.weight");
  } catch (const tensortap::Error&) {
    // What the reader is to do with such bytes.
  }
  return 0;
}
