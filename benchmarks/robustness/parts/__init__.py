"""The sub-commands of `python -m benchmarks.robustness`: one module each; the module's name is the sub-command.

A module has `HELP`; `add_arguments(parser)`; `measure(arguments, rows)`, which yields rows, given those of earlier calls;
and `summarize(rows)`, which returns the headline numbers of all its rows.
"""
