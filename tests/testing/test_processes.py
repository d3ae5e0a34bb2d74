"""Processes under test are started, found ready, broken and reaped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tailrace.testing.ports import HIGHEST, LOWEST, free_port
from tailrace.testing.processes import LocalProcess, ProcessFailed

PATIENT = "import signal; print('ready', flush=True); signal.pause()"
POLITE = "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); print('ready', flush=True); signal.pause()"
DEAF = "import signal; signal.signal(15, signal.SIG_IGN); print('ready', flush=True)\nwhile True: signal.pause()"
SERVER = """
import http.server, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == '/readyz' else 404); self.end_headers()
http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Answer).serve_forever()
"""


def python(program: str, folder: Path, *arguments: str, ready_url: str | None = None) -> LocalProcess:
    return LocalProcess("it", [sys.executable, "-c", program, *arguments], folder / "it.log", ready_url=ready_url)


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[LocalProcess]:
    with python(PATIENT, tmp_path) as process:
        process.wait_ready()
        yield process


def test_a_killed_process_is_reaped_and_starts_again(patient: LocalProcess) -> None:
    first = patient.pid
    patient.kill()
    assert patient.exit_code == -9
    assert not psutil.pid_exists(first)
    patient.start()
    patient.wait_ready()
    assert patient.pid != first
    assert patient.starts == 2


def test_a_paused_process_is_stopped_until_it_is_resumed(patient: LocalProcess) -> None:
    patient.pause()
    assert patient.paused
    assert psutil.Process(patient.pid).status() == psutil.STATUS_STOPPED
    patient.resume()
    assert not patient.paused
    assert psutil.Process(patient.pid).status() != psutil.STATUS_STOPPED


def test_a_paused_process_can_be_killed(patient: LocalProcess) -> None:
    patient.pause()
    patient.kill()
    assert not patient.running


def test_terminate_gives_the_exit_code(tmp_path: Path) -> None:
    with python(POLITE, tmp_path) as process:
        process.wait_ready()
        assert process.terminate() == 7


def test_a_process_that_ignores_sigterm_is_killed_and_named(tmp_path: Path) -> None:
    with python(DEAF, tmp_path) as process:
        process.wait_ready()
        with pytest.raises(ProcessFailed, match=r"it: had not ended after 0\.1 s and was killed"):
            process.terminate(timeout_s=0.1)
        assert not process.running


def test_readyz_is_waited_for(tmp_path: Path) -> None:
    port = free_port()
    with python(SERVER, tmp_path, str(port), ready_url=f"http://127.0.0.1:{port}/readyz") as process:
        process.wait_ready()
        assert process.running


def test_a_process_that_ends_before_it_is_ready_shows_its_log(tmp_path: Path) -> None:
    with (
        python("raise SystemExit('no such folder')", tmp_path) as process,
        pytest.raises(ProcessFailed, match=r"code 1 before it was ready(.|\n)*no such folder"),
    ):
        process.wait_ready()


def test_a_process_that_never_gets_ready_is_named(tmp_path: Path) -> None:
    with (
        python("import signal; signal.pause()", tmp_path) as process,
        pytest.raises(ProcessFailed, match=r"not ready after 0\.1 s"),
    ):
        process.wait_ready(0.1)


def test_free_ports_lie_below_the_ephemeral_range_and_differ() -> None:
    ports = [free_port() for _ in range(50)]
    assert len(set(ports)) == 50
    assert all(LOWEST <= port < HIGHEST for port in ports)
    assert int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]) >= HIGHEST
