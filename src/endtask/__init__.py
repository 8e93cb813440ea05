"""Turn a labelled task and a large pile of text into a small language model made for that task.

>>> import endtask
>>> sorted(endtask.__all__)
['Corpus', 'InputError', 'Model', 'Settings', 'Task', 'fit', 'load', 'load_settings', 'run']
"""

from endtask.api.fit import fit
from endtask.api.model import Model, load
from endtask.config import Settings, load_settings
from endtask.corpus import Corpus
from endtask.errors import InputError
from endtask.pipeline.run import run
from endtask.task import Task

__all__ = ["Corpus", "InputError", "Model", "Settings", "Task", "fit", "load", "load_settings", "run"]
