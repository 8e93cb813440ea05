"""The pack stage: each text is tokenized once, at the length of the phase that reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtask.config import Settings
from endtask.errors import InputError
from endtask.io.selection_table import write_selection
from endtask.records import Document, Example, Selected
from endtask.task import Task
from endtask.tokenization.packed_texts import PackedTexts
from endtask.tokenization.packing import TrainingTexts, pack, report_small_vocabulary
from endtask.tokenization.tokenizer import load_tokenizer, save_tokenizer
from tests.tiny import WORDS, make_texts


def make_task(*, pairs: bool) -> Task:
    def rows(split: str, count: int, seed: int) -> list[Example]:
        texts, seconds = make_texts(count, seed=seed, longest=20), make_texts(count, seed=seed + 1, longest=20)
        return [
            Example(f"{split}{n}", texts[n], "ab"[n % 2], text_pair=seconds[n] if pairs else None) for n in range(count)
        ]

    splits = {"train": rows("train", 12, 1), "dev": rows("dev", 6, 3), "test": rows("test", 6, 5)}
    return Task.from_examples("tiny", splits, task_type="pair" if pairs else "text")


def make_selection(path: Path, texts: list[str]) -> Path:
    documents = [Document(str(n), text, "corpus") for n, text in enumerate(texts)]
    write_selection(path, [Selected(document, 0, 1, 1.0, 1, ("train0",), "best_rank") for document in documents])
    return path


def make_settings(*, window_stride: int | None = None, **tokenizer: object) -> Settings:
    lengths = {"pretrain": {"max_length": 24}, "finetune": {"max_length": 12, "window_stride": window_stride}}
    return Settings.model_validate({"tokenizer": {"vocab_size": 120, **tokenizer}, **lengths})


def test_each_split_is_what_the_saved_tokenizer_gives_at_its_length(tmp_path: Path) -> None:
    task = make_task(pairs=True)
    selection = make_selection(tmp_path / "selection.parquet", make_texts(10, seed=9))
    counts = pack(task, selection, make_settings(), tmp_path)
    tokenizer = load_tokenizer(tmp_path / "tokenizer")
    for name, examples, length in (
        ("task", task.train, 24),
        ("train", task.train, 12),
        ("dev", task.dev, 12),
        ("test", task.splits["test"], 12),
    ):
        packed = PackedTexts(tmp_path / name)
        pairs = [tokenizer(one.text, one.text_pair, truncation=True, max_length=length) for one in examples]
        assert [packed[n].tolist() for n in range(len(packed))] == [pair["input_ids"] for pair in pairs], name
        lengths = [len(pair["input_ids"]) for pair in pairs]
        cut = {"cut_texts": sum(length == 12 for length in lengths)}
        assert counts[name] == {"texts": len(examples), "tokens": sum(lengths)} | ({} if name == "task" else cut)
    assert counts["vocabulary"] == len(tokenizer)


def test_a_cut_text_keeps_its_sep_token_and_a_cut_pair_both_texts(tmp_path: Path) -> None:
    pack(make_task(pairs=True), make_selection(tmp_path / "selection.parquet", []), make_settings(), tmp_path)
    tokenizer = load_tokenizer(tmp_path / "tokenizer")
    packed = PackedTexts(tmp_path / "train")
    cut = [n for n in range(len(packed)) if packed.lengths[n] == 12]
    assert cut
    assert all(packed[n][-1] == tokenizer.sep_token_id for n in cut)
    assert all(packed.second[n] < 12 for n in cut)


@pytest.mark.parametrize(("long", "window_stride", "told"), [(0, None, 0), (1, None, 0), (2, None, 1), (2, 4, 0)])
def test_many_cut_texts_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], long: int, window_stride: int | None, told: int
) -> None:
    texts = [f"{'river ' * (30 if number < long else 3)}{number}" for number in range(10)]
    rows = [Example(f"train{number}", text, "ab"[number % 2]) for number, text in enumerate(texts)]
    task = Task.from_examples("long", {"train": rows, "dev": rows[:2], "test": rows[:2]}, task_type="text")
    settings = make_settings(window_stride=window_stride)
    pack(task, make_selection(tmp_path / "selection.parquet", []), settings, tmp_path)
    lines = [line for line in capsys.readouterr().err.splitlines() if "are cut off" in line]
    assert len(lines) == told
    assert all(line.startswith("warning: 2 of 10 texts of train fill the 12 tokens") for line in lines)


def test_windows_are_not_named_for_pairs_which_cannot_have_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack(make_task(pairs=True), make_selection(tmp_path / "selection.parquet", []), make_settings(), tmp_path)
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "are cut off" in line)
    assert "window_stride" not in line


@pytest.mark.parametrize("window_stride", [None, 4])
def test_texts_that_lose_a_marker_to_the_cut_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], window_stride: int | None
) -> None:
    far, near = "river " * 20, "stone"
    texts = [f"[[ {near} ]] {far}", f"{far} [[ {near} ]]", f"[[ {near} ]] and << {near} >>", far]
    rows = [Example(f"train{n}", f"{text} {n}", "ab"[n % 2]) for n, text in enumerate(texts * 3)]
    task = Task.from_examples("marked", {"train": rows, "dev": rows[:4], "test": rows[2:4]}, task_type="text")
    settings = make_settings(window_stride=window_stride, entity_markers=("[[", "]]", "<<", ">>"))
    pack(task, make_selection(tmp_path / "selection.parquet", []), settings, tmp_path)
    told = [line for line in capsys.readouterr().err.splitlines() if "lose a marker" in line]
    behind = "lose a marker after the 12 tokens of finetune.max_length"
    lost = [f"warning: 3 of 12 texts of train {behind}", f"warning: 1 of 4 texts of dev {behind}"]
    assert told == (lost if window_stride is None else [])


def test_dev_and_test_texts_do_not_shape_the_vocabulary(tmp_path: Path) -> None:
    splits = {
        "train": [Example(f"t{n}", "river stone", "ab"[n % 2]) for n in range(4)],
        "dev": [Example("d0", "xylophone", "a"), Example("d1", "zebra", "b")],
        "test": [Example("e0", "quartz", "a"), Example("e1", "quiz", "b")],
    }
    task = Task.from_examples("tiny", splits)
    selection = make_selection(tmp_path / "selection.parquet", ["cloud"])
    assert set(TrainingTexts(task, selection)) == {"river stone", "cloud"}
    pack(task, selection, make_settings(vocab_size=64), tmp_path)
    letters = set("".join(load_tokenizer(tmp_path / "tokenizer").get_vocab()).lower())
    assert "q" not in letters
    assert "z" not in letters


def test_it_is_said_in_one_line_when_the_texts_give_fewer_tokens_than_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long_words = [" ".join(first + second for first in WORDS[:9]) for second in WORDS[:9]]
    task, selection = make_task(pairs=False), make_selection(tmp_path / "selection.parquet", 2 * long_words)

    def said(**tokenizer: object) -> tuple[int, list[str]]:
        counts = pack(task, selection, settings := make_settings(**tokenizer), tmp_path / "pack")
        report_small_vocabulary(counts["vocabulary"], settings)
        return counts["vocabulary"], [line for line in capsys.readouterr().err.splitlines() if "vocab_size" in line]

    for kind in ("wordpiece", "bpe", "unigram"):
        all_there_are, lines = said(kind=kind, vocab_size=111_000)
        found = f"the texts give {all_there_are:,} tokens, fewer than the 111,000 of tokenizer.vocab_size"
        assert lines == [f"{found}: all of them are used"]
        assert said(kind=kind, vocab_size=all_there_are) == (all_there_are, [])
    save_tokenizer(load_tokenizer(tmp_path / "pack" / "tokenizer"), tmp_path / "mine")
    assert said(path=str(tmp_path / "mine"), vocab_size=111_000) == (all_there_are, [])


def test_a_given_tokenizer_is_used_as_it_is(tmp_path: Path) -> None:
    task, selection = make_task(pairs=False), make_selection(tmp_path / "selection.parquet", ["cloud"])
    pack(task, selection, make_settings(), tmp_path / "first")
    mine = load_tokenizer(tmp_path / "first" / "tokenizer")
    save_tokenizer(mine, tmp_path / "mine")
    pack(task, selection, make_settings(path=str(tmp_path / "mine")), tmp_path / "second")
    assert load_tokenizer(tmp_path / "second" / "tokenizer").get_vocab() == mine.get_vocab()
    first, second = ((tmp_path / name / "train" / "tokens.bin").read_bytes() for name in ("first", "second"))
    assert first == second


def test_without_a_selection_no_corpus_text_is_packed(tmp_path: Path) -> None:
    selection = make_selection(tmp_path / "selection.parquet", [])
    counts = pack(make_task(pairs=False), selection, make_settings(), tmp_path)
    assert counts["selection"] == {"texts": 0, "tokens": 0}
    assert len(PackedTexts(tmp_path / "selection")) == 0


def test_splits_are_read_by_windows_and_stage_1_is_not(tmp_path: Path) -> None:
    task, selection = make_task(pairs=False), make_selection(tmp_path / "selection.parquet", make_texts(10, seed=9))
    counts = pack(task, selection, make_settings(window_stride=4), tmp_path / "windows")
    plain = pack(task, selection, make_settings(), tmp_path / "plain")
    for split, examples in task.splits.items():
        texts = PackedTexts(tmp_path / "windows" / split)
        assert len(texts.windows) == len(examples) < len(texts) == counts[split]["texts"]
        assert counts[split]["tokens"] > plain[split]["tokens"]
        first = [texts[place].tolist() for place in texts.windows.cumsum() - texts.windows]
        truncated = PackedTexts(tmp_path / "plain" / split)
        assert first == [truncated[place].tolist() for place in range(len(examples))]
    for name in ("task", "selection"):
        assert counts[name] == plain[name]
        assert PackedTexts(tmp_path / "windows" / name).examples.tolist() == list(range(counts[name]["texts"]))


def test_pairs_by_windows_are_refused(tmp_path: Path) -> None:
    selection = make_selection(tmp_path / "selection.parquet", [])
    with pytest.raises(InputError, match=r"finetune\.window_stride.*text pairs cannot be read by windows"):
        pack(make_task(pairs=True), selection, make_settings(window_stride=4), tmp_path / "pack")
    assert not (tmp_path / "pack").exists()
