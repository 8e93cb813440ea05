"""A trained model: predict, evaluate, explain, save, share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from endtask.api.explanation import Explanation, matched_passages, nearest_rows
from endtask.api.html import table_html
from endtask.api.inputs import is_single, texts_of
from endtask.api.labelled_rows import SPLIT, read_labelled
from endtask.api.saving import Facts, model_folder, save_model, stored_facts, upload
from endtask.api.scores import Evaluation, evaluation_of
from endtask.api.stored_run import StoredRun
from endtask.config import Settings, resolve
from endtask.errors import InputError
from endtask.evaluation.task_metrics import measure_of
from endtask.records import Example
from endtask.serving.predictor import Predictor
from endtask.serving.predictor import load as load_predictor
from endtask.task import Task

_LABELS_SHOWN = 12


class Model:
    """A trained model, made by `fit` and `load`.

    `folder` is the folder that it was loaded from, `run` the run behind it (None where only the model is there),
    `classes_` the names of classes, labels or tags, in the order of the columns of `predict_proba`.
    """

    def __init__(self, folder: Path, predictor: Predictor, run: StoredRun | None, settings: Settings) -> None:
        self.folder, self.predictor, self.run, self.settings = folder, predictor, run, settings
        numbers = predictor.task_type.form == "numbers"
        self.classes_: NDArray[np.object_] = np.asarray(() if numbers else predictor.labels, dtype=object)

    @property
    def type(self) -> str:
        """The task type: text, pair, regression, multilabel or token_classification."""
        return self.predictor.type or "text"

    @property
    def report(self) -> Path | None:
        """The report of the run, an HTML page; None without one."""
        page = None if self.run is None else self.run.folder / "report.html"
        return page if page is not None and page.exists() else None

    def predict(self, texts: Any, *, batch_size: int = 32) -> Any:
        """Return the answer for a text, or a list of them for a list, a column or a table of texts.

        An answer is a class, a number, a list of labels, or a list of tags. A pair of texts is a tuple, or a dict with
        the columns of the task; a text to be tagged may be a list of words.
        """
        answers = [answer.value for answer in self._answers(texts, batch_size)]
        return answers[0] if is_single(texts, self.predictor) else answers

    def predict_proba(self, texts: Any, *, batch_size: int = 32) -> Any:
        """Return probabilities (texts, classes), columns as in `classes_`; for a single text (classes,).

        Labels of a multilabel task have a probability each. Of tags, a list with an array (words, tags) for each text.
        """
        if not len(self.classes_):
            raise InputError("a model of numbers has no probabilities", path=self.folder, hint="use predict")
        inputs = self._texts(texts)
        if self.predictor.task_type.per_token:
            tables = list(self.predictor.tag_probabilities(inputs, batch_size=batch_size))
            return tables[0] if is_single(texts, self.predictor) else tables
        rows = [list(answer.probabilities.values()) for answer in self.predictor.stream(inputs, batch_size=batch_size)]
        table = np.asarray(rows, dtype=np.float64).reshape(len(rows), len(self.classes_))
        return table[0] if is_single(texts, self.predictor) else table

    def evaluate(self, data: Any = None) -> Evaluation:
        """Return the scores on labelled data, with 95% intervals over rows and, where the run has several, seeds.

        `data` takes the forms of `fit`; of several splits test counts. Without data, the scores of the run's own test
        split (dev where it has none). The run's seeds are all scored; a model without its run is scored as it is.
        """
        if data is None:
            return self._own_scores()
        known = self._known_task()
        examples = read_labelled(data, self.settings.task, self.type, known.labels)
        if self.run is not None and self.run.weights:
            task = self.run.with_rows(examples, SPLIT)
            found = self.run.answers(task, SPLIT)
            answers = {seed: one.answers for seed, one in found.items()}
            outputs = {seed: one.outputs for seed, one in found.items()}
        else:
            task = Task(known.name, self.type, {**known.splits, SPLIT: examples}, known.labels, (), "")
            values = [answer.value for answer in self.predictor.stream(map(_input_of, examples))]
            answers, outputs = {0: task.task_type.to_array(values, task.all_labels)}, {}
        measure = measure_of(task, self.settings.evaluate)
        return evaluation_of(task, SPLIT, answers, measure, knows_train=bool(task.train), outputs=outputs)

    def explain(self, text: Any, *, top: int = 5) -> Explanation:
        """Return why: the nearest training texts and the selected passages that match a text or a row, by its id.

        Nearness is BM25 over words. A train row has the passages that its query retrieved (`endtask why`).
        """
        run = self._require_run("explain")
        rows = {row.id: row for split in run.task.splits.values() for row in split}
        row = rows.get(text) if isinstance(text, str) else None
        example = row or self._example(text)
        is_train_row = row is not None and any(row.id == other.id for other in run.task.train)
        found = matched_passages(run.folder, example, is_train_row=is_train_row, top=top) if run.has_corpus else ()
        return Explanation(
            text=" ".join(filter(None, (example.text, example.text_pair))),
            prediction=next(self.predictor.stream([_input_of(example)])).value,
            neighbors=nearest_rows(example, run.task, top),
            passages=found,
            id=row.id if row is not None else None,
            label=row.label if row is not None else None,
            note=None if run.has_corpus else "the run has no corpus, so no passage was selected",
        )

    def save(self, path: str | Path, *, with_run: bool = True) -> Path:
        """Write the model to a folder that `endtask.load` and plain transformers load; returns the folder.

        With `with_run` the folder also has what `evaluate` and `explain` read: the training texts, the passages and
        the weights of all seeds. Without, it has no text of yours.
        """
        return save_model(self._source, self._stored_facts, self.run if with_run else None, Path(path))

    def push_to_hub(self, name: str, *, private: bool = True) -> str:
        """Upload the model to `name` (`OWNER/MODEL`) on the Hugging Face hub, without texts; returns its address.

        A new repository is private unless `private` is False; a public one is not written to by accident.
        """
        return upload(self._source, self._stored_facts, name, private=private)

    @property
    def _source(self) -> Path:
        return model_folder(self.folder)[1]

    @property
    def _stored_facts(self) -> Facts:
        return Facts(self.type, self.predictor.takes_pairs, self.settings)

    def _answers(self, texts: Any, batch_size: int) -> Any:
        return self.predictor.stream(self._texts(texts), batch_size=batch_size)

    def _texts(self, texts: Any) -> Any:
        listed = [texts] if is_single(texts, self.predictor) else texts
        return texts_of(listed, self.predictor, self.settings.task.columns)

    def _example(self, text: Any) -> Example:
        if not is_single(text, self.predictor):
            raise InputError(f"of type {type(text).__name__}", path="text", hint="explain takes a text or a row's id")
        (found,) = self._texts(text)
        if isinstance(found, str):
            return Example("", found, "")
        if isinstance(found, tuple):
            return Example("", found[0], "", text_pair=found[1])
        return Example("", " ".join(found), "", tokens=tuple(found))

    def _own_scores(self) -> Evaluation:
        run = self._require_run("evaluate without data")
        found = run.evaluated()
        if found is None:
            raise InputError("not evaluated yet", path=run.folder, hint=f"finish it first: endtask run {run.folder}")
        split, answers = found
        return evaluation_of(run.task, split, answers, measure_of(run.task, run.settings.evaluate))

    def _known_task(self) -> Task:
        """Return the run's task; without a run, a task with the model's labels and no train rows."""
        if self.run is not None:
            return self.run.task
        return Task("model", self.type, {"train": ()}, tuple(map(str, self.classes_)), (), "")

    def _require_run(self, what: str) -> StoredRun:
        if self.run is None:
            hint = "load the run's folder, or a copy saved with it"
            raise InputError(f"cannot {what}: the folder has the model alone", path=self.folder, hint=hint)
        return self.run

    def _facts(self) -> list[tuple[str, str]]:
        names = [str(name) for name in self.classes_[:_LABELS_SHOWN]]
        more = ", ..." if len(self.classes_) > _LABELS_SHOWN else ""
        facts = [("task type", self.type), ("folder", str(self.folder))]
        if names:
            facts.insert(1, ("labels", f"{', '.join(names)}{more} ({len(self.classes_)})"))
        summary = self.run.summary if self.run is not None else None
        return [*facts, ("score", summary)] if summary else facts

    def __getstate__(self) -> dict[str, Any]:
        run = None if self.run is None else self.run.folder
        settings = self.settings.model_dump(mode="json")  # the class of a part's settings is made at run time
        return {"folder": self.folder, "predictor": self.predictor, "run": run, "settings": settings}

    def __setstate__(self, state: dict[str, Any]) -> None:
        run = None if state["run"] is None else StoredRun(state["run"])
        Model.__init__(self, state["folder"], state["predictor"], run, resolve(state["settings"]))

    def __repr__(self) -> str:
        facts = dict(self._facts())
        score = f", {facts['score']}" if "score" in facts else ""
        return f"Model({self.type}, {str(self.folder)!r}{score})"

    def _repr_html_(self) -> str:
        rows: list[tuple[str, Any]] = list(self._facts())
        return table_html([], [*rows, ("report", self.report)] if self.report else rows, caption="endtask model")


def load(path: str | Path) -> Model:
    """Return the model of a finished run, of a folder that `Model.save` wrote, or of any Hugging Face classifier.

    >>> load("runs/absent")
    Traceback (most recent call last):
    ...
    endtask.errors.InputError: runs/absent: no such folder
    """
    folder = Path(path)
    run, model = model_folder(folder)
    facts = stored_facts(model)
    predictor = load_predictor(folder) if facts is None else Predictor(model, facts.type, facts.takes_pairs)
    if run is not None:
        return Model(folder, predictor, run, run.settings)
    return Model(folder, predictor, None, Settings() if facts is None else facts.settings)


def _input_of(example: Example) -> Any:
    if example.tokens is not None:
        return list(example.tokens)
    return example.text if example.text_pair is None else (example.text, example.text_pair)
