"""Jobs on a Ray cluster: a task for each job, and for jobs of a model an actor that loads it once.

All results are files in folders that every machine reaches. So a lost worker or machine costs the jobs that it ran,
which Ray repeats elsewhere, and a lost driver costs nothing that was finished.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any

from endtask.errors import InputError
from endtask.executors.base import Executor, Failures, Job, Report, answer_with_sums, check_answer, import_path
from endtask.executors.processes import LocalExecutor
from endtask.io.extras import require
from endtask.io.stage_folder import package_version
from endtask.progress import set_quiet
from endtask.registry import PLUGINS_VARIABLE

_RETRIES = 5
"""How often a job is repeated whose worker or machine was lost."""
_WAITING = 2
"""Jobs submitted for each that can run: one runs, one is ready. More would only fill the driver's memory."""
_SECONDS_TO_START = 120.0


class RayExecutor(Executor):
    """Runs jobs on the cluster at an address (`auto`: the cluster that this machine belongs to)."""

    def __init__(self, address: str) -> None:
        require("ray", extra="cluster", purpose="cluster.address")
        self._ray = _connect(address)
        nodes = [node for node in self._ray.nodes() if node["Alive"] and node["Resources"].get("CPU")]
        self._nodes = {node["NodeID"]: int(node["Resources"]["CPU"]) for node in nodes}
        self.gpus = int(sum(node["Resources"].get("GPU", 0) for node in nodes))
        if not self._nodes:
            raise InputError("no machine of the cluster has CPUs", key="cluster.address")
        self.workers = sum(self._nodes.values())
        self.machines = sum(cores // self.cores_each for cores in self._nodes.values())

    @property
    def cores_each(self) -> int:
        """The cores of the smallest machine."""
        return min(self._nodes.values())

    def run(
        self,
        module: str,
        jobs: Sequence[Job],
        report: Report,
        *,
        cores: int = 1,
        small: bool = False,
        model: bool = False,
    ) -> None:
        """Run the jobs as tasks, or those of a model in actors; small jobs in this process."""
        if small or not jobs:
            LocalExecutor(1).run(module, jobs, report, small=True)
            return
        submit, slots = self._actors(module, len(jobs)) if model else self._tasks(module, cores)
        failures = Failures()
        waiting: Iterator[tuple[int, Job]] = iter(enumerate(jobs))
        running: dict[Any, int] = {}
        try:
            while self._submit(waiting, running, submit, _WAITING * slots):
                done, _ = self._ray.wait(list(running), num_returns=1)
                for reference in done:
                    if self._finish(reference, running.pop(reference), failures, report):
                        waiting = iter(())  # a full disk
        except BaseException:  # also Ctrl-C, which must not wait for a large shard
            for reference in running:
                with suppress(Exception):
                    self._ray.cancel(reference, force=not model)
            raise
        failures.raise_first()

    def check_folder(self, folder: Path) -> None:
        """Raise `InputError` if a machine cannot read what this one writes to the folder, or has another endtask."""
        token = folder.absolute() / f".{uuid.uuid4().hex}.token"
        token.write_text("", encoding="utf-8")
        try:
            for node, answer in self._answers_of_nodes(str(token)):
                _check_node(node, answer, folder)
        finally:
            token.unlink()

    def _answers_of_nodes(self, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
        from ray.exceptions import RayError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = self._ray.remote(num_cpus=0, max_retries=0)(describe_worker)
        names = {node["NodeID"]: str(node["NodeManagerHostname"]) for node in self._ray.nodes()}
        for node in self._nodes:
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            try:
                answer = self._ray.get(task.options(scheduling_strategy=there).remote(path), timeout=_SECONDS_TO_START)
            except RayError:  # the machine was lost since; Ray will use the others
                continue
            yield names[node], json.loads(answer)

    def _tasks(self, module: str, cores: int) -> tuple[Callable[[str], Any], int]:
        """Return a function that submits a job as a task, and how many tasks run at the same time."""
        task = self._ray.remote(num_cpus=cores, max_retries=_RETRIES)(run_job)
        here = os.getcwd()
        return lambda job: task.remote(module, job, here), sum(nodes // cores for nodes in self._nodes.values())

    def _actors(self, module: str, jobs: int) -> tuple[Callable[[str], Any], int]:
        """Return a function that submits a job to the next of several actors, and their number."""
        slots = max(1, min(jobs, self.gpus or self.machines))
        needs = {"num_gpus": 1, "num_cpus": 1} if self.gpus else {"num_cpus": self.cores_each}
        actor = self._ray.remote(max_restarts=_RETRIES, max_task_retries=_RETRIES, **needs)(JobActor)
        actors = [actor.remote() for _ in range(slots)]
        numbers, here = count(), os.getcwd()
        return lambda job: actors[next(numbers) % slots].run.remote(module, job, here), slots

    def _submit(
        self, waiting: Iterator[tuple[int, Job]], running: dict[Any, int], submit: Callable[[str], Any], most: int
    ) -> bool:
        for number, job in islice(waiting, most - len(running)):
            running[submit(json.dumps(job))] = number
        return bool(running)

    def _finish(self, reference: Any, number: int, failures: Failures, report: Report) -> bool:
        """Report a finished job; return whether its error must stop the others."""
        from ray.exceptions import RayError, RaySystemError, RayTaskError

        try:
            answer = json.loads(self._ray.get(reference))
            if answer["report"]:
                report(**answer["report"])
            check_answer(answer)
        except (RayTaskError, RaySystemError):
            raise
        except RayError as error:
            reason = type(error).__name__
            hint = "out of memory? finished shards are safe; the same command resumes"
            failures.add(number, InputError(f"a job was lost {_RETRIES + 1} times ({reason})", hint=hint))
        except InputError as error:
            failures.add(number, error)
        except OSError as error:
            failures.add(number, error)
            return True
        return False


def _connect(address: str) -> Any:
    """Return the module ray, connected to the cluster; processes of the cluster import what this process imports."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    import ray

    if ray.is_initialized():
        return ray
    environment = {"PYTHONPATH": import_path()}
    if os.environ.get(PLUGINS_VARIABLE):
        environment[PLUGINS_VARIABLE] = os.environ[PLUGINS_VARIABLE]
    try:
        ray.init(
            address=address, log_to_driver=False, logging_level=logging.ERROR, runtime_env={"env_vars": environment}
        )
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        hint = "ray start --head starts one on this machine; docs/how-to/cluster.md"
        raise InputError(f"no Ray cluster at {address}: {reason}", key="cluster.address", hint=hint) from None
    return ray


def run_job(module: str, job: str, folder: str) -> str:
    """Run a job in a process of the cluster; return its answer with the sums of its reports, as JSON.

    Relative paths are relative to `folder`, in which the run was started.
    """
    set_quiet(True)
    with suppress(OSError):  # a machine without this folder can run jobs of absolute paths
        os.chdir(folder)
    answer, sums = answer_with_sums(module, json.loads(job))
    return json.dumps({**answer, "report": sums})


class JobActor:
    """A process of the cluster that runs jobs one after the other; their handler may keep a model in memory."""

    def run(self, module: str, job: str, folder: str) -> str:
        """Run a job; return its answer."""
        return run_job(module, job, folder)


def describe_worker(path: str) -> str:
    """Return as JSON what a process of the cluster has: the versions, and whether it sees a file."""
    found = Path(path).exists()
    return json.dumps({"endtask": package_version(), "python": platform.python_version(), "found": found})


def _check_node(node: str, answer: dict[str, Any], folder: Path) -> None:
    if answer["endtask"] != package_version():
        message = f"{node} has endtask {answer['endtask']}, this machine {package_version()}"
        raise InputError(message, key="cluster.address", hint="install the same version on all machines")
    if not answer["found"]:
        message = f"{node} does not see the files that this machine writes there"
        raise InputError(message, path=folder, hint="a folder that all machines share: cluster.scratch, or --output")
