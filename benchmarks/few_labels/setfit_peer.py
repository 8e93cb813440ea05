"""Train SetFit on the rows of a job and write its answers; run as a file by the Python that has SetFit.

python setfit_peer.py JOB.json ANSWERS.json
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def answers(job: dict[str, Any]) -> list[str]:
    """Return SetFit's answers to the texts of a job, by its own defaults apart from the number of pairs."""
    import torch
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    if job["threads"]:
        torch.set_num_threads(job["threads"])
    model = SetFitModel.from_pretrained(job["model"])
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_iterations=job["iterations"],
            seed=job["seed"],
            report_to="none",
            save_strategy="no",
            show_progress_bar=False,
        )
        rows = Dataset.from_dict({"text": job["texts"], "label": job["labels"]})
        Trainer(model=model, args=arguments, train_dataset=rows).train()
    return [str(answer) for answer in model.predict(job["scored"])]


if __name__ == "__main__":
    found = answers(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(found), encoding="utf-8")
