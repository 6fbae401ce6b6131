"""Exit statuses of commands for the suite as a whole, and for what is shown without one."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from tests.cli.running import ENMASSE, Up, free_offset
from tests.cli.statuses.cases import case, configuration, of, running
from tests.kit.waiting import DEADLINE


@case("init", 0)
def new(folder: Path) -> int:
    return of("init", folder / "new")


@case("init", 1)
def there(folder: Path) -> int:
    configuration(folder)
    return of("init", folder / "config")


@case("up", 0)
def told_to_stop(folder: Path) -> int:
    return up_told(folder, signal.SIGTERM)


@case("up", 0)
def ctrl_c(folder: Path) -> int:
    return up_told(folder, signal.SIGINT)


def up_told(folder: Path, number: signal.Signals) -> int:
    with Up(configuration(folder), folder / "data", fake=False) as up:
        up.until_ready()
        return up.end(number)


@case("up", 1)
def broken_inside(folder: Path) -> int:
    code = (
        "from enmasse.supervisor.suite import Supervisor; Supervisor._look_at_desired = None\n"
        "from enmasse.cli import main; main()"
    )
    options = ("--config", configuration(folder), "--data", folder / "data", "--port-offset", free_offset())
    return subprocess.run([sys.executable, "-c", code, "up", *map(str, options)], timeout=DEADLINE).returncode


@case("up", 2)
def could_not_start(folder: Path) -> int:
    return of("up", "--config", folder / "none", "--data", folder / "data", "--port-offset", free_offset())


@case("status", 0)
def ready(folder: Path) -> int:
    with running(folder) as up:
        return of("status", "--port-offset", up.offset)


@case("status", 1)
def not_ready(folder: Path) -> int:
    with Up(configuration(folder), folder / "data", fake=True) as up:  # its status feed says nothing
        return of("status", "--wait", "5", "--port-offset", up.offset)


@case("status", 4)
def status_of_nothing(folder: Path) -> int:
    return of("status", "--port-offset", free_offset())


@case("status", 4)
def nothing_that_is_waited_for(folder: Path) -> int:
    return of("status", "--wait", "0.2", "--port-offset", free_offset())


@case("scale", 0)
def scaled(folder: Path) -> int:
    with running(folder) as up:
        return of("scale", "router=1", "--port-offset", up.offset)


@case("scale", 1)
def not_scaled(folder: Path) -> int:
    with running(folder) as up:
        return of("scale", "router=9", "--port-offset", up.offset)


@case("restart", 0)
def restarted(folder: Path) -> int:
    with running(folder) as up:
        return of("restart", "ragent", "--port-offset", up.offset)


@case("restart", 1)
def not_restarted(folder: Path) -> int:
    with running(folder) as up:
        return of("restart", "nothing", "--port-offset", up.offset)


@case("restart", 4)
def restart_of_nothing(folder: Path) -> int:
    return of("restart", "ragent", "--port-offset", free_offset())


@case("scale", 4)
def scale_of_nothing(folder: Path) -> int:
    return of("scale", "router=1", "--port-offset", free_offset())


@case("down", 0)
def ended(folder: Path) -> int:
    with running(folder) as up:
        return of("down", "--port-offset", up.offset)


@case("down", 3)
def not_waited_for(folder: Path) -> int:
    with running(folder) as up:
        return of("down", "--timeout", 0, "--port-offset", up.offset)


@case("down", 4)
def end_of_nothing(folder: Path) -> int:
    return of("down", "--port-offset", free_offset())


def reloaded(folder: Path, again: str) -> int:
    with running(folder) as up:
        (up.data / "again.json").write_text(again)
        return of("reload", "--port-offset", up.offset)


case("reload", 0)(lambda folder: reloaded(folder, "{}"))
case("reload", 1)(lambda folder: reloaded(folder, "{"))
case("reload", 3)(lambda folder: reloaded(folder, '{"router": "another"}'))
case("reload", 4)(lambda folder: of("reload", "--port-offset", free_offset()))


@case("logs", 0)
def logs_shown(folder: Path) -> int:
    configuration(folder)
    return of("logs", "--data", folder / "stored")


@case("logs", 1)
def no_such_log(folder: Path) -> int:
    configuration(folder)
    return of("logs", "none", "--data", folder / "stored")


@case("backup", 0)
def backed_up(folder: Path) -> int:
    config = configuration(folder)
    return of("backup", folder / "made", "--config", config, "--data", folder / "stored")


@case("backup", 1)
def nothing_to_back_up(folder: Path) -> int:
    return of("backup", folder / "made", "--config", folder, "--data", folder)


@case("restore", 0)
def restored(folder: Path) -> int:
    assert backed_up(folder) == 0
    return of("restore", folder / "made", "--config", folder / "c", "--data", folder / "d")


@case("restore", 1)
def no_backup(folder: Path) -> int:
    return of("restore", folder, "--config", folder / "c", "--data", folder / "d")


@case("version", 0)
def version_shown(folder: Path) -> int:
    return of("version", "--port-offset", free_offset())


@case("help", 0)
def help_shown(folder: Path) -> int:
    return of("help", "send")


@case("status", 130)
def waiting_for_a_suite(folder: Path) -> int:
    """Ctrl-C in `status --wait`: between two looks, too."""
    looked = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as other:
        offset = other.getsockname()[1] - 8079

        def look() -> None:
            connection, _ = other.accept()
            connection.close()
            looked.set()

        thread = threading.Thread(target=look)
        thread.start()
        command = [ENMASSE, "status", "--json", "--wait", "60", "--port-offset", str(offset)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            assert looked.wait(DEADLINE)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=DEADLINE)
        thread.join()
    assert "Traceback" not in err
    return process.returncode
