// IOBottleneck: a GPU idles because of waits for storage.
#include <array>

#include "rules/bottleneck_rule.h"
#include "rules/registry.h"

namespace tensortap {
namespace {

constexpr std::string_view kName = "IOBottleneck";

constexpr std::string_view kDoc =
    R"(A sample of the machine is a bottleneck when at least one GPU is used less than `gpu_threshold`
percent and at least one core idled for a disk more than `io_threshold` percent of its time. Fires
when more than `threshold` percent of all samples since the start are bottlenecks, once there are
more than `patience`; told once until the share has fallen again.

The default is the documented one: any single waiting core counts, and a bottleneck that begins late
takes long to weigh. `scope=mean_cpu` asks for the mean over the cores, `window` for the share among
the newest samples.

Looks at `system/gpu_utilization` and `system/io_wait`. Without a GPU it is not applicable. Waits
for a network file system or an object store are no disk waits to the kernel and are not seen.

Source: SageMaker Debugger's rule of that name.)";

constexpr auto kParameters =
    bottleneck_parameters({"io_threshold", ParameterType::kFloat, "50",
                           "Percent of a core's time above which it waits for storage.", 0, 100});

constexpr std::array<std::string_view, 3> kCauses = {
    "many small files that are read in random order",
    "a data set that does not fit into memory, on a slow disk",
    "checkpoints or logs that are written synchronously",
};

constexpr std::array<std::string_view, 1> kCollections = {"system"};

class IOBottleneck : public BottleneckRule {
 public:
  explicit IOBottleneck(const Parameters& parameters)
      : BottleneckRule(kName, parameters, Metric::kIoWait, "io_threshold", "waited for storage") {}
};

}  // namespace

const RuleDescriptor& io_bottleneck_rule() {
  static constexpr RuleDescriptor kDescriptor{
      .name = kName,
      .summary = "A GPU idles because of waits for storage.",
      .doc = kDoc,
      .family = RuleFamily::kSystem,
      .stage = Stage::kSystem,
      .advice = {"The GPU is paid for while it waits for the disk.", kCauses,
                 "Pack the data into few large files, keep it on a local disk or in memory, and "
                 "prefetch with more workers."},
      .parameters = kParameters,
      .collections = kCollections,
      .create = make_rule<IOBottleneck>,
  };
  return kDescriptor;
}

}  // namespace tensortap
