"""Exports of a finished run: what they hold, what was measured, and that they load without endtask."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest
import yaml
from safetensors.torch import load_file
from sklearn.metrics import f1_score

from endtask.errors import InputError
from endtask.export import hub, int8, measure
from endtask.export.base import RECORD, ExportRequest, FolderExporter, TrainedRun, export, exporters
from endtask.export.dataset import Contents, dataset_card
from endtask.export.measure import Measured, check_parity, difference
from endtask.io import extras
from endtask.io.selection_table import write_selection
from endtask.records import Document, Selected
from endtask.serving.predictor import load
from tests.conftest import Answer

TEXTS = ["soup", "star moon orbit rocket planet sky", "ball goal team"]


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def exported(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for each exporter that writes one; 8 bits from the same graph, since its export takes seconds."""
    folder = tmp_path_factory.mktemp("exports")
    for name in ("onnx", "encoder", "sentence-transformers", "dataset"):
        export(finished_run, name, output=folder / name)

    def copy_graph(run: TrainedRun, target: Path) -> None:
        shutil.copytree(folder / "onnx", target, dirs_exist_ok=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(int8, "write_graph", copy_graph)
        export(finished_run, "int8", output=folder / "int8")
    return folder


def dev_rows(run: Path) -> list[dict[str, Any]]:
    lines = (run / "read" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_onnx_gives_the_answers_of_torch_in_batches_of_any_size(finished_run: Path, exported: Path) -> None:
    torch, onnx = load(finished_run), load(exported / "onnx")
    for batch_size in (1, 2, 3):
        found, expected = onnx.predict(TEXTS, batch_size=batch_size), torch.predict(TEXTS, batch_size=batch_size)
        assert [one.label for one in found] == [one.label for one in expected]
        for one, other in zip(found, expected, strict=True):
            assert one.probabilities == pytest.approx(other.probabilities, abs=1e-5)


def test_the_record_of_onnx_has_parity_score_and_latency(finished_run: Path, exported: Path) -> None:
    facts = record(exported / "onnx")
    assert facts["rows"] == facts["equal_answers"] == 18
    assert 0 <= facts["max_difference"] < 1e-4
    assert facts["score"]["onnx"] == facts["score"]["torch"]
    for name in ("torch", "onnx"):
        assert 0 < facts["latency"][name]["p50_ms"] <= facts["latency"][name]["p99_ms"]


@pytest.mark.parametrize("name", ["onnx", "int8"])
def test_scores_on_dev_are_those_of_scikit_learn(finished_run: Path, exported: Path, name: str) -> None:
    rows, facts = dev_rows(finished_run), record(exported / name)
    predicted = [one.label for one in load(exported / name).predict([row["text"] for row in rows])]
    expected = f1_score([row["label"] for row in rows], predicted, average="macro")
    assert facts["score"][name] == pytest.approx(expected)
    manifest = json.loads((finished_run / "model" / "manifest.json").read_text())
    assert facts["score"]["torch"] == pytest.approx(manifest["counts"]["dev"]["macro_f1"])


def test_8_bits_are_smaller_and_their_loss_is_reported(exported: Path) -> None:
    facts = record(exported / "int8")
    assert facts["bytes"]["int8"] < facts["bytes"]["onnx"]
    assert facts["score_loss"] == facts["score"]["torch"] - facts["score"]["int8"]
    assert not (exported / "int8" / "model.onnx").exists()
    assert "The weights have 8 bits" in (exported / "int8" / "README.md").read_text(encoding="utf-8")


def measured(outputs: list[list[float]]) -> Measured:
    return Measured([np.array(row, dtype=np.float32) for row in outputs], [0] * len(outputs), 0.5, {})


def test_outputs_beyond_the_tolerance_are_refused(finished_run: Path) -> None:
    run = TrainedRun(finished_run)
    assert check_parity(measured([[1.0, 2.0]]), measured([[1.0, 2.0005]]), run) == pytest.approx(5e-4, rel=1e-3)
    with pytest.raises(InputError, match=r"differ by up to 0\.01 .* nothing was written"):
        check_parity(measured([[0.5, 0.2]]), measured([[0.5, 0.21]]), run)
    with pytest.raises(InputError, match="differ by up to nan"):
        check_parity(measured([[0.5]]), measured([[float("nan")]]), run)
    assert check_parity(measured([[500.0]]), measured([[500.1]]), run) > 0.09  # one part in 5000


def test_an_export_that_is_refused_leaves_nothing(
    finished_run: Path, exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from endtask.export import onnx

    monkeypatch.setattr(
        onnx, "write_graph", lambda run, folder: shutil.copytree(exported / "onnx", folder, dirs_exist_ok=True)
    )
    monkeypatch.setattr(measure, "TOLERANCE", 0.0)
    with pytest.raises(InputError, match="the outputs of the exported model differ"):
        export(finished_run, "onnx", output=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_encoder_has_the_weights_of_pre_training(finished_run: Path, exported: Path) -> None:
    found = load_file(exported / "encoder" / "model.safetensors")
    pretrained = load_file(finished_run / "pretrain" / "weights.safetensors")
    finetuned = load_file(finished_run / "model" / "model.safetensors")
    layers = [name for name in found if name.startswith("model.layers")]
    assert layers
    assert all((found[name] == pretrained[f"encoder.{name.removeprefix('model.')}"]).all() for name in layers)
    assert any((found[name] != finetuned[name]).any() for name in layers)
    config = json.loads((exported / "encoder" / "config.json").read_text())
    assert "food" not in json.dumps(config.get("label2id", {}))


def test_another_run_can_start_from_the_encoder(exported: Path, toy: Path, tmp_path: Path) -> None:
    from endtask.config import Settings
    from endtask.task import Task
    from endtask.training.initial_network import check_checkpoint

    model = {"path": str(exported / "encoder")}
    lengths = {"max_length": 16}
    settings = Settings.model_validate({"model": model, "pretrain": lengths, "finetune": lengths})
    check_checkpoint(Task.read(toy / "task"), settings)  # raises where it could not


def test_the_data_set_is_the_selection(finished_run: Path, exported: Path) -> None:
    (file,) = (exported / "dataset" / "data").iterdir()
    table = parquet.read_table(file)
    assert table.equals(parquet.read_table(finished_run / "select" / "selection.parquet"))
    facts = record(exported / "dataset")
    assert facts["passages"] == table.num_rows
    assert facts["bytes"] == sum(len(text.encode()) for text in table["text"].to_pylist())


def passage(number: int, source: str, license: str | None) -> Selected:
    return Selected(Document(str(number), f"text {number}", source, None, license), number, 1, 1.0, 1, (), "best rank")


def test_the_card_of_the_data_set_names_every_licence(finished_run: Path, tmp_path: Path) -> None:
    from endtask.io.selection_table import read_batches

    given = [("wiki", "CC BY-SA 4.0")] * 3 + [("a|b `x`", None)] * 2 + [("wiki", "CC0-1.0")]
    write_selection(tmp_path / "s.parquet", [passage(n, *one) for n, one in enumerate(given)])
    contents = Contents()
    for batch in read_batches(tmp_path / "s.parquet", columns=["source", "license", "text"]):
        contents.add(batch)
    assert contents.passages == Counter({"wiki": 4, "a|b `x`": 2})
    assert contents.all_licenses == ["CC BY-SA 4.0", "not stated", "CC0-1.0"]
    card = dataset_card(TrainedRun(finished_run), contents)
    assert yaml.safe_load(card.split("---")[1])["license"] == "other"
    assert "| `wiki` | 4 |" in card
    assert "`CC BY-SA 4.0 (3), CC0-1.0 (1)`" in card
    assert r"`` a\|b `x` ``" in card
    del contents.licenses["a|b `x`"], contents.passages["a|b `x`"]
    known = yaml.safe_load(dataset_card(TrainedRun(finished_run), contents).split("---")[1])
    assert known["license"] == ["cc-by-sa-4.0", "cc0-1.0"]


ELSEWHERE = """
import json, sys
from pathlib import Path
sys.modules["endtask"] = None  # an import of it fails
exports, model, texts = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
import numpy as np, torch
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer
found = {}
def tokens(folder, tensors):
    return AutoTokenizer.from_pretrained(folder)(texts, padding=True, truncation=True, return_tensors=tensors)
with torch.inference_mode():
    found["model"] = AutoModelForSequenceClassification.from_pretrained(model)(**tokens(model, "pt")).logits.tolist()
    encoder = AutoModel.from_pretrained(exports / "encoder")
    found["encoder"] = list(encoder(**tokens(exports / "encoder", "pt")).last_hidden_state.shape)
    masked = AutoModelForMaskedLM.from_pretrained(exports / "encoder")
    found["vocabulary"] = masked(**tokens(exports / "encoder", "pt")).logits.shape[-1]
    folder = exports / "sentence-transformers"
    kinds = [part["type"].rpartition(".")[2] for part in json.loads((folder / "modules.json").read_text())]
    pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
    assert kinds == ["Transformer", "Pooling"] and pooling["pooling_mode_mean_tokens"]
    inputs = tokens(folder, "pt")
    hidden, mask = AutoModel.from_pretrained(folder)(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
    found["vectors"] = ((hidden * mask).sum(1) / mask.sum(1)).tolist()
    assert len(found["vectors"][0]) == pooling["word_embedding_dimension"]
try:
    from sentence_transformers import SentenceTransformer
    found["library"] = SentenceTransformer(str(folder), device="cpu").encode(texts).tolist()
except ImportError:
    found["library"] = found["vectors"]
import onnxruntime
for name, file in (("onnx", "model.onnx"), ("int8", "model_quantized.onnx")):
    session = onnxruntime.InferenceSession(str(exports / name / file), providers=["CPUExecutionProvider"])
    found[name] = session.run(None, dict(tokens(exports / name, "np")))[0].tolist()
import datasets
found["rows"] = datasets.load_dataset(str(exports / "dataset"), split="train", cache_dir=sys.argv[4]).num_rows
print(json.dumps(found))
"""


@pytest.mark.long
@pytest.mark.slow
def test_everything_loads_where_endtask_cannot_be_imported(finished_run: Path, exported: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-c", ELSEWHERE, exported, finished_run / "model", json.dumps(TEXTS), tmp_path]
    ended = subprocess.run(list(map(str, program)), capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    expected = [row.tolist() for row in load(finished_run).logits(TEXTS)]
    np.testing.assert_allclose(found["model"], expected, atol=1e-5)
    np.testing.assert_allclose(found["onnx"], expected, atol=1e-4)
    np.testing.assert_allclose(found["int8"], expected, atol=0.1)
    np.testing.assert_allclose(found["library"], found["vectors"], atol=1e-5)
    assert found["encoder"][0] == len(TEXTS)
    assert found["encoder"][2] == 16
    assert found["vocabulary"] >= 200
    assert found["rows"] == parquet.read_table(finished_run / "select" / "selection.parquet").num_rows


class StubApi:
    """Stands for the hub: notes what would be sent."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def create_repo(self, name: str, **options: Any) -> Any:
        self.calls.append((name, options))

        return f"https://hub.example/{name}"

    def repo_info(self, name: str, **_: Any) -> Any:
        return type("Info", (), {"private": True})

    def upload_folder(self, **options: Any) -> None:
        self.calls.append(("upload", options))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> StubApi:
    import huggingface_hub

    stub = StubApi()
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: stub)
    return stub


def test_the_hub_gets_the_model_in_a_private_repository(
    finished_run: Path, api: StubApi, command: Callable[..., Answer]
) -> None:
    answer = command("export", finished_run, "--to", "hub", "--repo", "me/toy")
    assert answer.code == 0
    assert "exported: https://hub.example/me/toy" in answer.out
    (name, created), (_, sent) = api.calls
    assert name == "me/toy"
    assert created["private"] is True
    assert (created["repo_type"], sent["repo_type"]) == ("model", "model")
    assert Path(sent["folder_path"]) == finished_run / "model"
    assert "manifest.json" in sent["ignore_patterns"]


def test_the_hub_takes_an_exported_folder_too(exported: Path, api: StubApi) -> None:
    found = export(exported / "dataset", "hub", repository="me/text", public=True)
    assert api.calls[0][1] == {"repo_type": "dataset", "private": False, "exist_ok": True}
    assert found.facts["visibility"] == "public"
    assert Path(api.calls[1][1]["folder_path"]) == exported / "dataset"


@pytest.mark.parametrize("name", [None, "a b", "../x", "a/b/c", "x" * 100])
def test_a_wrong_name_of_a_repository_sends_nothing(finished_run: Path, api: StubApi, name: str | None) -> None:
    with pytest.raises(InputError, match="repo"):
        export(finished_run, "hub", repository=name)
    assert api.calls == []


def test_a_failed_upload_is_one_line(finished_run: Path, api: StubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> None:
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(api, "upload_folder", fail)
    with pytest.raises(InputError, match=r"me/toy: cannot be uploaded: no route \(hf auth"):
        export(finished_run, "hub", repository="me/toy")


def test_nothing_is_sent_without_the_hub(finished_run: Path, api: StubApi, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--repo and --public are for --to hub"):
        export(finished_run, "dataset", repository="me/text", output=tmp_path / "out")
    assert api.calls == []
    assert not (tmp_path / "out").exists()


def test_bad_requests_are_one_line_and_change_nothing(
    finished_run: Path, tmp_path: Path, command: Callable[..., Answer]
) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("mine")
    asked: list[tuple[list[object], str]] = [
        ([finished_run, "--to", "onx"], "there is no exporter 'onx' (did you mean 'onnx'?)"),
        ([finished_run, "--to", "dataset", "--output", full], "holds other files and was left as it is"),
        ([tmp_path / "absent", "--to", "dataset"], "no such folder"),
        ([full, "--to", "encoder"], "no run here"),
        ([finished_run, "--to", "hub"], "name the repository on the hub (--repo OWNER/NAME)"),
        ([finished_run, "--to", "hub", "--repo", "a/b", "--output", full], "--output has no meaning for --to hub"),
    ]
    for words, said in asked:
        answer = command("export", *words)
        assert (answer.code, answer.out) == (2, "")
        assert said in answer.err
        assert answer.err.count("\n") == 1
    assert [path.name for path in full.iterdir()] == ["thesis.txt"]


def test_a_run_without_its_stages_cannot_be_exported(own_run: Path) -> None:
    shutil.rmtree(own_run / "model")
    with pytest.raises(InputError, match="the stage model has not finished"):
        export(own_run, "sentence-transformers")
    exported = export(own_run, "dataset")  # needs the selection only
    assert exported.target == str(own_run / "exports" / "dataset")
    assert export(own_run, "dataset").target == exported.target  # an older one is replaced


def test_a_missing_package_is_named_with_its_extra(finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "onnxruntime" else object())
    with pytest.raises(InputError, match=r"onnxruntime, which is not installed \(pip install 'endtask\[onnx\]'\)"):
        export(finished_run, "onnx")


@pytest.fixture
def own_exporter() -> Iterator[type[FolderExporter]]:
    @exporters.register("own")
    class Own(FolderExporter):
        def write(self, run: TrainedRun, folder: Path) -> dict[str, Any]:
            (folder / "labels.txt").write_text("\n".join(run.task.labels))
            return {"labels": len(run.task.labels)}

    yield Own
    exporters.forget([__name__])


@pytest.mark.usefixtures("own_exporter")
def test_an_exporter_of_a_plug_in_is_one_class(finished_run: Path, tmp_path: Path) -> None:
    found = export(finished_run, "own", output=tmp_path / "own")
    assert (tmp_path / "own" / "labels.txt").read_text() == "food\nspace\nsport"
    assert record(tmp_path / "own")["labels"] == found.facts["labels"] == 3


def test_differences_are_the_largest_of_all() -> None:
    one, other = measured([[0.0, 1.0], [2.0, 2.0]]), measured([[0.25, 1.0], [2.0, 1.0]])
    assert difference(one.outputs, other.outputs) == 1.0
    assert ExportRequest(Path("x")).public is False
    assert hub.Hub.repository_type == "model"
