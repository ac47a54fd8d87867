// A recorder with a sink, as a GoogleTest fixture. Tests only; benchmarks use recorder_for_test.h
// alone.
#pragma once

#include <memory>
#include <utility>

#include <gtest/gtest.h>

#include "capture/recorder_for_test.h"

namespace tensortap {

class RecorderTest : public ::testing::Test {
 protected:
  Recorder& start(RecorderOptions options, CollectionSet collections = builtin_collections()) {
    recorder_ = std::make_unique<Recorder>(std::move(options), std::move(collections));
    recorder_->add_sink(&sink_);
    return *recorder_;
  }
  const StepRecord& last() const { return *sink_.steps.back(); }

  KeepingSink sink_;
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace tensortap
