// `tensortap report`: what an XGBoost training has learned, as a page and as numbers.
#include <array>

#include <fmt/core.h>

#include "cli/output.h"
#include "cli/registry.h"
#include "cli/run_argument.h"
#include "report/xgboost_report.h"

namespace tensortap {
namespace {

constexpr std::string_view kPage = "xgboost_report.html";
constexpr std::string_view kNumbers = "xgboost_report.json";

int run(const ArgumentValues& arguments) {
  const std::string& path = arguments.get("run");
  const std::shared_ptr<Trial> trial = cli::open_run(path);
  const report::XgboostReport report = report::compute_xgboost_report(*trial);
  cli::warn_of_damage(*trial);
  if (arguments.has("json")) {
    cli::write_out(report::to_json(report) + "\n");
    return kExitOk;
  }
  const std::string folder = arguments.has("out") ? arguments.get("out") : path + "/report";
  const std::shared_ptr<Storage> storage = open_storage(folder);
  storage->put(kPage, report::to_html(report));
  storage->put(kNumbers, report::to_json(report) + "\n");
  for (const std::string_view name : {kPage, kNumbers}) {
    cli::write_out(fmt::format("{}/{}\n", cli::escape(folder), name));
  }
  return kExitOk;
}

constexpr std::string_view kDoc =
    R"(Writes xgboost_report.html, one page that needs nothing else, and xgboost_report.json with the same
numbers, into the run's folder `report` or where --out says: labels, metrics, feature importance, and
by task the confusion matrix with precision, recall and F1, the ROC curve, or the residuals.

The sections need what they show: labels and predictions with raw values, feature_importance, metrics.
This is what SageMaker's rule CreateXgboostReport does.

Examples:
  tensortap report runs/abalone
  tensortap report runs/abalone --json | jq .regression.rmse)";

}  // namespace

const CommandDescriptor& report_command() {
  static constexpr std::array kArguments = {
      ArgumentDescriptor{
          .name = "run", .value_name = "RUN", .doc = "a run's directory", .is_required = true},
      ArgumentDescriptor{.name = "out",
                         .kind = ArgumentKind::kOption,
                         .value_name = "DIR",
                         .doc = "where the files go; default: RUN/report"},
      ArgumentDescriptor{.name = "json",
                         .kind = ArgumentKind::kFlag,
                         .value_name = "",
                         .doc = "only print the numbers as JSON"},
  };
  static constexpr CommandDescriptor kDescriptor{
      .name = "report",
      .summary = "Report on an XGBoost training, as a page and as numbers.",
      .doc = kDoc,
      .arguments = kArguments,
      .run = run,
  };
  return kDescriptor;
}

}  // namespace tensortap
