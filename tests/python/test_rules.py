"""Rules over recorded runs and in process: built-in ones, and a user's own."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from run_maker import RunMaker

import tensortap as tt
from tensortap import _core, rules
from tensortap.exceptions import (
    InvalidArgumentError,
    NotFoundError,
    RuleEvaluationConditionMet,
    RunNotFoundError,
)
from tensortap.rules import Rule, RuleSpec, bind_rule, invoke_rule, parse_rule


class CustomGradientRule(Rule):
    def __init__(self, base_trial, threshold=10.0):
        super().__init__(base_trial)
        self.threshold = float(threshold)

    def invoke_at_step(self, step):
        for tname in self.base_trial.tensor_names(collection="gradients"):
            t = self.base_trial.tensor(tname)
            abs_mean = t.reduction_value(step, "mean", abs=True)
            if abs_mean > self.threshold:
                return True
        return False


def growing(step: int) -> dict[str, np.ndarray]:
    """Gradients of mean magnitude 3 * step."""
    return {
        "gradient/a.weight": np.array([[3.0, -3.0]], np.float32) * step,
        "loss_output_0": np.array(1.0, np.float32),
    }


def shrinking(step: int) -> dict[str, np.ndarray]:
    return {"gradient/a.weight": np.array([1.0, -1.0], np.float32) * 10.0**-step}


def test_the_rule_of_the_issue(runs: RunMaker, caplog: pytest.LogCaptureFixture) -> None:
    trial = tt.create_trial(path=runs.make(6, growing))
    rule_obj = CustomGradientRule(trial)
    with caplog.at_level(logging.INFO, "tensortap"):
        assert invoke_rule(rule_obj, start_step=0, end_step=None) is None
    fired = [r.getMessage() for r in caplog.records if "fired" in r.getMessage()]
    assert fired == [f"rule CustomGradientRule fired at step {step}" for step in (4, 5)]
    assert rule_obj.rule_name == "CustomGradientRule"
    assert rule_obj.trials == [trial]
    assert rule_obj.report["RuleTriggered"] == 2


def test_invoke_rule_raises_when_asked(runs: RunMaker) -> None:
    rule = CustomGradientRule(tt.create_trial(runs.make(6, growing)), threshold="7")
    with pytest.raises(RuleEvaluationConditionMet) as fired:
        invoke_rule(rule, raise_eval_cond=True)
    assert fired.value.step == 3
    assert fired.value.rule_name == "CustomGradientRule"
    invoke_rule(rule, start_step=0, end_step=3, raise_eval_cond=True)


class Recorder(Rule):
    """Notes the steps that it was asked about."""

    def __init__(self, base_trial, action_str=None):
        super().__init__(base_trial, action_str)
        self.seen = []

    def invoke_at_step(self, step):
        self.seen.append((step, self.base_trial.dynamic_refresh))
        return False


def test_unsaved_steps_are_jumped_over(runs: RunMaker) -> None:
    config = tt.SaveConfig(save_interval=1000)
    trial = tt.create_trial(runs.make(2001, lambda _: {"x": np.ones(1)}, save_config=config))
    rule = Recorder(trial)
    began = time.monotonic()
    invoke_rule(rule)
    assert time.monotonic() - began < 1.0
    assert [step for step, _ in rule.seen] == [0, 1000, 2000]


def test_the_trial_stands_still_while_a_rule_judges(runs: RunMaker) -> None:
    trial = tt.create_trial(runs.make(2, growing))
    rule = Recorder(trial)
    invoke_rule(rule)
    assert rule.seen == [(0, False), (1, False)]
    assert trial.dynamic_refresh


def test_a_rule_follows_a_running_job_to_its_end(runs: RunMaker) -> None:
    session = runs.open()

    def train() -> None:
        for _ in range(5):
            runs.steps(session, 2, growing)
            session.flush()
            time.sleep(0.03)
        session.close()

    runs.steps(session, 1, growing)
    session.flush()
    thread = threading.Thread(target=train)
    rule = Recorder(tt.create_trial(session.out_dir))
    thread.start()
    invoke_rule(rule)
    thread.join()
    assert [step for step, _ in rule.seen] == list(range(11))


def test_following_ends_at_end_step_of_a_running_job(runs: RunMaker) -> None:
    session = runs.open()
    runs.steps(session, 5, growing)
    session.flush()
    rule = Recorder(tt.create_trial(session.out_dir))
    invoke_rule(rule, 1, 4)
    assert [step for step, _ in rule.seen] == [1, 2, 3]


def test_tensors_that_a_step_lacks_are_skipped(runs: RunMaker) -> None:
    class Late(Rule):
        def invoke_at_step(self, step):
            return self.base_trial.tensor("late").reduction_value(step, "max") > 0

    path = runs.make(3, lambda i: {"x": np.ones(1), **({"late": np.ones(1)} if i == 2 else {})})
    trial = tt.create_trial(path)
    with pytest.raises(RuleEvaluationConditionMet) as fired:
        invoke_rule(Late(trial), raise_eval_cond=True)
    assert fired.value.step == 2
    assert [f.step for f in tt.check(trial, [Late])] == [2]


def test_faults_of_a_rule_are_not_hidden(runs: RunMaker) -> None:
    class Broken(Rule):
        def invoke_at_step(self, step):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        invoke_rule(Broken(tt.create_trial(runs.make(1, growing))))


def test_required_tensors(runs: RunMaker) -> None:
    class Needs(Rule):
        def set_required_tensors(self, step):
            self.req_tensors.add("^gradient", [step], should_match_regex=True)

        def invoke_at_step(self, step):
            (tensor,) = self.req_tensors.get()
            assert self.req_tensors.get_tensor_steps(tensor.name) == [step]
            return tensor.value(step).max() == 6

    with pytest.raises(RuleEvaluationConditionMet) as fired:
        invoke_rule(Needs(tt.create_trial(runs.make(4, growing))), raise_eval_cond=True)
    assert fired.value.step == 2


# Built-in rules.


def test_constructors_come_from_the_engine() -> None:
    assert {"VanishingGradient", "ExplodingTensor", "LossNotDecreasing"} <= set(dir(rules))
    spec = rules.VanishingGradient(threshold=1e-5, actions=["stop_training"])
    assert spec == RuleSpec("VanishingGradient", {"threshold": "1e-05"}, ("stop_training",))
    assert RuleSpec.parse("vanishing_gradient:threshold=1e-05,actions=stop_training") == spec
    assert RuleSpec.parse(str(spec)) == spec
    assert "1e-7" in rules.VanishingGradient.__doc__
    assert parse_rule(rules.VanishingGradient) == RuleSpec("VanishingGradient")
    with pytest.raises(AttributeError, match="VanishingGradient"):
        rules.VanishedGradient  # noqa: B018


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: rules.VanishingGradient(treshold=1), InvalidArgumentError, "'threshold'"),
        (lambda: rules.VanishingGradient(threshold="x"), InvalidArgumentError, "threshold"),
        (lambda: RuleSpec.parse("VanishinGradient"), NotFoundError, "VanishingGradient"),
        (lambda: parse_rule(3), TypeError, "a rule is"),
    ],
)
def test_bad_rules_are_refused(make, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_check_finds_the_first_step_below_the_threshold(runs: RunMaker) -> None:
    path = runs.make(9, shrinking)
    found = tt.check(path, ["VanishingGradient:threshold=5e-7"])
    assert [f.step for f in found] == [7, 8]
    first = found[0]
    assert first.tensor == "gradient/a.weight"
    assert first.worker == "worker_0"
    assert first.statistic == "abs_mean"
    assert first.observed == pytest.approx(1e-7)
    assert first.threshold == 5e-7
    assert "gradient/a.weight" in first.message
    assert found.reports[0].status == "IssuesFound"
    assert [f.step for f in tt.check(path, [rules.VanishingGradient], end_step=8)] == []


def test_check_says_when_a_rule_matched_nothing(
    runs: RunMaker, caplog: pytest.LogCaptureFixture
) -> None:
    path = runs.make(2, lambda _: {"x": np.ones(2)})
    found = tt.check(path, [rules.VanishingGradient()])
    assert (list(found), found.reports[0].status) == ([], "NoData")
    assert any("VanishingGradient" in record.getMessage() for record in caplog.records)


def test_check_of_a_missing_run(tmp_path) -> None:
    with pytest.raises(RunNotFoundError):
        tt.check(tmp_path / "none", ["VanishingGradient"])


def test_check_mixes_custom_and_built_in_rules(runs: RunMaker) -> None:
    class Telling(Rule):
        def invoke_at_step(self, step):
            return [{"tensor": "a", "observed": step, "message": "m"}] if step == 1 else None

    path = runs.make(9, shrinking)
    found = tt.check(path, [rules.VanishingGradient(threshold=5e-7), Telling])
    assert [(f.rule, f.step) for f in found] == [
        *(("Telling", 1), ("VanishingGradient", 7), ("VanishingGradient", 8))
    ]
    assert (found[0].tensor, found[0].observed, found[0].mode_step) == ("a", 1.0, 1)


# In process.


def test_in_process_and_afterwards_agree(runs: RunMaker) -> None:
    spec = rules.VanishingGradient(threshold=5e-7, actions=["stop_training"])
    session = runs.open(rules=[spec.to_core()])
    for step in range(9):
        runs.steps(session, 1, lambda _, step=step: shrinking(step))
        # In the very step in which it fires, not one later.
        assert (session.stop_reason is not None) == (step >= 7)
    session.close()
    assert session.stop_reason.step == 7
    assert session.findings == list(tt.check(session.out_dir, [spec]))


def in_process(session: _core.Session, rule: Rule):
    """As a hook calls it."""
    return lambda step, mode, mode_step: rule.invoke_at_step(step)


def test_a_custom_rule_in_process(runs: RunMaker) -> None:
    session = runs.open()
    rule = bind_rule(CustomGradientRule, tt.Trial._from_core(session.live_trial()))
    session.add_rule(rule.rule_name, in_process(session, rule), ["stop_training"])
    runs.steps(session, 6, growing)
    session.close()
    assert [f.step for f in session.findings] == [4, 5]
    assert session.stop_reason.rule == "CustomGradientRule"
    assert session.stop_reason.mode == tt.modes.TRAIN
    assert [f.step for f in tt.check(session.out_dir, [CustomGradientRule])] == [4, 5]


def test_a_rule_that_raises_is_switched_off_and_the_others_go_on(runs: RunMaker) -> None:
    session = runs.open(rules=[rules.VanishingGradient(threshold=0.5).to_core()])
    calls = []

    def broken(step: int, mode: int, mode_step: int) -> bool:
        calls.append(step)
        raise ValueError("what a mess")

    session.add_rule("Broken", broken)
    runs.steps(session, 4, shrinking)
    session.close()
    assert calls == [0]
    report = {r.name: r for r in session.rule_reports()}["Broken"]
    assert report.status == "Error"
    assert "ValueError: what a mess" in report.message
    assert [f.step for f in session.findings] == [1, 2, 3]


def test_a_rule_that_raises_is_told_in_one_line(
    runs: RunMaker, caplog: pytest.LogCaptureFixture
) -> None:
    session = runs.open()

    def broken(step: int, mode: int, mode_step: int) -> bool:
        raise ValueError("one\ntwo")

    session.add_rule("Broken", broken)
    runs.steps(session, 3, shrinking)
    told = [r.getMessage() for r in caplog.records if "Broken" in r.getMessage()]
    assert told == [
        "rule Broken failed and is switched off, the training goes on: at step 0: ValueError: one two"
    ]
    assert rules.rule_job_summary(session.out_dir)[0]["RuleEvaluationStatus"] == "Error"
    session.close()


def test_a_damaged_status_is_an_error(runs: RunMaker) -> None:
    session = runs.open(rules=[rules.VanishingGradient(threshold=0.5).to_core()])
    runs.steps(session, 3, shrinking)
    session.close()
    file = Path(session.out_dir) / "rules" / "VanishingGradient.json"
    for text in ("", "garbage", "[]", '{"name": 5, "status": []}'):
        file.write_text(text)
        (summary,) = rules.rule_job_summary(session.out_dir)
        assert summary["RuleEvaluationStatus"] == "Error"
        assert "VanishingGradient.json is damaged" in summary["StatusDetails"]


def test_ctrl_c_in_a_rule_reaches_the_training(runs: RunMaker) -> None:
    session = runs.open()

    def interrupted(step: int, mode: int, mode_step: int) -> bool:
        raise KeyboardInterrupt

    session.add_rule("Interrupted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runs.steps(session, 4, shrinking)
    session.close()


def test_a_miss_is_no_fault_of_a_rule(runs: RunMaker) -> None:
    session = runs.open()
    trial = tt.Trial._from_core(session.live_trial())
    session.add_rule("Late", lambda s, m, ms: bool(trial.tensor("late").value(s).max() == 1))
    runs.steps(session, 3, lambda i: {"x": np.ones(1), **({"late": np.ones(1)} if i else {})})
    session.close()
    assert [f.step for f in session.findings] == [1, 2]
    assert session.rule_reports()[0].status == "IssuesFound"


def test_a_rule_whose_tensor_never_comes_has_no_data(runs: RunMaker) -> None:
    session = runs.open()
    trial = tt.Trial._from_core(session.live_trial())
    session.add_rule("Never", lambda s, m, ms: bool(trial.tensor("never").value(s).max() == 1))
    runs.steps(session, 3, growing)
    session.close()
    (report,) = session.rule_reports()
    assert report.status == "NoData"
    assert "no tensor matched whatever Never looks at" in report.message


def test_rules_come_before_the_first_step(runs: RunMaker) -> None:
    session = runs.open()
    runs.steps(session, 1, growing)
    with pytest.raises(ValueError, match="too late"):
        session.add_rule("Late", lambda s, m, ms: False)


def test_a_finding_of_the_wrong_shape_is_an_error(runs: RunMaker) -> None:
    session = runs.open()
    session.add_rule("Odd", lambda s, m, ms: [{"observed": "much"}])
    runs.steps(session, 1, growing)
    session.close()
    assert "'observed' of a finding has the wrong type" in session.rule_reports()[0].message


def test_an_answer_that_is_no_finding_is_an_error(runs: RunMaker) -> None:
    session = runs.open()
    session.add_rule("Odd", lambda s, m, ms: "yes")
    runs.steps(session, 1, growing)
    session.close()
    assert "must return True, False, a Finding" in session.rule_reports()[0].message


# Ways to give a custom rule.


def test_bind_rule(runs: RunMaker) -> None:
    trial = tt.create_trial(runs.make(2, growing))
    assert bind_rule(CustomGradientRule, trial).threshold == 10.0
    assert bind_rule(lambda t: CustomGradientRule(t, 3), trial).threshold == 3.0
    unbound = CustomGradientRule(None, 4)
    assert bind_rule(unbound, trial) is unbound
    assert unbound.trials == [trial]
    assert bind_rule(unbound, trial) is unbound
    other = tt.create_trial(trial.path)
    with pytest.raises(InvalidArgumentError, match="lambda trial"):
        bind_rule(unbound, other)
    with pytest.raises(TypeError, match="made no Rule"):
        bind_rule(lambda t: 3, trial)


def test_invoke_rule_runs_actions_once(runs: RunMaker) -> None:
    marks = runs.root / "marks"
    argv = ["sh", "-c", f"echo $TENSORTAP_FINDING_STEP >> {marks}"]
    rule = CustomGradientRule(tt.create_trial(runs.make(8, growing)))
    rule.actions = tt.actions.parse_actions([tt.actions.Command(argv), "stop_training"])
    invoke_rule(rule)
    # It fires from step 4 on; nothing runs that could be stopped.
    assert marks.read_text() == "4\n"
    assert not (runs.root / "run" / "control").exists()


def test_invoke_rule_asks_a_running_training_to_stop(runs: RunMaker) -> None:
    session = runs.open()
    runs.steps(session, 6, growing)
    session.flush()
    rule = CustomGradientRule(tt.create_trial(session.out_dir))
    rule.actions = ["stop_training"]
    with pytest.raises(RuleEvaluationConditionMet):
        invoke_rule(rule, raise_eval_cond=True)
    deadline = time.monotonic() + 20
    while session.obey() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (session.stop_reason.rule, session.stop_reason.step) == ("CustomGradientRule", 4)
    session.close()


def test_actions_of_custom_rules() -> None:
    assert parse_rule((CustomGradientRule, ["stop_training"])).actions == ("stop_training",)
    assert Recorder(None, "stop_training").actions == ["stop_training"]
    json = (
        '[{"name": "StopTraining", "training_job_prefix": "A"}, {"name": "sms", "endpoint": "1"}]'
    )
    # An SMS to "1" is impossible: left out, as smdebug does.
    (stop,) = Recorder(None, json).actions
    assert _core.check_action(stop) == ("stop_training", "stop_training(training_job_prefix=A)")
    assert parse_rule(Recorder(None, json)).actions == (stop,)
    assert tt.actions.stop_training == "stop_training"
    assert "stop_training" in dir(tt.actions)


def test_an_expression_is_a_rule(runs: RunMaker) -> None:
    session = runs.open(rules=[parse_rule("x > 2 for 2 steps").to_core()])
    runs.steps(session, 4, lambda i: {"x": np.array(float(i + 1))})
    session.close()
    assert [finding.step for finding in session.findings] == [3]
    again = tt.check(runs.root / "run", ["x > 2 for 2 steps"])
    assert list(again) == session.findings
    with pytest.raises(
        tt.exceptions.InvalidArgumentError, match=r"at character 4 .*expected a num"
    ):
        tt.check(runs.root / "run", ["x > "])
    with pytest.raises(tt.exceptions.InvalidArgumentError, match="'expression' is required"):
        tt.rules.Expression(severity="info")


def test_findings_join_into_diagnoses(runs: RunMaker) -> None:
    session = runs.open()
    runs.steps(
        session,
        30,
        lambda i: {"gradient/w": np.full(4, 1e-9 if i > 3 else 1e-3), "loss": np.array(1.0)},
    )
    session.close()
    result = tt.check(runs.root / "run", ["VanishingGradient", "LossNotDecreasing"])
    (diagnosis,) = result.diagnoses()
    assert [symptom["rule"] for symptom in diagnosis["symptoms"]] == [
        "VanishingGradient",
        "LossNotDecreasing",
    ]
    assert diagnosis["symptoms"][0]["first_step"] == 4
    assert diagnosis["next_step"]
    assert tt.check(runs.root / "run", ["ExplodingTensor"]).diagnoses() == []
