"""Attack endtask for a while and record what failed: python -m benchmarks.robustness PART --seconds 600 --seed 1.

.venv/bin/python -m benchmarks.robustness kills --seconds 600           # appends to benchmarks/results/robustness.json
.venv/bin/python -m benchmarks.robustness damages --seconds 60 --results /tmp/dry
.venv/bin/python -m benchmarks.robustness collect /tmp/kills-1 /tmp/kills-2     # rows of several processes or machines
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.results_file import RESULTS
from benchmarks.robustness.record import COMMAND, all_parts, append, clear, collect, rows_of


def main() -> None:
    """Run a sub-command and store each row as it arrives; the same command continues where it stopped."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Attack endtask and record what failed.")
    commands = parser.add_subparsers(dest="part", required=True)
    known = all_parts()
    for name, part in known.items():
        command = commands.add_parser(name, help=part.HELP, description=part.HELP)
        command.add_argument("--seconds", type=float, default=60.0, help="stop after about this time [60]")
        command.add_argument("--seed", type=int, default=0, help="of the cases; another seed gives other cases [0]")
        command.add_argument("--fresh", action="store_true", help="forget the stored rows of this sub-command first")
        command.add_argument("--results", type=Path, default=RESULTS, help="folder of the results file")
        part.add_arguments(command)
    collecting = commands.add_parser("collect", help="store the rows that other processes or machines measured")
    collecting.add_argument("folders", type=Path, nargs="+", help="folders that were given as --results")
    collecting.add_argument("--results", type=Path, default=RESULTS, help="folder of the results file")
    arguments = parser.parse_args()
    if arguments.part == "collect":
        print(collect(arguments.folders, known, arguments.results))
        return
    if arguments.fresh:
        clear(arguments.part, arguments.results)
    part = known[arguments.part]
    for row in part.measure(arguments, rows_of(arguments.part, arguments.results)):
        summary = append(arguments.part, [row], known, arguments.results)
        print(row, flush=True)
        print({key: value for key, value in summary.items() if isinstance(value, int | float)}, flush=True)


if __name__ == "__main__":
    main()
