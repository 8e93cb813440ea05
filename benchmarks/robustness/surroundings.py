"""Odd surroundings of a run: variables, limits, mounts and streams, as a shell line before the command."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

_ODD_CLOCK = """\
import random, time
_time, _random = time.time, random.Random(0)
time.time = lambda: _time() + _random.choice((-{seconds}, 0, {seconds}))
"""
"""A `sitecustomize` module: wall clocks that jump at every reading, as after a suspended machine or a wrong NTP server."""


@dataclass(frozen=True)
class Surroundings:
    """A case: variables to set or remove (None), and a line of sh in which `"$@"` is the command.

    `$OUT` is the folder of the run, `$WORK` one of the case. A run that `may_be_refused` ends with one line and exit
    code 2, and the same command must finish it in ordinary surroundings; what the shell copied to `$WORK/left` is
    then the run's folder.
    """

    name: str
    variables: dict[str, str | None] = field(default_factory=dict)
    shell: str = 'exec "$@"'
    may_be_refused: bool = False
    files: dict[str, str] = field(default_factory=dict)


def _variables(name: str, **variables: str | None) -> Surroundings:
    return Surroundings(name, variables)


def _mounted(name: str, mounts: str, **variables: str | None) -> Surroundings:
    """Return a case in a mount namespace of its own."""
    return Surroundings(name, variables, _in_namespace(f'{mounts} && exec "$@"'))


def _in_namespace(script: str) -> str:
    return f"exec unshare -m sh -c '{script}' sh \"$@\""


def _clock(name: str, seconds: int) -> Surroundings:
    return Surroundings(
        name, {"PYTHONPATH": "$WORK:$PYTHONPATH"}, files={"sitecustomize.py": _ODD_CLOCK.format(seconds=seconds)}
    )


def _small_disk(options: str) -> Surroundings:
    mounted = f'mount -t tmpfs -o {options} tmpfs "$OUT" && {{ "$@"; code=$?; cp -a "$OUT" "$WORK/left"; exit $code; }}'
    return Surroundings(f"disk of {options}", shell=_in_namespace(mounted), may_be_refused=True)


CASES: tuple[Surroundings, ...] = (
    _variables("no HOME", HOME=None, XDG_CACHE_HOME=None, USER=None, LOGNAME=None),
    _variables("HOME that does not exist", HOME="/nonexistent", XDG_CACHE_HOME=None),
    _variables("HOME that is a device", HOME="/dev/null", XDG_CACHE_HOME="/dev/null"),
    _variables("locale C", LC_ALL="C", LANG="C", PYTHONUTF8=None, PYTHONIOENCODING=None),
    Surroundings(
        "locale C and Python's way out disabled",
        {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        may_be_refused=True,
    ),
    _variables("unknown locale", LC_ALL="xx_YY.KOI8-R", LANGUAGE="tlh"),
    _variables("ASCII streams", PYTHONIOENCODING="ascii:strict"),
    _variables("TMPDIR that does not exist", TMPDIR="/nonexistent", TEMP="/nonexistent", TMP="/nonexistent"),
    _variables("no OMP_NUM_THREADS, active waiting", OMP_NUM_THREADS=None, OMP_WAIT_POLICY="ACTIVE"),
    _variables("OMP_NUM_THREADS=0", OMP_NUM_THREADS="0"),
    _variables("OMP_NUM_THREADS=many", OMP_NUM_THREADS="many", MKL_NUM_THREADS="-3"),
    _variables("OMP_NUM_THREADS=200", OMP_NUM_THREADS="200", OMP_DYNAMIC="true"),
    _variables("threads bound to cores", OMP_PROC_BIND="close", OMP_PLACES="cores", KMP_AFFINITY="compact"),
    _variables("NUMBA_NUM_THREADS=1", NUMBA_NUM_THREADS="1"),
    _variables("TOKENIZERS_PARALLELISM=odd", TOKENIZERS_PARALLELISM="odd", RAYON_NUM_THREADS="0"),
    _variables("no GPU by that number", CUDA_VISIBLE_DEVICES="99"),
    _variables("terminal of one column", COLUMNS="1", LINES="1", TERM="dumb"),
    _variables("terminal of wrong size", COLUMNS="many", TERM="no-such-terminal", FORCE_COLOR="1"),
    _variables("Python without assertions", PYTHONOPTIMIZE="1"),
    Surroundings("Python without docstrings", {"PYTHONOPTIMIZE": "2"}, may_be_refused=True),
    _variables("warnings are shown", PYTHONWARNINGS="always", PYTHONDEVMODE="1"),
    _variables("odd time zone", TZ="Asia/Kathmandu", LC_TIME="C"),
    _clock("clock that jumps by a minute", 60),
    _clock("clock that jumps by ten years", 315_000_000),
    Surroundings("closed standard input", shell='exec "$@" <&-'),
    Surroundings("closed standard output", shell='exec "$@" >&-'),
    Surroundings("closed standard error", shell='exec "$@" 2>&-'),
    Surroundings("full standard error", shell='exec "$@" 2>/dev/full'),
    Surroundings("full standard output", shell='exec "$@" >/dev/full', may_be_refused=True),
    Surroundings("all streams closed", shell='exec "$@" <&- >&- 2>&-'),
    Surroundings("64 open files", shell='ulimit -n 64; exec "$@"'),
    Surroundings("stack of 512 kB", shell='ulimit -s 512; exec "$@"'),
    Surroundings("no core files, 6 GB of addresses", shell='ulimit -c 0; ulimit -v 6000000; exec "$@"'),
    Surroundings("files of at most 16 kB", shell='ulimit -f 32; exec "$@"', may_be_refused=True),
    Surroundings("files for nobody else", shell='umask 077; exec "$@"'),
    Surroundings("one core", shell='exec taskset -c 0 "$@"'),
    Surroundings("lowest priority", shell='exec nice -n 19 "$@"'),
    Surroundings("signals ignored", shell="trap '' HUP TERM USR1 PIPE; exec \"$@\""),
    Surroundings("no network", shell='exec unshare -n "$@"'),
    Surroundings(
        "user without a name",
        shell='chmod -R a+rwX "$OUT" "$WORK"; exec setpriv --reuid 54321 --regid 54321 --clear-groups "$@"',
    ),
    _mounted("/dev/shm of 64 kB", "mount -t tmpfs -o size=64k tmpfs /dev/shm"),
    _mounted("/dev/shm read-only", "mount -t tmpfs -o ro tmpfs /dev/shm"),
    _mounted("TMPDIR read-only", "mount -t tmpfs -o ro tmpfs /mnt", TMPDIR="/mnt"),
    _mounted(
        "TMPDIR full",
        "mount -t tmpfs -o size=4k tmpfs /var/tmp && head -c 4096 /dev/zero >/var/tmp/full",
        TMPDIR="/var/tmp",
    ),
    _mounted("HOME read-only", "mount -t tmpfs -o ro tmpfs /mnt", HOME="/mnt", XDG_CACHE_HOME=None),
    _small_disk("ro"),
    *(_small_disk(f"size={kilobytes}k") for kilobytes in (4, 40, 200, 360, 480)),
    *(_small_disk(f"nr_inodes={number}") for number in (3, 20, 60)),
)


def environment(case: Surroundings, base: dict[str, str], work: Path) -> dict[str, str]:
    """Return the variables of a case; `$WORK` and variables in their values are filled in."""
    variables = dict(base)
    for name, value in case.variables.items():
        if value is None:
            variables.pop(name, None)
        else:
            filled = value.replace("$WORK", str(work)).replace("$PYTHONPATH", base.get("PYTHONPATH", ""))
            variables[name] = filled
    return variables
