"""`tensortap report` over runs shaped as the XGBoost hook writes them, against scikit-learn and golden files."""

from __future__ import annotations

import html.parser
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_maker import RunMaker, record_array
from sklearn import metrics as sk

from tensortap._program import locations

GOLDEN = Path(__file__).parents[1] / "golden" / "report"
ROUNDS = 4


def record_run(
    runs: RunMaker, name: str, objective: str, labels: np.ndarray, predictions: list[np.ndarray]
) -> str:
    """A run with a step for each array of predictions, and the rest of what the hook records."""
    session = runs.open(name)
    for step, prediction in enumerate(predictions):
        session.begin_step()
        if step == 0:
            session.record_text("hyperparameters/objective", objective)
            session.record_text("hyperparameters/max_depth", "3")
        for metric, value in (("train-rmse", 1.0 / (step + 1)), ("validation-rmse", 0.5)):
            session.record_scalar(metric, value)
        record_array(session, "labels", labels)
        record_array(session, "predictions", prediction.astype(np.float32))
        shares = {"f0": 0.5, "f1": 0.2} if step == 0 else {"f0": 0.25, "f1": 0.125, "f2": 0.625}
        for feature, share in shares.items():
            session.record_scalar(f"feature_importance/gain/{feature}", share)
        session.end_step()
    session.close()
    return session.out_dir


def labels_of(count: int, classes: int) -> np.ndarray:
    return ((np.arange(count) * 7919 + 13) % 1009 % classes).astype(np.int64)


def binary_run(runs: RunMaker) -> tuple[str, np.ndarray, list[np.ndarray]]:
    labels = labels_of(300, 2)
    noise = np.random.default_rng(1).normal(size=(ROUNDS, 300))
    predictions = [1 / (1 + np.exp(-(labels - 0.5) * step - noise[step])) for step in range(ROUNDS)]
    predictions = [np.round(p, 2) for p in predictions]  # ties
    return record_run(runs, "binary", "binary:logistic", labels, predictions), labels, predictions


def multiclass_run(runs: RunMaker) -> tuple[str, np.ndarray, list[np.ndarray]]:
    labels = labels_of(240, 4)
    noise = np.random.default_rng(2).normal(size=(ROUNDS, 240, 4))
    predictions = [noise[step] + np.eye(4)[labels] * step for step in range(ROUNDS)]
    path = record_run(runs, "multiclass", "multi:softprob", labels, predictions)
    return path, labels, predictions


def regression_run(runs: RunMaker) -> tuple[str, np.ndarray, list[np.ndarray]]:
    generator = np.random.default_rng(3)
    labels = generator.normal(10, 3, size=200).astype(np.float32)
    predictions = [
        labels + generator.normal(0, 2.0 / (step + 1), size=200) for step in range(ROUNDS)
    ]
    path = record_run(runs, "regression", "reg:squarederror", labels, predictions)
    return path, labels, [p.astype(np.float32) for p in predictions]


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = next(path for path in locations() if Path(path).exists())
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


def write_report(*arguments: str) -> str:
    result = run_program("report", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def report(path: str) -> dict[str, Any]:
    return json.loads(write_report(path, "--json"))


def test_binary(runs: RunMaker) -> None:
    path, labels, predictions = binary_run(runs)
    numbers = report(path)
    assert numbers["task"] == "binary"
    assert numbers["hyperparameters"] == {"objective": "binary:logistic", "max_depth": "3"}
    found = numbers["classification"]
    answers = (predictions[-1].astype(np.float32) > 0.5).astype(int)
    assert found["confusion_matrix"] == sk.confusion_matrix(labels, answers).tolist()
    assert found["roc"]["area"] == pytest.approx(
        sk.roc_auc_score(labels, predictions[-1].astype(np.float32)), abs=1e-12
    )
    assert found["roc"]["true_positive_rates"][-1] == 1.0
    assert [len(c["values"]) for c in found["class_accuracies"]] == [ROUNDS, ROUNDS]
    assert numbers["label_counts"] == [
        {"label": k, "count": int(np.sum(labels == k))} for k in (0, 1)
    ]


def test_multiclass(runs: RunMaker) -> None:
    path, labels, predictions = multiclass_run(runs)
    found = report(path)["classification"]
    answers = predictions[-1].argmax(axis=1)
    assert found["confusion_matrix"] == sk.confusion_matrix(labels, answers).tolist()
    assert found["accuracy"] == pytest.approx(sk.accuracy_score(labels, answers))
    for average in ("micro", "macro", "weighted"):
        precision, recall, f1, _ = sk.precision_recall_fscore_support(
            labels, answers, average=average
        )
        assert found[average] == pytest.approx({"precision": precision, "recall": recall, "f1": f1})
    each = np.array(sk.precision_recall_fscore_support(labels, answers))
    ours = [[c["precision"], c["recall"], c["f1"], c["support"]] for c in found["classes"]]
    assert pytest.approx(each) == np.array(ours).T
    recalls = sk.recall_score(labels, predictions[0].argmax(axis=1), average=None)
    assert [c["values"][0] for c in found["class_accuracies"]] == pytest.approx(list(recalls))
    assert "roc" not in found


def test_regression(runs: RunMaker) -> None:
    path, labels, predictions = regression_run(runs)
    numbers = report(path)
    found = numbers["regression"]
    wide = [labels.astype(float), *(p.astype(float) for p in predictions)]
    labels64, last = wide[0], wide[-1]
    assert found["rmse"] == pytest.approx(sk.root_mean_squared_error(labels64, last))
    assert found["mean_absolute_error"] == pytest.approx(sk.mean_absolute_error(labels64, last))
    counts, edges = np.histogram(last - labels64, bins=20)
    assert found["residuals"]["counts"] == counts.tolist()
    assert found["residuals"]["edges"] == pytest.approx(edges)
    assert numbers["label_histogram"]["counts"] == np.histogram(labels64, bins=10)[0].tolist()
    bins = np.clip(np.digitize(labels64, found["label_bins"]) - 1, 0, 9)
    first = np.abs(wide[1] - labels64)
    for k, curve in enumerate(found["bin_errors"]):
        if np.any(bins == k):
            assert curve["values"][0] == pytest.approx(first[bins == k].mean())


def test_metrics_and_importance(runs: RunMaker) -> None:
    numbers = report(regression_run(runs)[0])
    assert [(m["name"], m["values"]) for m in numbers["metrics"]] == [
        ("train-rmse", [1.0, 0.5, 1 / 3, 0.25]),
        ("validation-rmse", [0.5] * 4),
    ]
    assert numbers["feature_importance"] == [
        {
            "type": "gain",
            "step": 3,
            "features": [
                {"name": "f2", "value": 0.625},
                {"name": "f0", "value": 0.25},
                {"name": "f1", "value": 0.125},
            ],
        }
    ]


@pytest.mark.parametrize("make", [binary_run, multiclass_run, regression_run])
def test_the_numbers_stay_what_they_were(make, runs) -> None:
    """Golden files: whoever changes them on purpose deletes them and runs this once."""
    numbers = report(make(runs)[0])
    del numbers["run"]
    golden = GOLDEN / f"{make.__name__.removesuffix('_run')}.json"
    if not golden.exists():
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(json.dumps(numbers, indent=1) + "\n")
    assert numbers == json.loads(golden.read_text())


class Page(html.parser.HTMLParser):
    """Headings, references, and whether every element is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.references: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h2", "h3"):
            self.headings.append(data)


def test_the_page_is_whole_and_needs_nothing_else(runs: RunMaker, tmp_path: Path) -> None:
    path, *_ = binary_run(runs)
    assert write_report(path).splitlines() == [
        f"{path}/report/xgboost_report.html",
        f"{path}/report/xgboost_report.json",
    ]
    page = Page((Path(path) / "report" / "xgboost_report.html").read_text())
    assert page.open == []
    assert page.references == []
    assert page.headings == [
        "Labels",
        "Metrics",
        "Feature importance",
        "By gain",
        "Confusion matrix",
        "Share of each class that is right, over the steps",
        "ROC curve",
        "Hyperparameters",
    ]
    write_report(regression_run(runs)[0], "--out", str(tmp_path / "there"))
    assert "Residuals" in (tmp_path / "there" / "xgboost_report.html").read_text()


def test_names_of_a_run_cannot_put_anything_into_the_page(runs: RunMaker, tmp_path) -> None:
    session = runs.open("hostile")
    session.begin_step()
    session.record_scalar("feature_importance/gain/<script>alert(1)</script>", 1.0)
    session.record_text("hyperparameters/objective", "</table><img src=x>")
    session.end_step()
    session.close()
    write_report(session.out_dir, "--out", str(tmp_path))
    text = (tmp_path / "xgboost_report.html").read_text()
    assert "<script" not in text
    assert "<img" not in text


def test_a_run_of_another_kind_is_refused(runs: RunMaker) -> None:
    path = runs.make(2, lambda i: {"loss": np.float32([i])})
    result = run_program("report", path)
    assert result.returncode == 1
    assert "nothing of an XGBoost training" in result.stderr
