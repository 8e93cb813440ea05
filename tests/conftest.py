"""Fixtures and settings of all tests: no network, one thread, the sample data."""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from filelock import FileLock
from hypothesis import settings

from tests.toy_run import toy_settings, write_toy

# Set before any test imports torch or transformers. One thread, since `make test` runs a process per core, and since
# equal bits are promised for equal numbers of threads only. No AMX, by which some CPUs would compute in bfloat16.
os.environ.update(
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_HUB_DISABLE_TELEMETRY="1",
    OMP_NUM_THREADS="1",
    ONEDNN_MAX_CPU_ISA="AVX512_CORE",
    OPENBLAS_NUM_THREADS="1",
    MKL_NUM_THREADS="1",
    TOKENIZERS_PARALLELISM="false",
)

# `make test` always draws the same examples. `make fuzz` draws many new examples; slow tests set a lower `max_examples`.
settings.register_profile("test", derandomize=True, max_examples=30, deadline=None)
settings.register_profile("fuzz", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "test"))

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def loud() -> None:
    """Undo `set_quiet` of an earlier test."""
    from endtask.progress import set_quiet

    set_quiet(False)


@pytest.fixture(autouse=True)
def same_kernels() -> Iterator[None]:
    """Enable oneDNN again: on a CPU without bfloat16, torch's first product in it disables oneDNN for the process."""
    yield
    torch = sys.modules.get("torch")
    if hasattr(torch, "_C"):  # a test may replace the module
        torch._C._set_mkldnn_enabled(True)


@pytest.fixture(autouse=True)
def no_plugins_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the plug-ins that a test loads into this process."""
    from endtask import registry

    monkeypatch.setenv(registry.PLUGINS_VARIABLE, "")
    yield
    plugins = [name for name in sys.modules if name.startswith(registry.PLUGIN_MODULE)]
    for parts in registry.REGISTRIES:
        parts.forget(plugins)
    for name in plugins:
        del sys.modules[name]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of sample tasks and corpora next to the checkout."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the sample data (../shared/data next to the checkout) is not on this machine")
    return folder


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a toy task and corpus; read only."""
    return _made_once(tmp_path_factory, "toy", write_toy)


@pytest.fixture(scope="session")
def toy_pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a toy task of text pairs and a corpus; read only."""
    return _made_once(tmp_path_factory, "toy-pairs", lambda folder: write_toy(folder, pairs=True))


@pytest.fixture(scope="session")
def finished_run(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run over the toy data; read only."""
    import endtask

    return _made_once(tmp_path_factory, "finished", lambda folder: endtask.run(toy_settings(toy, folder)))


@pytest.fixture(scope="session")
def finished_pair_run(toy_pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run over text pairs, without a corpus; read only."""
    import endtask

    def make(folder: Path) -> None:
        endtask.run(toy_settings(toy_pairs, folder, corpus={"sources": []}))

    return _made_once(tmp_path_factory, "finished-pairs", make)


def _made_once(tmp_path_factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Make a folder once for all processes of pytest-xdist, whose folders have the same parent."""
    root = tmp_path_factory.getbasetemp()
    shared = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / f"shared-{name}"
    shared.mkdir(exist_ok=True)
    with FileLock(shared / "lock"):
        if not (shared / "done").exists():
            make(shared / "run")
            (shared / "done").touch()
    return shared / "run"


@pytest.fixture
def own_run(finished_run: Path, tmp_path: Path) -> Path:
    """A copy of the finished run that a test may change."""
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The address of a bucket of an S3 server of this computer."""
    s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed")
    moto = pytest.importorskip("moto.server", reason="moto is not installed")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    patch = pytest.MonkeyPatch()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        patch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()  # of other tests, without this key
    bucket = f"pile-{uuid4().hex}"  # all servers of a process have the same buckets
    s3fs.S3FileSystem().mkdir(bucket)
    yield f"s3://{bucket}"
    s3fs.S3FileSystem.clear_instance_cache()  # the next server has another port
    patch.undo()
    server.stop()


@pytest.fixture
def no_s3fs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let s3fs be missing, also where another test has imported it."""
    registry = pytest.importorskip("fsspec.registry")
    monkeypatch.delitem(registry._registry, "s3", raising=False)
    monkeypatch.setitem(sys.modules, "s3fs", None)


class Answer(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """The lines on standard error without warnings, which are printed even with `-q`."""
        return [line for line in self.err.splitlines() if not line.startswith("warning: ")]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run the command line with some arguments, in this process."""
    from endtask.cli.main import main

    def call(*arguments: object) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Answer(int(ended.value.code or 0), out, err)

    return call


# The search for doctests would import the plug-ins and register them for all other tests.
collect_ignore_glob = ["extending/plugin_*.py"]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """Fail a test that connects to another machine or looks up its name, also where the code swallows the error."""
    attempts: list[object] = []

    def guarded(real: Callable[..., object], host_of: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: Any, **options: Any) -> object:
            host = host_of(*arguments)
            if host not in (None, "localhost", "127.0.0.1", "::1", b"localhost", ""):
                attempts.append(host)
                raise OSError(f"no network in this test: {host!r}")
            return real(*arguments, **options)

        return call

    def peer(connection: socket.socket, address: Any) -> object:
        return address[0] if connection.family in (socket.AF_INET, socket.AF_INET6) else None

    for method in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, method, guarded(getattr(socket.socket, method), peer))
    monkeypatch.setattr(socket, "getaddrinfo", guarded(socket.getaddrinfo, lambda host, *_: host))
    yield attempts
    assert attempts == []
