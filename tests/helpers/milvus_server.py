"""The real Milvus server, from the package ``milvus``: for tests, benchmarks and soak runs.

The launcher of that package probes its ports by binding them and so refuses a restart; this one
writes the same configuration and starts the same program. The server listens on every interface
whatever is configured, and its etcd always takes ports 2379 and 2380, so there is one at a time on
a machine: a lock file in the temporary directory sees to that, and the server itself holds it.
"""

from __future__ import annotations

import contextlib
import fcntl
import lzma
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LOCK = "oasis-milvus.lock"
ETCD_PORTS = (2379, 2380)
_LOCK_WAIT = 300.0
_START = 90.0

# a strongly consistent search waits for the next tick
_QUICK = {"proxy.timeTickInterval": 50}


class NoServer(Exception):
    """The server cannot be started here; the message says why."""


class MilvusServer:
    """One server process over one folder of data.

    Parameters
    ----------
    folder : Path
        Where configuration, logs and data go; a restart finds its data there.
    lock : int
        The descriptor of the lock file, which the server inherits.
    quick : bool
        Whether it looks for work more often than by default.
    settings : dict, optional
        More of the server's configuration, by the names that the package gives it.

    Attributes
    ----------
    address : str
        "127.0.0.1:<port>", the same after a restart.
    """

    def __init__(
        self, folder: Path, lock: int, *, quick: bool, settings: Mapping[str, Any] | None = None
    ) -> None:
        from milvus import MilvusServerConfig

        self.folder = folder
        self._lock = lock
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = unpacked()
        config = MilvusServerConfig(data_dir=str(folder))
        config.resolve_storage()
        names = [name for name in config.configurable_items if name.endswith("_port")]
        ports = free_ports(len(names) + 1)
        for name, port in zip(names, ports, strict=False):
            config.set(name, ETCD_PORTS[0] if name == "etcd_port" else port)
        # a session of a killed server must run out before the next one may begin
        config.set("common.session.ttl", 5)
        if quick:
            for name, milliseconds in _QUICK.items():
                config.set(name, milliseconds)
        for name, value in (settings or {}).items():
            config.set(name, value)
        config.write_config()
        self._health = f"http://127.0.0.1:{ports[-1]}/healthz"
        self._environment = os.environ | {
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": str(ports[-1]),
            "MILVUS_RUN_DIR": str(folder / "run"),
            "LD_LIBRARY_PATH": str(self._programs),
        }
        self.address = f"127.0.0.1:{config.get('proxy_port')}"

    @property
    def uri(self) -> str:
        return f"milvus://{self.address}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start, and wait until the server says that it is healthy."""
        with (self.folder / "logs" / "output.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "milvus", "run", "standalone"],
                cwd=self.folder,
                env=self._environment,
                stdout=log,
                stderr=log,
                # the lock outlives us if the server does
                pass_fds=(self._lock,),
            )
        limit = time.monotonic() + _START
        while not self._healthy():
            if self._process.poll() is not None or time.monotonic() > limit:
                self.kill()
                raise NoServer(f"Milvus did not become healthy within {_START:g} s: {self._tail()}")
            time.sleep(0.1)

    def kill(self) -> None:
        """End the server by SIGKILL, as a power cut would; what it acknowledged stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        self.kill()
        self.start()

    @contextlib.contextmanager
    def replaced(self, settings: Mapping[str, Any]) -> Iterator[MilvusServer]:
        """Run another server over an empty folder in place of this one, which then begins anew.

        Its data are dropped: a start over an empty folder need not wait for sessions to run out.
        """
        self.kill()
        try:
            with tempfile.TemporaryDirectory(prefix="oasis-milvus-") as folder:
                other = MilvusServer(Path(folder), self._lock, quick=True, settings=settings)
                try:
                    other.start()
                    yield other
                finally:
                    other.kill()
        finally:
            for each in (self.folder / "data").iterdir():
                shutil.rmtree(each)
            self.start()

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(self._health, timeout=5) as answer:
                return b"OK" in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def _tail(self) -> str:
        lines = (self.folder / "logs" / "output.log").read_text(errors="replace").splitlines()
        return " | ".join(lines[-3:])


@contextlib.contextmanager
def running(
    *, quick: bool = False, settings: Mapping[str, Any] | None = None
) -> Iterator[MilvusServer]:
    """Start a server over an empty folder, and kill it in the end.

    Parameters
    ----------
    quick : bool
        Have it look for work more often than by default, for tests of many small requests.
    settings : dict, optional
        More of the server's configuration, as ``{"authorization_enabled": True}``.

    Raises
    ------
    NoServer
        The package is not installed, the ports are taken, or it does not come up.
    """
    try:
        import milvus  # noqa: F401
    except ImportError:
        raise NoServer("the Milvus server is not installed: pip install -e '.[dev]'") from None
    with contextlib.ExitStack() as stack:
        lock = stack.enter_context(_locked())
        for port in ETCD_PORTS:
            if _taken(port):
                raise NoServer(f"port {port}, which Milvus needs, is taken by another process")
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="oasis-milvus-"))
        server = MilvusServer(Path(folder), lock, quick=quick, settings=settings)
        stack.callback(server.kill)
        server.start()
        yield server


def unpacked() -> Path:
    """Return the folder with the server's programs, unpacked into the cache the first time."""
    import milvus

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "oasis" / f"milvus-{milvus.__version__}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(dir=target.parent, prefix=".milvus-"))
    for packed in sorted((Path(milvus.__file__).parent / "data" / "bin").glob("*.lzma")):
        program = fresh / packed.stem
        with lzma.open(packed) as source, program.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
        program.chmod(0o755)
    fresh.chmod(0o755)
    fresh.rename(target)
    return target


def free_ports(n: int) -> list[int]:
    """Return ports that nobody listens on now, below those that the system gives to clients."""
    free: list[int] = []
    for port in random.SystemRandom().sample(range(20_000, 32_000), 12_000):
        if not _taken(port):
            free.append(port)
        if len(free) == n:
            return free
    raise NoServer("no free ports between 20000 and 32000")


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def _locked() -> Iterator[int]:
    """Hold the lock of this machine's one server; yields its descriptor."""
    path = Path(tempfile.gettempdir()) / LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        limit = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > limit:
                    raise NoServer(f"another Milvus server holds {path}") from None
                time.sleep(0.5)
        yield descriptor
    finally:
        os.close(descriptor)
