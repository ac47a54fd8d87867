// CPUBottleneck: a GPU idles because cores are saturated.
#include <array>

#include "rules/bottleneck_rule.h"
#include "rules/registry.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "CPUBottleneck";

constexpr std::string_view kDoc =
    R"(A sample of the machine is a bottleneck when at least one GPU is used less than `gpu_threshold`
percent and at least one core more than `cpu_threshold`. Fires when more than `threshold` percent of
all samples since the start are bottlenecks, once there are more than `patience`; told once until
the share has fallen again. A GPU and a core are only compared within one worker.

The default is the documented one: any single busy core counts, and a bottleneck that begins late
takes long to weigh. `scope=mean_cpu` asks for the mean over the cores, `window` for the share among
the newest samples.

Looks at `system/gpu_utilization` and `system/cpu_utilization`. Without a GPU it is not applicable.

Source: SageMaker Debugger's rule of that name.)";

constexpr auto kParameters =
    bottleneck_parameters({"cpu_threshold", ParameterType::kFloat, "90",
                           "Utilisation in percent above which a core is saturated.", 0, 100});

constexpr std::array<std::string_view, 3> kCauses = {
    "data that is decoded or augmented in the training process, or by too few workers",
    "Python code that waits for the GPU at each step: metrics, logging, many small operations",
    "other programs on the same machine",
};

constexpr std::array<std::string_view, 1> kCollections = {"system"};

class CPUBottleneck : public BottleneckRule {
 public:
  explicit CPUBottleneck(const Parameters& parameters)
      : BottleneckRule(kName, parameters, Metric::kCpuUtilization, "cpu_threshold", "was busy") {}
};

}  // namespace

const RuleDescriptor& cpu_bottleneck_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A GPU idles because cores are saturated.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"The GPU is paid for while it waits; the training could be faster at no cost.",
                 kCauses,
                 "Profile what the cores do; give the data loader more workers, or move "
                 "preprocessing to the GPU or ahead of the training."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<CPUBottleneck>,
  };
  return kDescriptor;
}

}  // namespace tensortap
