"""Actions against real servers on this machine: mail, webhooks, SNS; and what of them is stored."""

from __future__ import annotations

import email
import email.policy
import json
import os
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from run_maker import RunMaker

import tensortap as tt
from tensortap import _core, actions, rules
from tensortap.exceptions import InvalidArgumentError, InvalidTypeError, NotFoundError

SECRET = "hunter2hunter2"
SENSITIVE = "VanishingGradient:threshold=5e-7"  # fires at the first step of `sick`


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    for name in ("SERVER", "USER", "PASSWORD", "FROM", "TLS"):
        monkeypatch.delenv(f"TENSORTAP_SMTP_{name}", raising=False)


def sick(_: int) -> dict[str, np.ndarray]:
    return {"gradient/évil\r\nBcc: x@y.z": np.full(4, 1e-9)}


def train(runs: RunMaker, *given: str, steps: int = 3, name: str = "run") -> list[dict[str, Any]]:
    """A training whose rule fires at once; gives what became of its actions."""
    spec = tt.rules.parse_rule((rules.VanishingGradient(threshold=5e-7), list(given)))
    session = runs.open(name, rules=[spec.to_core()])
    began = time.monotonic()
    runs.steps(session, steps, sick)
    # The training never waits for a network.
    assert time.monotonic() - began < 1
    session.close()
    assert len(session.findings) == steps
    return outcomes(Path(session.out_dir))


def outcomes(run: Path) -> list[dict[str, Any]]:
    file = run / "rules" / "VanishingGradient.actions.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def assert_nothing_secret(run: Path) -> None:
    files = [file for file in run.rglob("*") if file.is_file()]
    assert len(files) > 4
    assert [file for file in files if SECRET.encode() in file.read_bytes()] == []


# Webhooks.


class HttpServer:
    """Answers with what `behave` does; keeps the bodies."""

    def __init__(self, behave: Callable[[BaseHTTPRequestHandler, int], None]) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                outer.headers.append({k.lower(): v for k, v in self.headers.items()})
                behave(self, len(outer.bodies))

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/{SECRET}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(self, *exception: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def answer(code: int) -> Callable[[BaseHTTPRequestHandler, int], None]:
    def behave(handler: BaseHTTPRequestHandler, _: int) -> None:
        handler.send_response(code)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return behave


@pytest.mark.parametrize("shape", ["plain", "slack", "discord", "teams"])
def test_webhook_shapes(runs: RunMaker, shape: str) -> None:
    with HttpServer(answer(200)) as server:
        (outcome,) = train(runs, actions.Webhook(server.url, shape=shape))
    # The rule fired at three steps, and told once.
    (body,) = server.bodies
    assert (outcome["result"], outcome["tries"], outcome["step"]) == ("done", 1, 0)
    assert server.headers[0]["content-type"] == "application/json"
    document = json.loads(body)
    if shape == "plain":
        assert document["finding"]["tensor"] == "gradient/évil\r\nBcc: x@y.z"
        assert document["finding"]["rule"] == "VanishingGradient"
        assert document["run"].endswith("/run")
        return
    if shape == "teams":
        (attachment,) = document["attachments"]
        assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
        text = "\n".join(block["text"] for block in attachment["content"]["body"])
    else:
        text = document["text" if shape == "slack" else "content"]
    assert "VanishingGradient at step 0" in text
    assert "gradient/évil  Bcc: x@y.z" in text
    if shape == "discord":
        assert document["allowed_mentions"] == {"parse": []}
    assert_nothing_secret(runs.root / "run")


def test_webhook_tries_again_after_500_and_gives_up_at_400(runs: RunMaker) -> None:
    def recovering(handler: BaseHTTPRequestHandler, count: int) -> None:
        answer(503 if count == 1 else 204)(handler, count)

    with HttpServer(recovering) as server:
        (outcome,) = train(runs, actions.Webhook(server.url))
    assert (outcome["result"], outcome["tries"]) == ("done", 2)
    with HttpServer(answer(404)) as server:
        (outcome,) = train(runs, actions.Webhook(server.url), name="refused")
    assert (outcome["result"], outcome["tries"], len(server.bodies)) == ("failed", 1, 1)
    assert "HTTP 404" in outcome["detail"]
    assert SECRET not in outcome["detail"]


def test_webhook_follows_no_redirect(runs: RunMaker) -> None:
    with HttpServer(answer(200)) as other:

        def redirect(handler: BaseHTTPRequestHandler, _: int) -> None:
            handler.send_response(307)
            handler.send_header("Location", other.url)
            handler.send_header("Content-Length", "0")
            handler.end_headers()

        with HttpServer(redirect) as server:
            (outcome,) = train(runs, actions.Webhook(server.url))
    assert other.bodies == []
    assert outcome["result"] == "failed"
    assert "give the final address" in outcome["detail"]


def test_webhook_to_one_that_hangs_or_hangs_up(
    runs: RunMaker, caplog: pytest.LogCaptureFixture
) -> None:
    release = threading.Event()

    def hang(handler: BaseHTTPRequestHandler, _: int) -> None:
        release.wait(10)

    def reset(handler: BaseHTTPRequestHandler, _: int) -> None:
        linger = np.array([1, 0], np.int32).tobytes()
        handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        handler.connection.close()

    with (
        HttpServer(hang) as hanging,
        HttpServer(reset) as resetting,
        HttpServer(answer(200)) as fine,
    ):
        found = train(
            runs,
            actions.Webhook(hanging.url, timeout=0.2, retries=0),
            actions.Webhook(resetting.url, retries=1),
            actions.Webhook(fine.url),
        )
        release.set()
    assert sorted((o["result"], o["tries"]) for o in found) == [
        ("done", 1),
        ("failed", 1),
        ("failed", 2),
    ]
    assert SECRET not in caplog.text
    warnings = [r.getMessage() for r in caplog.records if "action webhook" in r.getMessage()]
    assert len(warnings) == 2
    assert all("\n" not in warning for warning in warnings)


def test_webhook_to_a_closed_port_leaves_the_training_and_other_rules_alone(runs: RunMaker) -> None:
    spec = tt.rules.RuleSpec.parse(
        f"{SENSITIVE},actions=webhook(url=http://127.0.0.1:1/{SECRET},retries=0)"
    )
    session = runs.open(rules=[spec.to_core(), rules.ExplodingTensor().to_core()])
    runs.steps(session, 3, sick)
    session.close()
    reports = {report.name: report.status for report in session.rule_reports()}
    assert reports == {"VanishingGradient": "IssuesFound", "ExplodingTensor": "NoIssuesFound"}
    (outcome,) = outcomes(Path(session.out_dir))
    assert outcome["result"] == "failed"
    assert "http://127.0.0.1:1/…" in outcome["detail"]
    assert_nothing_secret(Path(session.out_dir))


def test_webhook_address_from_the_environment(
    runs: RunMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with HttpServer(answer(200)) as server:
        monkeypatch.setenv("CHAT_URL", server.url)
        train(runs, "webhook(url_env=CHAT_URL)")
    assert len(server.bodies) == 1


# Mail.


class Mailbox:
    """A mail server; what it took is in `mails` as (sender, recipients, message)."""

    def __init__(self, *, tls: ssl.SSLContext | None = None, password: str = "") -> None:
        from aiosmtpd.controller import Controller
        from aiosmtpd.smtp import SMTP, AuthResult

        self.mails: list[tuple[str, list[str], email.message.EmailMessage]] = []
        self.logins: list[tuple[str, str]] = []

        def check(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> Any:
            given = (data.login.decode(), data.password.decode())
            self.logins.append(given)
            return AuthResult(success=given == ("bot", password), handled=False)

        options: dict[str, Any] = {"hostname": "127.0.0.1", "enable_SMTPUTF8": False}
        if tls is not None:
            options |= {"tls_context": tls, "require_starttls": True}
        if password:
            options |= {"authenticator": check, "auth_required": True}

        class Here(Controller):
            def factory(self) -> SMTP:
                return SMTP(self.handler, **self.SMTP_kwargs)

        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.controller = Here(self, port=port, **options)
        self.server = f"127.0.0.1:{port}"

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        if address.startswith("nobody"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        self.mails.append((envelope.mail_from, envelope.rcpt_tos, message))
        return "250 OK"

    def __enter__(self) -> Mailbox:
        self.controller.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.controller.stop()


def test_email_says_what_was_found_and_carries_no_foreign_header(runs: RunMaker) -> None:
    with Mailbox() as box:
        (outcome,) = train(
            runs, actions.Email(["a@example.org", "b@example.org"], server=box.server, tls="none")
        )
    assert outcome["result"] == "done", outcome
    ((sender, recipients, message),) = box.mails
    assert (sender, recipients) == ("a@example.org", ["a@example.org", "b@example.org"])
    assert message["Subject"] == "Tensortap: VanishingGradient at step 0"
    assert message["To"] == "a@example.org, b@example.org"
    assert message["Bcc"] is None
    assert set(message.keys()) == {
        *("Date", "From", "To", "Subject", "Message-ID", "Auto-Submitted", "MIME-Version"),
        *("Content-Type", "Content-Transfer-Encoding"),
    }
    text = message.get_content()
    assert "gradient/évil  Bcc: x@y.z" in text
    assert "threshold 5e-07" in text
    assert str(runs.root / "run") in text


def test_email_subject_cannot_end_its_line(runs: RunMaker) -> None:
    session = runs.open()
    name = "Bös\r\nBcc: x@y.z\r\n\r\n" + "long " * 30
    with Mailbox() as box:
        session.add_rule(
            name, lambda *_: True, [actions.Email("a@x.org", server=box.server, tls="none")]
        )
        runs.steps(session, 1, sick)
        session.close()
    ((_, recipients, message),) = box.mails
    assert recipients == ["a@x.org"]
    assert message["Bcc"] is None
    assert message["Subject"].startswith("Tensortap: Bös  Bcc: x@y.z    long long")
    assert message["Subject"].endswith("at step 0")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate and its key for 127.0.0.1, in one file."""
    folder = tmp_path_factory.mktemp("tls")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=127.0.0.1"
    subprocess.run(
        [
            *command.split(),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")),
        ],
        check=True,
        capture_output=True,
    )
    return folder


def test_email_with_starttls_and_password(
    runs: RunMaker, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    monkeypatch.setenv("MAIL_PASSWORD", SECRET)
    (runs.root / "wrong").write_text("no\n")
    with Mailbox(tls=context, password=SECRET) as box:
        common = {"server": f"smtp://{box.server}", "user": "bot", "retries": 0}
        trusted = {"ca_file": str(certificate / "cert.pem")}
        found = train(
            runs,
            actions.Email("a@x.org", password_env="MAIL_PASSWORD", **common, **trusted),
            actions.Email("b@x.org", password_file=str(runs.root / "wrong"), **common, **trusted),
            actions.Email("c@x.org", password_env="MAIL_PASSWORD", **common),
        )
    assert [recipients for _, recipients, _ in box.mails] == [["a@x.org"]]
    assert ("bot", SECRET) in box.logins
    results = [outcome["result"] for outcome in found]
    assert sorted(results) == ["done", "failed", "failed"]
    # A certificate that nobody vouches for gets no password.
    assert len(box.logins) == 2
    assert_nothing_secret(runs.root / "run")


def test_email_in_the_clear_is_refused_unless_asked_for(runs: RunMaker) -> None:
    with Mailbox() as box:
        (outcome,) = train(runs, actions.Email("a@x.org", server=box.server))
    assert box.mails == []
    assert (outcome["result"], outcome["tries"]) == ("failed", 1)


def test_email_that_the_server_refuses_is_not_tried_again(runs: RunMaker) -> None:
    with Mailbox() as box:
        (outcome,) = train(
            runs, actions.Email("nobody@x.org", server=box.server, tls="none"), name="refused"
        )
    assert (outcome["result"], outcome["tries"]) == ("failed", 1)


def test_email_to_a_server_that_hangs(runs: RunMaker) -> None:
    release = threading.Event()

    class Hanging(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            release.wait(10)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Hanging) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        (outcome,) = train(
            runs, actions.Email("a@x.org", server=address, tls="none", timeout=0.3, retries=0)
        )
        release.set()
        server.shutdown()
    assert outcome["result"] == "failed"
    assert "timed out" in outcome["detail"].lower()


def test_sagemakers_email_takes_the_server_from_the_environment(
    runs: RunMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Mailbox() as box:
        monkeypatch.setenv("TENSORTAP_SMTP_SERVER", box.server)
        monkeypatch.setenv("TENSORTAP_SMTP_TLS", "none")
        text = '[{\\"name\\": \\"email\\", \\"endpoint\\": \\"Ops.Team+ml@mail.example.info\\"}]'
        train(runs, *actions.parse_actions(text))
    assert box.mails[0][1] == ["Ops.Team+ml@mail.example.info"]


# SNS.


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token-of-the-session")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_ENDPOINT_URL_SNS", raising=False)


def test_sms_through_sns(runs: RunMaker, aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import urllib.request

    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        (outcome,) = train(runs, actions.SMS("+15551234567"))
        assert outcome["result"] == "done", outcome
        with urllib.request.urlopen(f"http://{host}:{port}/moto-api/data.json") as reply:
            assert "sns" in reply.read().decode().lower()
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.sns import sns_backends

        messages = sns_backends[DEFAULT_ACCOUNT_ID]["eu-central-1"].sms_messages
        ((number, text),) = messages.values()
    finally:
        moto.stop()
    assert number == "+15551234567"
    assert text.startswith("Tensortap: VanishingGradient at step 0: ")
    assert len(text.encode()) <= 140
    assert_nothing_secret(runs.root / "run")


def test_sms_signature_is_what_aws_computes(
    runs: RunMaker, aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from botocore.auth import SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials

    with HttpServer(answer(200)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url.rsplit("/", 1)[0])
        train(runs, actions.SMS("+15551234567"))
    (body,), (headers,) = server.bodies, server.headers
    assert headers["x-amz-security-token"] == "token-of-the-session"
    given = headers["authorization"]
    signed = given.split("SignedHeaders=")[1].split(",")[0].split(";")
    request = AWSRequest("POST", server.url.rsplit("/", 1)[0] + "/", data=body)
    for name in signed:
        request.headers[name] = headers[name]
    request.context["timestamp"] = headers["x-amz-date"]
    signer = SigV4Auth(Credentials("AKIDEXAMPLE", SECRET), "sns", "eu-central-1")
    canonical = signer.canonical_request(request)
    signature = signer.signature(signer.string_to_sign(request, canonical), request)
    assert f"Signature={signature}" in given.replace(" ", "")
    assert "Credential=AKIDEXAMPLE/" in given


# How actions are written.


def test_constructors() -> None:
    stop = actions.StopTraining(training_job_prefix="My-Job")
    assert json.loads(stop) == {"name": "stop_training", "training_job_prefix": "My-Job"}
    assert json.loads(stop.serialize()) == json.loads(stop)
    listed = actions.ActionList(stop, "stop_training")
    assert json.loads(listed.serialize())[1] == {"name": "stop_training"}
    assert actions.parse_actions(listed) == [stop, "stop_training"]
    assert actions.parse_actions({"name": "stop_training"}) == [actions.make("stop_training")]
    more = actions.CaptureMore(3, ["losses", "weights"], raw=True)
    assert json.loads(more)["collections"] == ["losses", "weights"]
    assert SECRET not in repr(actions.Webhook(f"https://h/{SECRET}"))
    assert "password_env" in actions.describe("email")
    assert "cooldown" in actions.describe("stop_training")
    spec = rules.VanishingGradient(actions=[stop, more])
    assert tt.rules.RuleSpec.parse(str(spec)).actions == spec.actions


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: actions.StopTraining("a job"), ValueError, "letters, digits"),
        (lambda: actions.SMS("12"), ValueError, "plus sign"),
        (lambda: actions.Email("a@x.org"), ValueError, "TENSORTAP_SMTP_SERVER"),
        (lambda: actions.Email("a@x.org\nBcc: b@x.org", server="h"), ValueError, "not an address"),
        (lambda: actions.Webhook("ftp://h"), InvalidArgumentError, "https://"),
        (lambda: actions.Webhook(url_env="NO_SUCH_URL"), NotFoundError, "NO_SUCH_URL"),
        (lambda: actions.Webhook(url_file="/dev/zero"), NotFoundError, "no such file: /dev/zero"),
        (lambda: actions.Command([]), InvalidArgumentError, "argv"),
        (lambda: actions.SaveCheckpoint(3), TypeError, "function"),
        (lambda: actions.ActionList(3), InvalidTypeError, "takes actions"),
        (lambda: actions.parse_actions([3]), InvalidTypeError, "an action is text"),
        (lambda: actions.make("shout"), NotFoundError, "unknown action 'shout'"),
        (lambda: actions.StopTraining(after=3), InvalidArgumentError, "cooldown"),
    ],
)
def test_bad_actions_are_refused(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_impossible_actions_of_smdebugs_text_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    text = '[{"name": "stoptraining", "training_job_prefix": "Job"}, {"name": "fax"}, {"name": "email"}]'
    (stop,) = actions.parse_actions(text)
    assert _core.check_action(stop)[0] == "stop_training"
    assert len([r for r in caplog.records if "left out" in r.getMessage()]) == 2


# Statuses.


def test_rule_job_summary(runs: RunMaker) -> None:
    specs = [
        "VanishingGradient:threshold=5e-7",
        "ExplodingTensor",
        "ExplodingTensor:tensor_regex=nothing",
    ]
    session = runs.open(rules=[tt.rules.RuleSpec.parse(spec).to_core() for spec in specs])
    runs.steps(session, 3, sick)
    (first, *_) = rules.rule_job_summary(session.out_dir)
    session.close()
    before = time.time()
    summary = {
        entry["RuleConfigurationName"]: entry for entry in rules.rule_job_summary(session.out_dir)
    }
    keys = {
        *("RuleConfigurationName", "RuleEvaluationJobArn", "RuleEvaluationStatus"),
        *("StatusDetails", "LastModifiedTime"),
    }
    assert all(set(entry) == keys for entry in summary.values())
    assert first["RuleEvaluationStatus"] == "InProgress"
    found = summary["VanishingGradient"]
    assert found["RuleEvaluationStatus"] == "IssuesFound"
    assert "fired at step 0" in found["StatusDetails"]
    assert abs(found["LastModifiedTime"].timestamp() - before) < 60
    assert summary["ExplodingTensor"]["RuleEvaluationStatus"] == "NoIssuesFound"
    assert summary["ExplodingTensor"]["StatusDetails"] == ""
    # SageMaker has no word for it.
    assert summary["ExplodingTensor_2"]["RuleEvaluationStatus"] == "NoIssuesFound"
    assert summary["ExplodingTensor_2"]["StatusDetails"].startswith("WARNING")
    with pytest.raises(tt.exceptions.RunNotFoundError):
        rules.rule_job_summary(runs.root / "nowhere")


def test_importing_loads_no_network_library() -> None:
    code = "import tensortap; print('libcurl' in open('/proc/self/maps').read())"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "False"


# docs/actions.md


def blocks_of_the_documentation(language: str) -> list[str]:
    page = Path(__file__).parents[2] / "docs" / "actions.md"
    mark = f"<!-- a test runs this -->\n```{language}\n"
    return [part.split("\n```")[0] for part in page.read_text().split(mark)[1:]]


def test_examples_of_the_documentation(
    runs: RunMaker, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code,) = blocks_of_the_documentation("python")
    names: dict[str, Any] = {}
    exec(code, names)
    assert [_core.check_action(action)[0] for action in names["rule"].actions] == ["capture_more"]
    runs.make(2, lambda _: {"x": np.full(2, np.nan)}, name="runs/digits")
    monkeypatch.chdir(runs.root)
    monkeypatch.setenv("PATH", f"{Path(program).parent}:{os.environ['PATH']}")
    (command,) = blocks_of_the_documentation("bash")
    assert subprocess.run(command, shell=True, check=False, capture_output=True).returncode == 3
    assert (runs.root / "told").exists()
