// Expressions come from configuration files: any bytes give an expression that can be evaluated, or
// an Error.
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/error.h"
#include "rules/expression/evaluator.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tensortap;
  try {
    const auto expression = expression::parse(std::string(data, data + size));
    expression::Evaluator evaluator(expression);
    StatisticsRow row;
    row.statistics.count = 1;
    row.statistics.mean = row.statistics.min = row.statistics.max = 2.0;
    const std::vector<std::vector<const StatisticsRow*>> rows(expression.selections.size(), {&row});
    WorkerStep worker;
    for (std::int64_t step = 0; step < 3; ++step) {
      evaluator.evaluate({step, Mode::kTrain, step, {&worker, 1}}, worker, rows);
    }
  } catch (const Error&) {
    // What the parser is to do with such bytes.
  }
  return 0;
}
