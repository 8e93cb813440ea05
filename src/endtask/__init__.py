"""Turn a labelled task and a large pile of text into a small language model made for that task.

>>> import endtask
>>> sorted(endtask.__all__)
['Corpus', 'InputError', 'Settings', 'Task', 'load', 'load_settings', 'run']
"""

from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.predict import load
from endtask.run import run
from endtask.settings import Settings, load_settings
from endtask.task import Task

__all__ = ["Corpus", "InputError", "Settings", "Task", "load", "load_settings", "run"]
