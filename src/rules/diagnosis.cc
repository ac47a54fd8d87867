#include "rules/diagnosis.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "base/json.h"
#include "rules/registry.h"
#include "rules/syndromes.h"

namespace tensortap {
namespace {

// Saved steps between two first signs of one incident, at most.
constexpr std::ptrdiff_t kIncidentSteps = 10;

constexpr std::size_t kCauses = 3;  // of each symptom, the likeliest

const RuleDescriptor* descriptor_of(std::string_view rule) {
  // A second rule of a kind is called NAME_2.
  const std::string_view kind = rule.substr(0, rule.find('_'));
  const auto& rules = builtin_rules();
  const auto found = std::find_if(rules.begin(), rules.end(),
                                  [&](const RuleDescriptor* one) { return one->name == kind; });
  return found != rules.end() ? *found : nullptr;
}

std::vector<Symptom> symptoms_of(std::span<const Finding> findings) {
  std::map<std::string, Symptom> by_rule;
  for (const Finding& finding : findings) {
    Symptom& symptom = by_rule[finding.rule];
    if (symptom.finding_count == 0 || finding.step < symptom.first_step) {
      symptom.first = finding;
      symptom.first_step = finding.step;
    }
    symptom.last_step =
        symptom.finding_count == 0 ? finding.step : std::max(symptom.last_step, finding.step);
    ++symptom.finding_count;
    symptom.severity = std::max(symptom.severity, finding.severity);
    const bool is_new = !finding.tensor.empty() &&
                        std::find(symptom.tensors.begin(), symptom.tensors.end(), finding.tensor) ==
                            symptom.tensors.end();
    if (is_new) symptom.tensors.push_back(finding.tensor);
  }
  std::vector<Symptom> symptoms;
  for (auto& [rule, symptom] : by_rule) {
    symptom.rule = rule;
    if (const RuleDescriptor* descriptor = descriptor_of(rule)) symptom.stage = descriptor->stage;
    symptoms.push_back(std::move(symptom));
  }
  std::sort(symptoms.begin(), symptoms.end(), [](const Symptom& a, const Symptom& b) {
    return std::tie(a.stage, a.first_step, a.rule) < std::tie(b.stage, b.first_step, b.rule);
  });
  return symptoms;
}

bool names_kind(std::span<const std::string_view> names, const Symptom& symptom) {
  const std::string_view kind = std::string_view(symptom.rule).substr(0, symptom.rule.find('_'));
  return std::find(names.begin(), names.end(), kind) != names.end();
}

void settle(Diagnosis& diagnosis) {
  diagnosis.first_step = diagnosis.symptoms.front().first_step;
  diagnosis.last_step = diagnosis.symptoms.front().last_step;
  for (const Symptom& symptom : diagnosis.symptoms) {
    diagnosis.severity = std::max(diagnosis.severity, symptom.severity);
    diagnosis.first_step = std::min(diagnosis.first_step, symptom.first_step);
    diagnosis.last_step = std::max(diagnosis.last_step, symptom.last_step);
    const RuleDescriptor* descriptor = descriptor_of(symptom.rule);
    if (descriptor == nullptr) continue;
    for (const std::string_view cause :
         descriptor->advice.causes.first(std::min(kCauses, descriptor->advice.causes.size()))) {
      const bool is_known = std::find(diagnosis.causes.begin(), diagnosis.causes.end(), cause) !=
                            diagnosis.causes.end();
      if (!is_known) diagnosis.causes.emplace_back(cause);
    }
  }
}

// Moves the symptoms that `belongs` chooses out of `all`, keeping the order.
template <typename Predicate>
std::vector<Symptom> take(std::vector<Symptom>& all, const Predicate& belongs) {
  const auto rest = std::stable_partition(all.begin(), all.end(), belongs);
  std::vector<Symptom> taken(std::make_move_iterator(all.begin()), std::make_move_iterator(rest));
  all.erase(all.begin(), rest);
  return taken;
}

void take_syndrome(const Syndrome& syndrome, std::vector<Symptom>& symptoms,
                   std::vector<Diagnosis>& diagnoses) {
  const auto is_sign = [&](const Symptom& one) { return names_kind(syndrome.signs, one); };
  const auto is_consequence = [&](const Symptom& one) {
    return names_kind(syndrome.consequences, one);
  };
  const auto signs = std::count_if(symptoms.begin(), symptoms.end(), is_sign);
  const auto consequences = std::count_if(symptoms.begin(), symptoms.end(), is_consequence);
  if (signs == 0 || signs + consequences < 2) return;
  Diagnosis diagnosis;
  diagnosis.title = syndrome.title;
  diagnosis.explanation = syndrome.explanation;
  diagnosis.next_step = syndrome.next_step;
  diagnosis.symptoms =
      take(symptoms, [&](const Symptom& one) { return is_sign(one) || is_consequence(one); });
  settle(diagnosis);
  diagnoses.push_back(std::move(diagnosis));
}

bool are_near(std::int64_t a, std::int64_t b, std::span<const std::int64_t> saved_steps) {
  const auto position = [&](std::int64_t step) {
    return std::lower_bound(saved_steps.begin(), saved_steps.end(), step) - saved_steps.begin();
  };
  return std::abs(position(a) - position(b)) <= kIncidentSteps;
}

// What began together is one incident, and its earliest stage explains it. The machine's troubles
// explain no trouble of the model.
Diagnosis take_incident(std::vector<Symptom>& symptoms, std::span<const std::int64_t> saved_steps) {
  const std::int64_t step = symptoms.front().first_step;
  const bool is_system = symptoms.front().stage == Stage::kSystem;
  std::size_t number = 0;
  Diagnosis diagnosis;
  diagnosis.symptoms = take(symptoms, [&](const Symptom& one) {
    if (number++ == 0) return true;
    return !is_system && one.stage != Stage::kSystem && are_near(one.first_step, step, saved_steps);
  });
  const Symptom& root = diagnosis.symptoms.front();
  if (const RuleDescriptor* descriptor = descriptor_of(root.rule)) {
    diagnosis.title = descriptor->summary;
    diagnosis.explanation = descriptor->advice.why;
    diagnosis.next_step = descriptor->advice.next_step;
  } else {
    diagnosis.title = root.rule;
    diagnosis.explanation = root.first.message;
    diagnosis.next_step = "Look at the tensor and the step that the finding names.";
  }
  settle(diagnosis);
  return diagnosis;
}

void append_symptom(JsonWriter& json, const Symptom& symptom) {
  json.begin_object()
      .field("rule", symptom.rule)
      .field("stage", stage_name(symptom.stage))
      .field("severity", severity_name(symptom.severity))
      .field("finding_count", symptom.finding_count)
      .field("first_step", symptom.first_step)
      .field("last_step", symptom.last_step);
  json.key("tensors").begin_array();
  for (const std::string& tensor : symptom.tensors) json.value(tensor);
  json.end_array();
  json.key("first_finding").raw(to_json(symptom.first));
  json.end_object();
}

}  // namespace

std::vector<Diagnosis> diagnose(std::span<const Finding> findings,
                                std::span<const std::int64_t> saved_steps) {
  std::vector<Symptom> symptoms = symptoms_of(findings);
  std::vector<Diagnosis> diagnoses;
  for (const Syndrome& syndrome : syndromes()) take_syndrome(syndrome, symptoms, diagnoses);
  while (!symptoms.empty()) diagnoses.push_back(take_incident(symptoms, saved_steps));
  std::stable_sort(diagnoses.begin(), diagnoses.end(), [](const Diagnosis& a, const Diagnosis& b) {
    return std::tuple(-static_cast<int>(a.severity), a.first_step) <
           std::tuple(-static_cast<int>(b.severity), b.first_step);
  });
  return diagnoses;
}

std::string to_json(const Diagnosis& diagnosis) {
  JsonWriter json;
  json.begin_object()
      .field("title", diagnosis.title)
      .field("severity", severity_name(diagnosis.severity))
      .field("first_step", diagnosis.first_step)
      .field("last_step", diagnosis.last_step)
      .field("explanation", diagnosis.explanation);
  json.key("causes").begin_array();
  for (const std::string& cause : diagnosis.causes) json.value(cause);
  json.end_array().field("next_step", diagnosis.next_step);
  json.key("symptoms").begin_array();
  for (const Symptom& symptom : diagnosis.symptoms) append_symptom(json, symptom);
  json.end_array().end_object();
  return json.text();
}

}  // namespace tensortap
