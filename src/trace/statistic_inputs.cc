#include "trace/statistic_inputs.h"

namespace tensortap::trace {
namespace {

std::vector<StatisticId> number_inputs(StatisticId statistic) {
  switch (statistic) {
    case StatisticId::kStd:
      return {StatisticId::kVariance};
    case StatisticId::kSum:
      return {StatisticId::kMean};
    case StatisticId::kL1:
      return {StatisticId::kAbsMean};
    case StatisticId::kL2:
    case StatisticId::kRms:
      return {StatisticId::kMean, StatisticId::kVariance, StatisticId::kAbsMean,
              StatisticId::kAbsVariance};
    case StatisticId::kAbsMax:
      return {StatisticId::kMin, StatisticId::kMax};
    case StatisticId::kAbsStd:
      return {StatisticId::kAbsVariance};
    default:
      return {};
  }
}

}  // namespace

std::vector<std::uint8_t> statistic_inputs(StatisticId statistic) {
  const StatisticDescriptor& descriptor = statistic_descriptor(statistic);
  const auto code = static_cast<std::uint8_t>(statistic);
  if (descriptor.is_stored && descriptor.is_count) return {code};
  // Whether anything is finite decides if a number exists; these are constants nearly always, so
  // they cost nothing.
  std::vector<std::uint8_t> codes = {0, 1, 2, 3};
  if (descriptor.is_count) return codes;
  if (descriptor.is_stored) {
    codes.push_back(code);
    return codes;
  }
  for (const StatisticId input : number_inputs(statistic)) {
    codes.push_back(static_cast<std::uint8_t>(input));
  }
  return codes;
}

}  // namespace tensortap::trace
