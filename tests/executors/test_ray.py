"""A Ray cluster of two machines writes the bytes of one machine, whatever dies meanwhile."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from endtask.config import RetrieveSettings
from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.executors.base import Executor, Job, Report
from endtask.executors.processes import LocalExecutor
from endtask.progress import set_quiet
from endtask.records import Example
from endtask.retrieval import matched_queries
from endtask.retrieval.bm25 import ranking_pass, rankings, shards, statistics_pass
from endtask.retrieval.retrieve import RetrievePaths, retrieve
from endtask.task import Task
from tests.retrieval.corpora import write_rows, zipf_texts

pytest.importorskip("ray", reason="Ray is not installed: pip install 'endtask[cluster]'")
pytestmark = pytest.mark.cluster

PASSES = {
    "statistics": statistics_pass.__name__,
    "ranking": ranking_pass.__name__,
    "merging": rankings.__name__,
    "fetching": matched_queries.__name__,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two machines of one core each, as processes of this one."""
    import ray
    from ray.cluster_utils import Cluster

    repository = str(Path(__file__).resolve().parents[2])
    patch = pytest.MonkeyPatch()
    patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    patch.setenv("RAY_worker_niceness", "0")  # else other tests starve the workers
    patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [repository, os.environ.get("PYTHONPATH")])))

    memory = {"num_cpus": 1, "object_store_memory": 80_000_000}
    running = Cluster(initialize_head=True, head_node_args={**memory, "include_dashboard": False})
    running.add_node(**memory)
    yield running
    ray.shutdown()
    running.shutdown()
    patch.undo()


@pytest.fixture(scope="module")
def ray_executor(cluster: Any) -> Executor:
    from endtask.executors.ray_cluster import RayExecutor

    return RayExecutor(cluster.address)


@pytest.fixture(autouse=True)
def many_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard for each file, and no work that is too small for another process."""
    set_quiet(True)
    monkeypatch.setattr(shards, "_LARGE", 1)
    monkeypatch.setattr(rankings, "_MERGED_AT_ONCE", 2)
    for module in (statistics_pass, matched_queries):
        monkeypatch.setattr(module, "WORTH_A_PROCESS", 0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Task, str]:
    """A task, and a corpus of six files with duplicates across them."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = zipf_texts(240, seed=1)
    for number in range(6):
        some = texts[number * 40 : number * 40 + 45]
        write_rows(folder / f"c-{number}.jsonl", [{"id": f"p{row}", "text": text} for row, text in enumerate(some)])
    queries = zipf_texts(30, longest=8, seed=2)
    splits = {name: [Example(name, f"{name} text nowhere else", "x")] for name in ("dev", "test")}
    train = [Example(str(row), text, "xy"[row % 2]) for row, text in enumerate(queries)]
    return Task.from_examples("zipf", {"train": train, **splits}), str(folder)


def written(data: tuple[Task, str], folder: Path, executor: Executor) -> dict[str, bytes]:
    """Run retrieval; return the content of its files, and its counts."""
    task, corpus = data
    (folder / "scratch").mkdir(parents=True, exist_ok=True)
    paths = RetrievePaths(folder, folder / "scratch", executor)
    counts = retrieve(task, Corpus.read(corpus), RetrieveSettings(top_k=15), paths)
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return {**files, "counts": json.dumps(counts).encode()}


@pytest.fixture(scope="module")
def expected(data: tuple[Task, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of one machine."""
    return written(data, tmp_path_factory.mktemp("plain") / "run", LocalExecutor(1))


class Wrapped(Executor):
    """Passes jobs on, those of one pass wrapped by `kill_once`; counts them."""

    def __init__(self, executor: Executor, module: str, marker: Path, node: str | None = None) -> None:
        self.workers, self.machines = executor.workers, executor.machines
        self._executor, self._module = executor, module
        self._wrap = {"module": module, "marker": str(marker), "node": node}
        self.jobs = 0

    @property
    def cores_each(self) -> int:
        return self._executor.cores_each

    def run(self, module: str, jobs: Sequence[Job], report: Report, **needs: Any) -> None:
        if module != self._module:
            self._executor.run(module, jobs, report, **needs)
            return
        self.jobs += len(jobs)
        self._executor.run("tests.executors.kill_once", [{**self._wrap, "job": job} for job in jobs], report, **needs)


def test_two_machines_write_the_bytes_of_one(
    data: tuple[Task, str], expected: dict[str, bytes], ray_executor: Executor, tmp_path: Path
) -> None:
    assert (ray_executor.workers, ray_executor.machines, ray_executor.cores_each) == (2, 2, 1)
    assert written(data, tmp_path / "run", ray_executor) == expected


@pytest.mark.parametrize("name", PASSES)
def test_a_worker_that_is_killed_is_replaced(
    name: str, data: tuple[Task, str], expected: dict[str, bytes], ray_executor: Executor, tmp_path: Path
) -> None:
    wrapped = Wrapped(ray_executor, PASSES[name], tmp_path / "killed")
    assert written(data, tmp_path / "run", wrapped) == expected
    assert (tmp_path / "killed").exists()
    assert wrapped.jobs >= 2


class Stopping(Wrapped):
    """Raises at the third report, as a driver that ends."""

    def run(self, module: str, jobs: Sequence[Job], report: Report, **needs: Any) -> None:
        if module != self._module:
            self._executor.run(module, jobs, report, **needs)
            return

        def count(**_: Any) -> None:
            self.jobs += 1
            if self.jobs == 2:
                raise KeyboardInterrupt

        self._executor.run(module, jobs, count, **needs)


@pytest.mark.parametrize(
    "name", ["ranking", *(pytest.param(name, marks=pytest.mark.long) for name in ("statistics", "fetching"))]
)
def test_a_driver_that_ends_resumes_after_the_finished_shards(
    name: str, data: tuple[Task, str], expected: dict[str, bytes], ray_executor: Executor, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        written(data, tmp_path / "run", Stopping(ray_executor, PASSES[name], tmp_path))
    resumed = Wrapped(ray_executor, PASSES[name], tmp_path)  # the marker exists: nothing is killed
    assert written(data, tmp_path / "run", resumed) == expected
    complete = Wrapped(ray_executor, PASSES[name], tmp_path)
    written(data, tmp_path / "complete", complete)
    assert resumed.jobs <= complete.jobs - 2


def test_errors_of_jobs_come_back(data: tuple[Task, str], ray_executor: Executor, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    write_rows(bad / "a.jsonl", [{"text": "one"}])
    write_rows(bad / "b.jsonl", [{"text": "two"}, {"text": 5}])
    with pytest.raises(InputError, match=r"b\.jsonl, row 2: column 'text' is of type int") as caught:
        written((data[0], str(bad)), tmp_path / "run", ray_executor)
    assert "\n" not in str(caught.value)


def test_a_folder_that_is_not_shared_is_named(
    ray_executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray_executor.check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: None)
    monkeypatch.setattr(Path, "unlink", lambda *_, **__: None)
    with pytest.raises(InputError, match="does not see the files that this machine writes there") as caught:
        ray_executor.check_folder(tmp_path)
    assert str(tmp_path) in str(caught.value)


def killing(monkeypatch: pytest.MonkeyPatch, executor: Executor, module: str, handler: str, marker: Path) -> Wrapped:
    """Let a module of selection or packing use the cluster, whose first worker that does this dies."""
    wrapped = Wrapped(executor, handler, marker)
    monkeypatch.setattr(f"{module}.model_executor", lambda *_: wrapped)
    return wrapped


@pytest.mark.long
def test_influence_is_scored_by_actors_that_may_die(
    ray_executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.selectors.influence.small import make_candidates, run_influence, small_settings, write_table

    monkeypatch.setattr("endtask.selectors.influence.scorer._FEWEST_UNITS", 10)
    for name in ("one", "two"):
        write_table(tmp_path / name, make_candidates())
    expected = run_influence(tmp_path / "one", small_settings())
    actor, marker = "endtask.selectors.influence.scoring_actor", tmp_path / "killed"
    wrapped = killing(monkeypatch, ray_executor, "endtask.selectors.influence.runner", actor, marker)
    assert run_influence(tmp_path / "two", small_settings()) == expected
    assert marker.exists()
    assert wrapped.jobs == 4


@pytest.mark.long
def test_texts_are_encoded_by_actors_that_may_die(
    ray_executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from endtask.encoders.huggingface import save_classifier
    from endtask.io import selection_table
    from endtask.selectors.base import RunContext
    from endtask.selectors.model_vectors import ModelVectors, encode_batch, encode_on_cluster
    from endtask.tokenization.tokenizer import save_tokenizer
    from tests.selectors.influence.small import small_settings, write_table
    from tests.tiny import make_network, make_tokenizer

    monkeypatch.setattr(selection_table, "_ROWS_PER_GROUP", 8)
    encoder = tmp_path / "encoder"
    save_classifier(make_network("bert"), encoder)
    save_tokenizer(make_tokenizer(), encoder)
    settings = small_settings()
    run = RunContext(settings.select, write_table(tmp_path / "table"), folder=tmp_path, device="cpu", run=settings)
    model = ModelVectors(str(encoder), "cpu")
    expected = [encode_batch(model, batch) for batch in selection_table.read_batches(run.table, columns=["text"])]
    reports: list[int] = []
    wrapped = Wrapped(ray_executor, "endtask.selectors.model_vectors", tmp_path / "killed")
    found = list(encode_on_cluster(str(encoder), run, wrapped, lambda count, **_: reports.append(count)))
    assert np.concatenate(found) == pytest.approx(np.concatenate(expected), abs=1e-6)
    assert (tmp_path / "killed").exists()
    assert wrapped.jobs == len(expected) == 5
    assert sum(reports) == 40
    assert not (tmp_path / "vectors").exists()


@pytest.mark.long
@pytest.mark.parametrize("truncate", [False, True])
def test_packing_by_tasks_that_may_die_writes_the_same_files(
    truncate: bool, ray_executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from endtask.io import selection_table
    from endtask.tokenization.packed_texts import pack_passages
    from endtask.tokenization.packing_jobs import pack_on_cluster
    from endtask.tokenization.tokenizer import save_tokenizer
    from tests.selectors.influence.small import write_table
    from tests.tiny import make_tokenizer

    monkeypatch.setattr(selection_table, "_ROWS_PER_GROUP", 8)
    table = write_table(tmp_path / "table") / "retrieved.parquet"
    tokenizer = make_tokenizer()
    save_tokenizer(tokenizer, tmp_path / "tokenizer")
    texts = selection_table.SelectedTexts(table)
    pack_passages(texts, tokenizer, 8, tmp_path / "plain", truncate=truncate)
    wrapped = Wrapped(ray_executor, "endtask.tokenization.packing_jobs", tmp_path / "killed")
    pack_on_cluster(table, tmp_path / "tokenizer", 8, tmp_path / "packed", wrapped, truncate=truncate)
    plain, packed = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("plain", "packed")
    )
    assert packed == plain
    assert (tmp_path / "killed").exists()
    assert wrapped.jobs == 5


@pytest.mark.long
def test_trials_are_spread_over_actors_and_a_lost_one_is_repeated_by_the_next_call(
    cluster: Any, ray_executor: Executor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from endtask.config import resolve
    from endtask.experiments.ray_workers import on_cluster
    from endtask.experiments.scheduler import Job as Trial
    from endtask.experiments.scheduler import JobEnd, run_jobs
    from tests.executors.kill_once import write_or_die

    monkeypatch.chdir(tmp_path)
    devices, start_worker = on_cluster(["cluster"], resolve({"cluster": {"address": cluster.address}}), tmp_path)
    assert devices == ["machine 1 of the cluster", "machine 2 of the cluster"]
    ends: dict[str, JobEnd] = {}

    def run(names: Sequence[str]) -> None:
        trials = [Trial(name, write_or_die, (name, "killed"), Path(f"{name}.log")) for name in names]
        after = lambda job, end: ends.update({job.key: end})  # noqa: E731
        run_jobs(trials, devices, before=lambda *_: None, after=after, start_worker=start_worker)

    with pytest.raises(InputError, match="1 run stopped; the same command tries again"):
        run(["a", "b", "c"])
    lost = [name for name, end in ends.items() if end.status == "stopped"]
    assert [name for name in "abc" if not Path(name).exists()] == lost
    assert len(lost) == 1
    run(lost)
    assert {end.status for end in ends.values()} == {"finished"}


def test_relative_paths_are_those_of_the_driver(
    data: tuple[Task, str],
    expected: dict[str, bytes],
    ray_executor: Executor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ray_executor.check_folder(Path())
    assert written(data, Path("run"), ray_executor) == expected


def test_a_machine_that_is_lost_is_replaced(
    cluster: Any, data: tuple[Task, str], expected: dict[str, bytes], tmp_path: Path
) -> None:
    """The last test: one machine is left."""
    from endtask.executors.ray_cluster import RayExecutor

    executor = RayExecutor(cluster.address)
    node = next(iter(cluster.worker_nodes)).node_id
    assert written(data, tmp_path / "run", Wrapped(executor, PASSES["ranking"], tmp_path / "killed", node)) == expected
    assert (tmp_path / "killed").exists()
