// Writes one segment: header, dictionary, steps, and the index when it is sealed. After a method
// has thrown the segment must be given up: a torn frame may be at its end. Used by trace/ only. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "storage/storage.h"
#include "trace/compression.h"
#include "trace/segment_scan.h"
#include "trace/step_codec.h"

namespace tensortap::trace {

// Memory and threads that outlive a segment.
class SegmentWriterResources {
 public:
  ByteBuffer frames;
  ByteBuffer step;
  std::vector<ByteBuffer> compressed;
  std::vector<RawEntry> raws;
  std::vector<TextEntry> texts;
  StepEncoder encoder;
  // Computes checksums of large raw values while they are written; started when first needed.
  ThreadPool& checksum_thread();
  Compressor& compressor();

 private:
  std::unique_ptr<ThreadPool> checksum_thread_;
  std::unique_ptr<Compressor> compressor_;
};

class SegmentWriter {
 public:
  // Creates the file. Throws Error(kAlreadyExists) when the name is taken, Error(kIo) when the disk
  // refuses.
  SegmentWriter(Storage& storage, std::string name, const SegmentHeader& header,
                const std::string& session_json, bool compress_raw,
                SegmentWriterResources& resources);

  // `dictionary` defines everything that the step uses; what the segment does not know yet goes in
  // front.
  void append_step(const StepRecord& step, const Dictionary& dictionary);
  // Appends the index and closes the file.
  void seal(const Dictionary& dictionary);

  const std::string& name() const { return name_; }
  std::uint64_t size_bytes() const { return file_->size_bytes(); }
  std::size_t step_count() const { return steps_.size(); }

 private:
  class Batch;

  void add_dictionary(const Dictionary& dictionary, Batch& batch);
  void add_raws(const StepRecord& step, Batch& batch);
  void add_texts(const StepRecord& step, Batch& batch);
  void write_raws(const StepRecord& step, Batch& batch);

  Storage& storage_;
  const std::string name_;
  const bool compress_raw_;
  SegmentWriterResources& resources_;
  std::unique_ptr<WritableFile> file_;
  std::size_t defined_tensors_ = 0;
  std::size_t defined_layouts_ = 0;
  std::vector<StepEntry> steps_;
};

}  // namespace tensortap::trace
