"""Pre-train endtask-mini, a general English encoder of 256 x 4: filter, tokenizer, masked LM, Hugging Face files.

    python -m studies.endtask_mini prepare DATA RUN         # CPU: filter the corpus, train the tokenizer, pack tokens
    python -m studies.endtask_mini split RUN PARTS          # compress the packed tokens into parts for the transfer
    python -m studies.endtask_mini join PARTS... RUN        # unpack them on the machine with the GPU
    python -m studies.endtask_mini train RUN --steps N --seconds 540        # again with the same N to resume
    python -m studies.endtask_mini save RUN FOLDER          # float16 weights, configuration, tokenizer
    python -m studies.endtask_mini measure RUN FOLDER       # the held-out loss of the saved files

DATA holds `tasks/NAME/{dev,test}.jsonl.zst` and the corpora. `train` stops at a checkpoint after `--seconds`; a killed
process resumes from its last checkpoint. On a CPU the weights are those of an uninterrupted run. `--probe NAME` trains
in another folder, to compare learning rates.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from benchmarks.results_file import write_results
from endtask.config import BatchSize, ModelSettings, PretrainSettings, Settings, TokenizerSettings
from endtask.corpus.corpus import Corpus
from endtask.encoders.checkpoint import load_network, open_checkpoint
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.huggingface import save_masked_lm
from endtask.encoders.network import Network, build_network
from endtask.encoders.weights import load_tensors
from endtask.errors import InputError
from endtask.io.atomic import write_json
from endtask.io.compression import open_bytes
from endtask.objectives.masking import Masking, mask_texts
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.seeds import derive
from endtask.task.text_keys import remove_entity_markers
from endtask.tokenization.packed_texts import PackedTexts, pack_passages
from endtask.tokenization.tokenizer import load_tokenizer, save_tokenizer, train_tokenizer
from endtask.training.checkpoint import CHECKPOINT
from endtask.training.device import choose_device_context, move
from endtask.training.phase import Phase
from endtask.training.phase_runner import run_phase
from endtask.training.pretrain_phase import phase_of
from endtask.weighting.equal import Equal

CORPORA = ("corpus", "corpus_biomedical", "corpus_science")
SEED = 0
VOCABULARY, SPARE_ROWS = 15_552, 64
"""Tokens, and more vectors for the entity markers of tasks: 7.49 M parameters, 14.98 MB in half precision."""
TOKENIZER_TEXTS = 200_000
MAX_LENGTH = 512
"""Long enough for most passages; without padding, length costs little at this width."""
HELD_OUT_EVERY = 2000
"""One passage in so many is held out; the loss on these passages is measured at the end of each call."""
PART_BYTES, CHUNK_BYTES = 50 << 20, 30 << 20
"""Compressed bytes of a part, and bytes of tokens that are compressed together."""
_NAME, _BLOCK = "text", 5000


def settings_of(*, learning_rate: float, batch_tokens: int, size: str = "mini", device: str = "auto") -> Settings:
    """Return the settings of the study."""
    return Settings(
        device=device,
        seed=SEED,
        model=ModelSettings(architecture="lean", size=size, max_position_embeddings=MAX_LENGTH),
        pretrain=PretrainSettings(
            batch_size=BatchSize.parse(f"{batch_tokens}tok"),
            max_length=MAX_LENGTH,
            mask_probability=0.2,
            learning_rate=learning_rate,
            lr_scheduler_type="warmup_stable_decay",
            warmup_steps=0.02,
            checkpoint_steps=100,
        ),
    )


def evaluation_texts(tasks: Path) -> Iterator[str]:
    """Yield the dev and test texts of all tasks, with and without entity markers."""
    for file in sorted(tasks.glob("*/*")):
        if not file.name.startswith(("dev.", "test.")):
            continue
        with open_bytes(file) as lines:
            for line in lines:
                row = json.loads(line)
                for text in (row.get("text"), row.get("text_pair"), " ".join(row.get("tokens", ()))):
                    if text:
                        yield from {text, remove_entity_markers(text)}


def clean_texts(data: Path, corpora: Iterable[str], limit: int | None) -> tuple[list[str], dict[str, Any]]:
    """Return the distinct passages without evaluation texts, and counts."""
    from endtask.retrieval.bm25.scan import Scanner, Terms  # imports Numba, which the GPU machine may lack
    from endtask.retrieval.contamination import ContaminationFilter

    evaluation = sorted(set(evaluation_texts(data / "tasks")))
    contamination = ContaminationFilter.of(evaluation)
    scanner = Scanner(Terms(["the"]), contamination.table)
    corpus = Corpus.read([data / name for name in corpora])
    documents = islice(corpus.documents(), limit)
    texts: list[str] = []
    dropped: dict[str, int] = {}
    while block := list(islice(documents, _BLOCK)):
        suspects = scanner.scan([document.text for document in block]).suspects
        for document, suspect in zip(block, suspects, strict=True):
            if suspect and contamination.confirm(document.text):
                dropped[document.source] = dropped.get(document.source, 0) + 1
            else:
                texts.append(document.text)
    total = corpus.statistics.total
    counts = {
        "evaluation_texts": len(evaluation),
        "passages_read": total.passages,
        "duplicates": total.duplicates,
        "contaminated": sum(dropped.values()),
        "contaminated_by_source": dropped,
        "characters": sum(map(len, texts)),
    }
    return texts, counts


def prepare(data: Path, run: Path, corpora: Iterable[str], limit: int | None, vocabulary: int) -> None:
    """Write `tokenizer/`, `train/`, `held_out/` and `counts.json`."""
    start = time.monotonic()
    texts, counts = clean_texts(data, corpora, limit)
    counts["filter_seconds"] = round(time.monotonic() - start, 1)
    tokenizer = train_tokenizer(
        texts, TokenizerSettings(vocab_size=vocabulary), MAX_LENGTH, max_texts=TOKENIZER_TEXTS, seed=SEED
    )
    save_tokenizer(tokenizer, run / "tokenizer")
    held_out = texts[::HELD_OUT_EVERY]
    del texts[::HELD_OUT_EVERY]
    for name, part in (("train", texts), ("held_out", held_out)):
        packed = pack_passages(part, tokenizer, MAX_LENGTH, run / name)
        counts[name] = {"passages": len(part), "texts": len(packed), "tokens": int(packed.lengths.sum())}
    counts |= {"vocabulary": len(tokenizer), "prepare_seconds": round(time.monotonic() - start, 1)}
    write_json(run / "counts.json", counts)
    print(json.dumps(counts))


def split(run: Path, parts: Path) -> None:
    """Write the packed tokens as `part-NN.xz` of at most `PART_BYTES`, and copy all other files into `rest/`."""
    parts.mkdir(parents=True, exist_ok=True)
    tokens = np.memmap(run / "train" / "tokens.bin", dtype=np.uint8, mode="r")
    part, number = bytearray(), 0
    with ProcessPoolExecutor(2) as pool:
        chunks = (tokens[start : start + CHUNK_BYTES].tobytes() for start in range(0, len(tokens), CHUNK_BYTES))
        for packed in pool.map(_compress, chunks):
            if part and len(part) + len(packed) > PART_BYTES:
                (parts / f"part-{number:02}.xz").write_bytes(part)
                part, number = bytearray(), number + 1
            part += packed
    (parts / f"part-{number:02}.xz").write_bytes(part)
    for folder in ("train", "held_out", "tokenizer"):
        for file in sorted((run / folder).iterdir()):
            if (folder, file.name) != ("train", "tokens.bin"):
                (parts / "rest" / folder).mkdir(parents=True, exist_ok=True)
                copyfile(file, parts / "rest" / folder / file.name)
    print(json.dumps({file.name: file.stat().st_size for file in sorted(parts.glob("part-*.xz"))}))


def _compress(chunk: bytes) -> bytes:
    return lzma.compress(chunk, preset=2)


def join(parts: list[Path], run: Path) -> None:
    """Write `train/tokens.bin` from all parts; raise `InputError` if a part is missing."""
    shape = json.loads((run / "train" / "shape.json").read_text(encoding="utf-8"))
    target = run / "train" / "tokens.bin"
    with open(target, "wb") as file:
        for part in sorted(parts, key=lambda path: path.name):
            with lzma.open(part) as stream:
                while block := stream.read(1 << 24):
                    file.write(block)
    size, expected = target.stat().st_size, shape["tokens"] * np.dtype(shape["dtype"]).itemsize
    if size != expected:
        raise InputError(f"{size:,} bytes of tokens instead of {expected:,}: a part is missing", path=target)


def build_phase(run: Path, settings: Settings, steps: int) -> Phase:
    """Return the phase of masked LM on all packed texts."""
    tokenizer = load_tokenizer(run / "tokenizer")
    context = choose_device_context(settings)
    network = move(_new_network(tokenizer, settings), settings, context)
    network.set_dropout(settings.pretrain.dropout)
    stream = TextStream(
        _NAME,
        PackedTexts(run / "train"),
        network,
        batch_size=settings.pretrain.batch_size,
        seed=derive(SEED, "data"),
        masking=_masking(tokenizer, settings.pretrain.mask_probability),
    )
    phase = phase_of(network, {_NAME: MaskedLM(_NAME, stream)}, Equal(_NAME), settings, context)
    return replace(phase, steps=steps)


def _new_network(tokenizer: Any, settings: Settings) -> Network:
    special_ids = {"pad": tokenizer.pad_token_id, "cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id}
    vocabulary = len(tokenizer) + SPARE_ROWS
    return build_network(
        settings.model,
        vocabulary=vocabulary,
        special_ids=special_ids,
        labels=("no", "yes"),
        seed=derive(SEED, "weights"),
    )


def _masking(tokenizer: Any, probability: float) -> Masking:
    return Masking(probability, tokenizer.mask_token_id, len(tokenizer), tuple(tokenizer.all_special_ids))


class _TimeIsUp(Exception):
    pass


def train(run: Path, folder: Path, settings: Settings, steps: int, seconds: float) -> dict[str, Any]:
    """Train to the last step or until the time is up; return a report and append it to `calls.jsonl`."""
    start = time.monotonic()
    phase = build_phase(run, settings, steps)

    def check_time() -> None:
        if time.monotonic() - start > seconds:
            raise _TimeIsUp

    try:
        run_phase(phase, folder, label="endtask-mini", on_checkpoint=check_time)
    except _TimeIsUp:
        print("time is up: run again to resume", flush=True)
    phase.context.synchronize()
    _, header = load_tensors(folder / CHECKPOINT)
    report = {
        "step": header["step"],
        "steps": steps,
        "tokens": header["state"]["tokens"],
        "matmul_flops": header["state"]["matmul_flops"],
        "seconds": round(time.monotonic() - start, 1),
        "learning_rate": phase.learning_rate,
        "batch": str(settings.pretrain.batch_size),
        "device": str(phase.context.device),
        "held_out_loss": round(held_out_loss(phase.network, run, phase.context), 4),
    }
    with open(folder / "calls.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(report) + "\n")
    print(json.dumps(report), flush=True)
    return report


def held_out_loss(network: Network, run: Path, context: DeviceContext) -> float:
    """Return the masked-LM loss per masked token of the held-out passages, always with the same masks."""
    texts, tokenizer = PackedTexts(run / "held_out"), load_tokenizer(run / "tokenizer")
    stream = TextStream("held_out", texts, network, batch_size=BatchSize.parse("64"), seed=SEED)
    masking = _masking(tokenizer, 0.15)
    total, count = 0.0, 0
    network.eval()
    with torch.no_grad(), network.uncompiled(), context.autocast():
        for start in range(0, len(texts), 32):
            positions = np.arange(start, min(start + 32, len(texts)))
            keys = np.append(positions, -1)  # where shapes are fixed, padding belongs to one text more
            batch = mask_texts(stream.lay_out(positions), keys, masking, SEED).to(context.device)
            total += float(network.masked_lm_loss(network(batch), batch)) * batch.masked
            count += batch.masked
    return total / count


def measure(run: Path, folder: Path, results: Path | None = None) -> float:
    """Return the held-out loss of saved files, in float32 on the CPU; write the results file of the training too."""
    checkpoint, tokenizer = open_checkpoint(str(folder)), load_tokenizer(folder)
    network = load_network(checkpoint, ModelSettings(), pad_id=tokenizer.pad_token_id, labels=("no", "yes"), seed=SEED)
    loss = held_out_loss(network, run, choose_device_context(Settings(device="cpu")))
    print(json.dumps({"folder": str(folder), "held_out_loss": round(loss, 4)}))
    if results is not None:
        counts = json.loads((run / "counts.json").read_text(encoding="utf-8"))
        calls = [json.loads(line) for line in (run / "run" / "calls.jsonl").read_text(encoding="utf-8").splitlines()]
        saved = {
            "held_out_loss": round(loss, 4),
            "parameters": sum(value.numel() for value in load_file(folder / "model.safetensors").values()),
            "megabytes": round((folder / "model.safetensors").stat().st_size / 1e6, 2),
        }
        rows = [
            {"kind": "data", **counts},
            *({"kind": "call", **call} for call in calls),
            {"kind": "model", **saved, "hidden_size": checkpoint.config.hidden_size},
        ]
        summary = saved | {
            "steps": calls[-1]["step"],
            "tokens": calls[-1]["tokens"],
            "matmul_flops": calls[-1]["matmul_flops"],
            "gpu_seconds": round(sum(call["seconds"] for call in calls), 1),
        }
        write_results("endtask_mini", "python -m studies.endtask_mini", rows, summary, results)
    return loss


def save(run: Path, folder: Path, target: Path, size: str = "mini") -> None:
    """Write the last checkpoint as Hugging Face files in half precision."""
    tokenizer = load_tokenizer(run / "tokenizer")
    network = _new_network(
        tokenizer, settings_of(learning_rate=1e-3, batch_tokens=MAX_LENGTH * 2, size=size, device="cpu")
    )
    tensors, header = load_tensors(folder / CHECKPOINT)
    network.load_state_dict({name[8:]: value for name, value in tensors.items() if name.startswith("network/")})
    with torch.no_grad():  # training does not change the spare vectors; markers need different random vectors
        spare = network.embeddings[len(tokenizer) :]
        spare.copy_(torch.randn(spare.shape, generator=torch.Generator().manual_seed(SEED)) * network.embeddings.std())
    target.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        save_masked_lm(network, Path(scratch))
        tensors = load_file(Path(scratch) / "model.safetensors")
        weights = {name: value.to(torch.float16) for name, value in tensors.items()}
        config = json.loads((Path(scratch) / "config.json").read_text(encoding="utf-8"))
    if overflowing := [name for name, value in weights.items() if not value.isfinite().all()]:
        raise InputError(f"{overflowing[0]} holds numbers too large for half precision", path=target)
    for key in ("dtype", "torch_dtype"):
        if key in config:
            config[key] = "float16"
    for key in ("id2label", "label2id"):  # of a head that is not saved
        config.pop(key, None)
    write_json(target / "config.json", config)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    (target / "model.safetensors").chmod(0o644)  # the library makes it readable for its owner alone
    tokenizer.model_input_names = list(network.architecture.input_names)
    save_tokenizer(tokenizer, target)
    size_in_mb = (target / "model.safetensors").stat().st_size / 1e6
    parameters = sum(value.numel() for value in weights.values())
    print(json.dumps({"step": header["step"], "parameters": parameters, "megabytes": round(size_in_mb, 2)}))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("prepare")
    step.add_argument("data", type=Path)
    step.add_argument("run", type=Path)
    step.add_argument("--corpora", nargs="+", default=CORPORA)
    step.add_argument("--limit", type=int, help="read so many passages at most: for a trial")
    step.add_argument("--vocabulary", type=int, default=VOCABULARY)
    step = steps.add_parser("split")
    step.add_argument("run", type=Path)
    step.add_argument("parts", type=Path)
    step = steps.add_parser("join")
    step.add_argument("parts", type=Path, nargs="+")
    step.add_argument("run", type=Path)
    step = steps.add_parser("train")
    step.add_argument("run", type=Path)
    step.add_argument("--steps", type=int, required=True)
    step.add_argument("--seconds", type=float, default=float("inf"))
    step.add_argument("--learning-rate", type=float, default=2e-3)
    step.add_argument("--batch-tokens", type=int, default=131_072)
    step.add_argument("--size", default="mini")
    step.add_argument("--device", default="auto")
    step.add_argument("--probe", default="", help="write checkpoints and curves to a folder of this name")
    step = steps.add_parser("save")
    step.add_argument("run", type=Path)
    step.add_argument("folder", type=Path)
    step.add_argument("--size", default="mini")
    step = steps.add_parser("measure")
    step.add_argument("run", type=Path)
    step.add_argument("folder", type=Path)
    step.add_argument("--results", type=Path, help="write endtask_mini.json in this folder")
    return parser


def main() -> None:
    """Run the step named on the command line."""
    parser = _parser()
    args = parser.parse_args()
    try:
        if args.step == "prepare":
            prepare(args.data, args.run, args.corpora, args.limit, args.vocabulary)
        elif args.step == "split":
            split(args.run, args.parts)
        elif args.step == "join":
            join(args.parts, args.run)
        elif args.step == "train":
            settings = settings_of(
                learning_rate=args.learning_rate, batch_tokens=args.batch_tokens, size=args.size, device=args.device
            )
            folder = args.run / (f"probe-{args.probe}" if args.probe else "run")
            train(args.run, folder, settings, args.steps, args.seconds)
        elif args.step == "measure":
            measure(args.run, args.folder, args.results)
        else:
            save(args.run, args.run / "run", args.folder, args.size)
    except InputError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
