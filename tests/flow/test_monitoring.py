"""`metrics_file` and /metrics: who can read them, how they end, and a real Prometheus."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import parser

from tests import debian_programs
from tests.flow import command_line, web_server
from tests.flow.conftest import FakeSlurm

CHECKOUT = command_line.CHECKOUT
RULES = CHECKOUT / "docs/monitoring/alerts.yml"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@pytest.fixture
def path(cli: command_line.CommandLine) -> Path:
    """The file that the user's configuration names."""
    folder = cli.home / ".config" / "orchestrator"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('metrics_file = "~/metrics/o.prom"\n')
    (cli.home / "metrics").mkdir()
    return cli.home / "metrics" / "o.prom"


def samples(text: str) -> dict[str, float]:
    """Return the values of samples without labels, and of others by name and first label."""
    found = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            label = f" {next(iter(sample.labels.values()))}" if sample.labels else ""
            found[sample.name.removeprefix("orchestrator_") + label] = sample.value
    return found


def submit(cli: command_line.CommandLine) -> None:
    assert cli("submit", "--name", "demo", "--time-limit", "10", "--command", "true").code == 0


def test_each_pass_writes_the_file(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, path: Path
) -> None:
    submit(cli)
    fake_slurm.set_state(1, "RUNNING")
    begun = time.time()
    assert cli("tick").code == 0
    found = samples(path.read_text())
    assert found["jobs RUNNING"] == 1
    assert found["controller_healthy"] == 1
    assert found["controller_step_failed refresh"] == 0
    assert begun <= found["controller_last_pass_timestamp_seconds"] <= time.time()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(path.parent) == [path.name]
    # It has no time stamps of samples: node_exporter refuses them.
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z_]+(\{.*\})? \S+", line) for line in lines)
    fake_slurm.set_state(1, "FAILED", exit="1:0")

    def has_ended() -> bool:
        # Slurm is asked once in a second.
        assert cli("tick", ORCHESTRATOR_METRICS_FILE_MODE="0644").code == 0
        return samples(path.read_text())["attempts_ended_total FAILED"] == 1

    cli.wait_until(has_ended, "the end of the job")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_without_the_setting_no_file_is_written(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    submit(cli)
    assert cli("tick").code == 0
    assert list(cli.home.rglob("*.prom")) == []


def test_a_file_that_cannot_be_written_is_a_warning(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, path: Path
) -> None:
    path.parent.rmdir()
    submit(cli)
    done = cli("tick", "--quiet")
    assert (done.code, done.err) == (0, f"{path} cannot be written: No such file or directory\n")
    bad = cli("tick", ORCHESTRATOR_METRICS_FILE_MODE="0666")
    assert (bad.code, bad.err) == (
        3,
        "Error: ORCHESTRATOR_METRICS_FILE_MODE: metrics_file_mode: must be one of "
        '"0600", "0640", "0644" (got "0666")\n1 problem; nothing was done.\n',
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_controller_removes_the_file(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, path: Path, number: signal.Signals
) -> None:
    submit(cli)
    process = cli.start("serve", "--interval", "1")
    try:
        cli.wait_until(path.exists, "the file")
        first = path.stat().st_ino
        cli.wait_until(lambda: path.stat().st_ino != first, "the next pass")
        process.send_signal(number)
        process.wait(60)
    finally:
        process.kill()
        process.communicate()
    # If it was killed, the time of the last pass shows how old the values are.
    assert path.exists() == (number is signal.SIGKILL)


def test_page_on_the_socket(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, tmp_path: Path
) -> None:
    submit(cli)
    with web_server.started(cli, "--socket", tmp_path / "web.sock") as server:
        answer = server.get("/metrics")
        assert (answer.status, answer.headers["Content-Type"]) == (200, CONTENT_TYPE)
        assert answer.headers["Cache-Control"] == "no-store"
        found = samples(answer.text)
        assert found["jobs PENDING"] == 1
        # Without a controller.
        assert found["controller_healthy"] == 0
        assert "controller_last_pass_timestamp_seconds" not in found
        foreign = server.get("/metrics", Host="evil.example")
        assert foreign.status == 421


def test_token_of_a_scraper(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    with web_server.started(cli, "--port", "0", "--metrics-token", file) as server:
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token = file.read_text().strip()
        assert len(token) > 40
        bearer = f"Bearer {token}"
        assert server.get("/metrics").status == 401
        assert server.get("/metrics", Authorization="Bearer x").status == 401
        assert server.get("/metrics", Authorization=token).status == 401
        assert server.get("/metrics", Authorization=bearer).status == 200
        # For this page only, and the checks of foreign pages remain.
        assert server.get("/", Authorization=bearer).status == 401
        assert server.get("/metrics/../", Authorization=bearer).status == 401
        assert server.get("/metrics", Authorization=bearer, Host="evil.example").status == 421
        site = {"Authorization": bearer, "Sec-Fetch-Site": "cross-site"}
        assert server.request("GET", "/metrics", site).status == 403
        # A browser with the cookie sees it too.
        cookie = server.get(f"/?token={server.token}").headers["Set-Cookie"].partition(";")[0]
        assert server.get("/metrics", Cookie=cookie).status == 200
    # The same file for the next server.
    with web_server.started(cli, "--port", "0", "--metrics-token", file) as server:
        assert server.get("/metrics", Authorization=bearer).status == 200


@pytest.mark.parametrize(
    ("mode", "text", "message"),
    [
        (0o644, "x" * 40, "other users can read the token: chmod 600 {path}"),
        (
            0o600,
            "short\n",
            "{path} has no token of at least 16 characters; remove it, and it is created again",
        ),
    ],
)
def test_a_bad_token_file_is_refused(
    cli: command_line.CommandLine, tmp_path: Path, mode: int, text: str, message: str
) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    file.chmod(mode)
    done = cli("web", "--port", "0", "--metrics-token", file)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"Error: {message.format(path=file)}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to another user")
def test_a_token_of_another_user_is_refused(cli: command_line.CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("x" * 40)
    file.chmod(0o600)
    os.chown(file, 4712, 4712)
    done = cli("web", "--port", "0", "--metrics-token", file)
    assert (done.code, done.out, done.err) == (
        1,
        "",
        f"Error: {file} belongs to another user, who knows the token: name a new file\n",
    )


def test_the_token_needs_a_port(cli: command_line.CommandLine, tmp_path: Path) -> None:
    done = cli("web", "--metrics-token", tmp_path / "token")
    assert done.code == 2
    assert done.err.endswith("\nError: --metrics-token needs --port: the socket needs no token\n")


def test_the_dashboard_and_the_rules_use_existing_metrics(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm, path: Path
) -> None:
    page = (CHECKOUT / "docs/howto/monitoring.md").read_text()
    documented = set(re.findall(r"`(orchestrator_\w+)`", page))
    documented |= {"orchestrator_queue_wait_seconds_sum", "orchestrator_queue_wait_seconds_count"}
    for name in ("grafana.json", "alerts.yml"):
        text = (CHECKOUT / "docs/monitoring" / name).read_text()
        assert set(re.findall(r"\borchestrator_\w+", text)) <= documented
    dashboard = json.loads((CHECKOUT / "docs/monitoring/grafana.json").read_text())
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    # And the page names all that is exported.
    submit(cli)
    fake_slurm.set_state(1, "RUNNING")
    assert cli("tick").code == 0
    exported = set(re.findall(r"^# TYPE (\w+)", path.read_text(), flags=re.M))
    assert len(exported) >= 20
    assert exported <= documented


@pytest.fixture
def promtool(prometheus_programs: debian_programs.Programs, tmp_path: Path) -> list[str]:
    """The words that run promtool with the files in tmp_path."""
    return prometheus_programs.command("promtool", tmp_path, user_id=os.geteuid())


def test_promtool_accepts_the_metrics_and_the_rules(
    cli: command_line.CommandLine,
    fake_slurm: FakeSlurm,
    path: Path,
    promtool: list[str],
    prometheus_programs: debian_programs.Programs,
    tmp_path: Path,
) -> None:
    submit(cli)
    fake_slurm.set_state(1, "RUNNING")
    assert cli("tick").code == 0
    checked = subprocess.run(
        [*promtool, "check", "metrics"], input=path.read_bytes(), capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
    shutil.copy(RULES, tmp_path)
    seen = prometheus_programs.sees(tmp_path)
    assert cli.run([*promtool, "check", "rules", str(seen / RULES.name)]).code == 0


RULE_TESTS = """
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: orchestrator_collected_timestamp_seconds{{instance="a"}}
        values: 0+60x60
      - series: orchestrator_controller_last_pass_timestamp_seconds{{instance="a"}}
        values: 0+60x60
      - series: {progress}{{instance="a",job_id="7",name="wrn"}}
        values: 0x60
      # The values of a file that nobody writes any more.
      - series: orchestrator_collected_timestamp_seconds{{instance="b"}}
        values: 0x60
      - series: orchestrator_controller_last_pass_timestamp_seconds{{instance="b"}}
        values: 0x60
      - series: {progress}{{instance="b",job_id="8",name="x"}}
        values: 0x60
      - series: orchestrator_attempts_ended_total{{instance="a",state="FAILED"}}
        values: 3x50 4x10
      - series: orchestrator_attempts_ended_total{{instance="a",state="COMPLETED"}}
        values: 3x50 9x10
    alert_rule_test:
      - {{alertname: OrchestratorJobStalled, eval_time: 34m, exp_alerts: []}}
      - alertname: OrchestratorJobStalled
        eval_time: 40m
        exp_alerts:
          - exp_labels: {{severity: warning, instance: a, job_id: "7", name: wrn}}
            exp_annotations:
              summary: Job 7 (wrn) has written nothing for 40m 0s
              description: "See its log: orchestrator logs 7"
      - alertname: OrchestratorControllerNotRunning
        eval_time: 20m
        exp_alerts:
          - exp_labels: {{severity: critical, instance: b}}
            exp_annotations:
              summary: No controller pass in the last 10 minutes
              description: "Retries, schedules and graphs do not go on.
                See: orchestrator serve --status"
      - {{alertname: OrchestratorJobFailed, eval_time: 49m, exp_alerts: []}}
      - alertname: OrchestratorJobFailed
        eval_time: 52m
        exp_alerts:
          - exp_labels: {{severity: warning, instance: a, state: FAILED}}
            exp_annotations:
              summary: "Starts of jobs that ended FAILED in the last 15 minutes: 1"
              description: "List them: orchestrator status -t FAILED; why: orchestrator explain JOB"
"""


def test_when_the_rules_fire(
    cli: command_line.CommandLine,
    promtool: list[str],
    prometheus_programs: debian_programs.Programs,
    tmp_path: Path,
) -> None:
    progress = "orchestrator_job_last_progress_timestamp_seconds"
    shutil.copy(RULES, tmp_path)
    (tmp_path / "tests.yml").write_text(RULE_TESTS.format(progress=progress))
    seen = prometheus_programs.sees(tmp_path)
    done = cli.run([*promtool, "test", "rules", str(seen / "tests.yml")])
    assert done.code == 0, done.out + done.err


@contextlib.contextmanager
def prometheus(programs: debian_programs.Programs, folder: Path, port: int) -> Iterator[str]:
    """Run Prometheus with the token and the rules in a folder; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own_port = free.getsockname()[1]
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        "rule_files: [alerts.yml]\n"
        "scrape_configs:\n"
        "  - job_name: orchestrator\n"
        "    authorization: {credentials_file: token}\n"
        f"    static_configs: [{{targets: ['localhost:{port}']}}]\n"
    )
    seen = programs.sees(folder)
    process = subprocess.Popen(
        [
            *programs.command("prometheus", folder, user_id=os.geteuid(), has_network=True),
            f"--config.file={seen / 'prometheus.yml'}",
            f"--storage.tsdb.path={seen / 'data'}",
            f"--web.listen-address=127.0.0.1:{own_port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{own_port}"
    finally:
        process.terminate()
        process.wait(60)


def test_prometheus_scrapes_the_page_and_the_rule_of_a_stalled_job_fires(
    cli: command_line.CommandLine,
    fake_slurm: FakeSlurm,
    prometheus_programs: debian_programs.Programs,
    tmp_path: Path,
) -> None:
    submit(cli)
    # It started two hours ago, and has written nothing since.
    fake_slurm.set_state(1, "RUNNING", start=time.time() - 7200)
    assert cli("status", "--refresh").code == 0
    (folder,) = cli.run_folders()
    (folder / "1.out").write_text("step 1\n")
    os.utime(folder / "1.out", (time.time() - 7000,) * 2)
    # The shipped rules, which do not wait before they fire.
    rules = re.sub(r"^ +for: \w+\n", "", RULES.read_text(), flags=re.M)
    (tmp_path / RULES.name).write_text(rules)
    token = tmp_path / "token"
    with (
        web_server.started(cli, "--port", "0", "--metrics-token", token) as server,
        prometheus(prometheus_programs, tmp_path, server.port) as address,
    ):

        def alerts() -> dict[str, dict[str, str]]:
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"{address}/api/v1/alerts", timeout=10) as answer:
                    found = json.load(answer)["data"]["alerts"]
                return {
                    alert["labels"]["alertname"]: {**alert["labels"], **alert["annotations"]}
                    for alert in found
                    if alert["state"] == "firing"
                }
            return {}

        cli.wait_until(lambda: "OrchestratorJobStalled" in alerts(), "the alert")
        stalled = alerts()["OrchestratorJobStalled"]
        assert (stalled["job"], stalled["job_id"], stalled["name"]) == ("orchestrator", "1", "demo")
        expected = r"Job 1 \(demo\) has written nothing for 1h 5\dm \d+s"
        assert re.fullmatch(expected, stalled["summary"])
        query = urllib.parse.quote('up{job="orchestrator"}')
        with urllib.request.urlopen(f"{address}/api/v1/query?query={query}", timeout=10) as answer:
            assert json.load(answer)["data"]["result"][0]["value"][1] == "1"
        # No controller runs.
        cli.wait_until(lambda: "OrchestratorControllerNotRunning" in alerts(), "the other alert")
        (folder / "1.out").write_text("step 2\n")
        cli.wait_until(lambda: "OrchestratorJobStalled" not in alerts(), "its end")
