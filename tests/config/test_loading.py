"""Settings merged from preset, file, flags and overrides."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from endtask.config import dump_yaml, load_settings, preset_names, read_tree, resolve
from endtask.errors import InputError


def complaint(path: Path | None = None, **arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_settings(path, **arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write(folder: Path, text: str | bytes, name: str = "run.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_later_sources_win(tmp_path: Path) -> None:
    path = write(tmp_path, "preset: gpu\nseed: 1\npretrain: {batch_size: 8, weighting: {rho1: 1}}\n")
    merged = load_settings(
        path, given={"seed": 2, "pretrain": {"weighting": {"rho1": 2}}}, overrides=["pretrain.weighting.rho1=3"]
    )
    assert (merged.model.size, str(merged.pretrain.batch_size), merged.seed, merged.pretrain.weighting.rho1) == (
        "compact",
        "8",
        2,
        3,
    )


def test_a_preset_from_the_command_line_beats_the_one_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "preset: gpu\n")
    assert load_settings(path, preset="laptop") == load_settings(preset="laptop")


def test_the_callers_own_mapping_is_left_alone() -> None:
    given_tree: dict[str, Any] = {"task": {"columns": {"text": "a"}}}
    before = copy.deepcopy(given_tree)
    merged = load_settings(given=given_tree, overrides=["task.columns.text=b"])
    assert merged.task.columns.text == "b"
    assert given_tree == before


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("pretrain.learning_rate=1e-3", "pretrain", "learning_rate", 1e-3),
        ("finetune.seeds=[4, 5]", "finetune", "seeds", (4, 5)),
        ("tokenizer.lowercase=false", "tokenizer", "lowercase", False),
        ("task.path=a=b", "task", "path", "a=b"),
        (" pretrain . max_length =77", "pretrain", "max_length", 77),
        ("retrieve.top_k=auto", "retrieve", "top_k", "auto"),
    ],
)
def test_an_override_is_read_as_yaml(override: str, section: str, key: str, value: object) -> None:
    assert getattr(getattr(load_settings(overrides=[override]), section), key) == value


@pytest.mark.parametrize("sign", list("|>,#-:?&*!%@`;/"))
def test_a_sign_alone_is_itself(sign: str) -> None:
    """YAML reads `|` as the beginning of a text that never comes, `#` as a comment, `-` as a list."""
    assert load_settings(overrides=[f"task.label_delimiter={sign}"]).task.label_delimiter == sign


def test_infinity_in_a_file_is_the_word_for_it(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, "pretrain: {weighting: {rho1: .inf}}")).pretrain.weighting.rho1 == "inf"
    assert (
        load_settings(
            write(tmp_path, '{"pretrain": {"weighting": {"rho1": Infinity}}}', "run.json")
        ).pretrain.weighting.rho1
        == "inf"
    )
    for other in ("-.inf", ".nan"):
        assert "'pretrain.weighting.rho1': must be" in complaint(
            write(tmp_path, f"pretrain: {{weighting: {{rho1: {other}}}}}")
        )


def test_null_takes_a_setting_back() -> None:
    assert load_settings(overrides=["select.budget=5%", "select.budget=null"]).select.budget is None


@pytest.mark.parametrize("override", ["seed", "=1", "train.=1", ".seed=1", ""])
def test_an_override_without_key_or_value_is_refused(override: str) -> None:
    assert "write it as key=value" in complaint(overrides=[override])


def test_an_override_below_a_value_is_refused() -> None:
    assert complaint(overrides=["seed=1", "seed.x=1"]) == "--set 'seed.x=1': 'seed' is a value, not a section"


def test_an_override_that_is_not_yaml_is_refused() -> None:
    assert complaint(overrides=["seed=[1"]).startswith(
        "--set 'seed=[1': the value is not valid YAML: expected ',' or ']'"
    )


def test_a_wrong_override_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "seed: 1\n")
    assert complaint(path, overrides=["pretrain.sed=1"]).startswith("--set, key 'pretrain.sed': unknown setting")
    assert complaint(path, overrides=["trian.seed=1"]).startswith("--set, key 'trian': unknown setting")
    assert complaint(path, overrides=["pretrain.weighting.rho1=x"]).startswith(
        "--set, key 'pretrain.weighting.rho1': must be a whole number"
    )


@pytest.mark.parametrize("preset", [name for name in preset_names() if name.endswith(("gpu", "demo", ":imdb"))])
@pytest.mark.parametrize("suffix", [".yaml", ".yml", ".json"])
def test_resolved_settings_are_accepted_back(tmp_path: Path, suffix: str, preset: str) -> None:
    chosen = load_settings(
        preset=preset,
        given={"corpus": {"sources": [{"path": "a.jsonl", "name": "été"}]}, "select": {"budget": "5%"}},
    )
    text = chosen.model_dump_json() if suffix == ".json" else dump_yaml(chosen)
    assert load_settings(write(tmp_path, text, f"settings{suffix}")) == chosen


@settings(max_examples=15, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "seed": st.integers(0, 2**31),
            "output_dir": st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20),
            "pretrain": st.fixed_dictionaries(
                {
                    "learning_rate": st.floats(1e-8, 10),
                    "batch_size": st.integers(1, 10**6) | st.integers(256, 10**9).map("{}tok".format),
                    "max_grad_norm": st.none() | st.floats(1e-3, 10),
                }
            ),
            "finetune": st.fixed_dictionaries(
                {
                    "seeds": st.lists(st.integers(0, 2**31), min_size=1, unique=True),
                    "learning_rate": st.floats(1e-8, 1) | st.lists(st.floats(1e-8, 1), min_size=1),
                }
            ),
            "compile": st.booleans() | st.sampled_from(["auto", "graphs"]),
            "report_to": st.lists(st.sampled_from(["tensorboard", "wandb", "trackio", "mlflow"])),
            "corpus": st.fixed_dictionaries(
                {
                    "sources": st.lists(
                        st.fixed_dictionaries({"path": st.text(st.characters(codec="utf-8", exclude_characters="\0"))})
                    )
                }
            ),
        },
    )
)
def test_writing_and_reading_changes_nothing(tree: dict[str, Any]) -> None:
    chosen = resolve(tree)
    assert resolve(yaml.safe_load(dump_yaml(chosen))) == chosen
    assert resolve(json.loads(chosen.model_dump_json())) == chosen


def test_a_line_end_that_yaml_alone_knows_survives() -> None:
    chosen = resolve({"output_dir": "a\x85b ü"})
    assert resolve(yaml.safe_load(dump_yaml(chosen))) == chosen


def test_a_section_whose_keys_are_all_commented_out_is_empty(tmp_path: Path) -> None:
    path = write(tmp_path, "preset: gpu\npretrain:\n  # max_length: 3\ntask:\n  columns:\ncorpus:\n  sources:\n")
    assert load_settings(path) == load_settings(preset="gpu")
    assert load_settings(path, overrides=["pretrain.weighting.rho1=3"]).pretrain.weighting.rho1 == 3


def test_an_empty_file_means_the_preset_of_the_machine(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, "# nothing\ndevice: cpu\n")) == load_settings(
        preset="laptop", given={"device": "cpu"}
    )


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path: Path) -> None:
    assert load_settings(write(tmp_path, b"\xef\xbb\xbfseed: 3\n")).seed == 3


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert complaint(tmp_path / "none.yaml") == f"{tmp_path / 'none.yaml'}: no such settings file"


def test_a_misspelt_file_is_met_with_the_nearest(tmp_path: Path) -> None:
    write(tmp_path, "seed: 1", "abstracts.yaml")
    said = complaint(tmp_path / "abstract.yaml")
    assert said.endswith(f"no such settings file (did you mean '{tmp_path / 'abstracts.yaml'}'?)")
    assert complaint(tmp_path / "absent" / "a.yaml").endswith("no such settings file")


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl.zst"])
def test_data_in_the_place_of_settings(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"text,label\na: b: c,d\n")
    said = f"{path}: a data file, not settings (labelled data are set by --task {path})"
    assert complaint(path) == said


def test_a_folder_is_not_a_settings_file(tmp_path: Path) -> None:
    assert complaint(tmp_path) == f"{tmp_path}: is a folder, not a file"


def test_broken_utf8_names_the_row(tmp_path: Path) -> None:
    path = write(tmp_path, b"seed: 1\noutput_dir: caf\xe9\n")
    assert complaint(path) == f"{path}, row 2: not valid UTF-8 (save the file as UTF-8)"


@pytest.mark.parametrize(
    ("name", "text", "row", "message"),
    [
        ("a.yaml", "seed: 1\npretrain: [1\nmodel: 2\n", 3, "not valid YAML"),
        ("a.yaml", "seed: 1\n\tbudget: 1s\n", 2, "not valid YAML"),
        ("a.yaml", "seed: 1\nbudget: \x00\n", 2, "not valid YAML"),
        (
            "a.yaml",
            "seed: 1\npretrain: {seed: 1}\npretrain: {seed: 2}\n",
            3,
            "not valid YAML: the key 'pretrain' is given twice",
        ),
        ("a.json", '{"seed": 1,\n"budget" 3}', 2, "not valid JSON"),
    ],
)
def test_a_syntax_error_names_the_row(tmp_path: Path, name: str, text: str, row: int, message: str) -> None:
    path = write(tmp_path, text, name)
    assert complaint(path).startswith(f"{path}, row {row}: {message}")


def test_a_key_that_stands_twice_in_json_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, '{"pretrain": {"seed": 1, "seed": 2}}', "a.json")
    assert complaint(path) == f"{path}: not valid JSON: the key 'seed' is given twice"


@pytest.mark.parametrize("text", ["- seed\n", "seed\n", "3\n"])
def test_a_file_without_keys_is_refused(tmp_path: Path, text: str) -> None:
    assert complaint(write(tmp_path, text)).endswith("settings must be `key: value` lines")


def test_plain_words_in_place_of_sections(tmp_path: Path) -> None:
    path = write(tmp_path, "task: labels.csv\ncorpus: [notes/*.txt, {path: b.jsonl, name: b}]\n")
    whole = {
        "task": {"path": "labels.csv"},
        "corpus": {"sources": [{"path": "notes/*.txt"}, {"path": "b.jsonl", "name": "b"}]},
    }
    assert load_settings(path) == load_settings(given=whole)
    assert (
        load_settings(path, overrides=["corpus.sources=notes/*.txt"]).corpus
        == load_settings(given={"corpus": "notes/*.txt"}).corpus
    )
    changed = load_settings(path, given={"task": {"columns": {"text": "a"}}}, overrides=["task.columns.label=b"]).task
    assert (changed.path, changed.columns.text, changed.columns.label) == ("labels.csv", "a", "b")
    assert load_settings(given={"report_to": "tensorboard"}).report_to == ("tensorboard",)
    assert load_settings(given={"report_to": "none"}).report_to == ()


def test_read_tree_keeps_what_was_written(tmp_path: Path) -> None:
    assert read_tree(write(tmp_path, "seed: 1\nunknown: {a: [1, x]}\n")) == {
        "seed": 1,
        "unknown": {"a": [1, "x"]},
    }


def test_an_unknown_preset_is_refused_with_the_nearest(tmp_path: Path) -> None:
    assert complaint(preset="latop") == "unknown preset 'latop' (did you mean 'laptop'?)"
    path = write(tmp_path, "preset: tlm-smal\n")
    assert complaint(path) == f"{path}, key 'preset': unknown preset 'tlm-smal' (did you mean 'tlm-small'?)"
    assert complaint(path, preset="latop") == "unknown preset 'latop' (did you mean 'laptop'?)"
    assert "unknown preset ['gpu']" in complaint(write(tmp_path, "preset: [gpu]\n"))
