"""Presets: the papers' numbers, typed here a second time, and names of tasks."""

from __future__ import annotations

from pathlib import Path
from statistics import median, multimode
from typing import Any, NamedTuple

import pytest

from endtask.config import Settings, load_settings, preset_names
from endtask.config.preset_files import preset_layers
from endtask.encoders.checkpoint_files import SMALL_PRETRAINED
from endtask.errors import InputError
from endtask.selectors.influence.scoring_model import scoring_settings
from endtask.training.optimizer import ADAM_BETA1, ADAM_EPSILON
from endtask.weighting.meta.head import HEAD_LEARNING_RATE, HEAD_STEPS, HEAD_WEIGHT_DECAY

TASKS = ["agnews", "hyperpartisan", "helpfulness", "imdb", "acl-arc", "scierc", "chemprot", "rct-20k"]
SCALES = ["small", "medium", "large"]
DAPT_TASKS = ["acl-arc", "scierc", "chemprot", "rct-20k"]
FILES = [name for name in preset_names() if ":" not in name]
TARTAN = ["tapt", "dapt", "dapt-tapt", "mt-tartan", "meta-tartan"]
FROM_CHECKPOINT = ["finetune-tlm", "finetune-dsp", "checkpoint-mlm", "iss-dapt", *TARTAN]


class Row(NamedTuple):
    """One line of Table B.1: the values of the eight tasks at small | medium | large scale."""

    small: list[int]
    medium: list[int]
    large: list[int]


def row(text: str, factor: int = 1) -> Row:
    return Row(*([int(number) * factor for number in part.split()] for part in text.split("|")))


TOP_K = row(
    "50 5000 50 500 5000 5000 5000 50 | 50 5000 50 500 5000 5000 5000 50 | 100 10000 100 1000 10000 10000 10000 100"
)
RHO1 = row("1 99 1 19 999 999 999 3 | 3 99 1 99 999 999 999 3 | 3 499 7 99 1999 1999 1999 7")
RHO2 = row("100 20 100 100 100 20 20 20 | 100 100 1000 100 20 20 100 100 | 100 20 100 1000 20 20 20 100")
STEPS = row(
    "100 50 150 150 150 150 150 100 | 300 100 300 300 300 300 300 300 | 500 300 500 500 500 300 500 500", factor=1000
)
BATCH = row(
    "256 256 256 256 256 256 256 256 | 256 256 256 256 256 256 256 256 | 256 512 512 512 512 512 256 256",
)
EXTERNAL_LENGTH = row(
    "128 128 128 128 128 128 128 128 | 128 128 128 512 128 128 128 128 | 128 128 128 512 128 128 128 128"
)
INTERNAL_LENGTH = row(
    "128 128 128 512 128 128 128 128 | 128 128 128 512 128 128 128 128 | 128 128 128 512 128 128 128 128"
)


def load(preset: str, **given: Any) -> Settings:
    """A preset with a checkpoint named where it asks for one."""
    path = {"model": {"path": "hf:some/model"}} if preset in FROM_CHECKPOINT else {}
    return load_settings(preset=preset, given={**path, **given})


def complaint(preset: Any) -> str:
    with pytest.raises(InputError) as caught:
        load_settings(preset=preset)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("task", TASKS)
def test_table_b1(scale: str, task: str) -> None:
    settings, place = load_settings(preset=f"tlm-{scale}:{task}"), TASKS.index(task)
    budget, pretrain = settings.budget, settings.pretrain
    assert {
        "top_k": settings.retrieve.top_k,
        "rho1": pretrain.weighting.rho1,
        "rho2": pretrain.used_objectives["task"].rho2,
        "steps": (budget.amount, budget.unit),
        "batch": (pretrain.batch_size.amount, pretrain.batch_size.unit),
        "corpus": pretrain.max_length,
        "task": (pretrain.task_max_length, settings.finetune.max_length),
        "metric": settings.evaluate.metric,
        "query": settings.retrieve.query,
    } == {
        "top_k": getattr(TOP_K, scale)[place],
        "rho1": getattr(RHO1, scale)[place],
        "rho2": getattr(RHO2, scale)[place],
        "steps": (getattr(STEPS, scale)[place], "steps"),
        "batch": (getattr(BATCH, scale)[place], "texts"),
        "corpus": getattr(EXTERNAL_LENGTH, scale)[place],
        "task": (getattr(INTERNAL_LENGTH, scale)[place],) * 2,
        "metric": "micro_f1" if task in ("chemprot", "rct-20k") else "macro_f1",
        "query": "rake" if task == "helpfulness" else "full",
    }


ISS_BATCHES = {"candidates": [4, 1, 4, 4, 4, 4, 4, 4], "targets": [16, 1, 16, 16, 2, 4, 8, 16]}
ISS_STEPS = row("50 20 100 100 100 100 100 50 | 150 50 150 150 150 150 150 150 | 300 100 300 300 300 300 300 300", 1000)
ISS_RHO1 = row("1 99 1 19 999 999 999 3 | 1 99 1 19 999 999 999 3 | 3 99 1 99 999 999 999 3")
ISS_RHO2 = row("100 20 100 100 100 20 20 20 | 100 20 100 100 100 20 20 20 | 100 100 1000 100 20 20 100 100")


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("task", TASKS)
def test_table_a1_of_iss(scale: str, task: str) -> None:
    settings, place = load_settings(preset=f"iss-{scale}:{task}"), TASKS.index(task)
    own, pretrain = settings.select.options, settings.pretrain
    assert {
        "steps": (settings.budget.amount, settings.budget.unit),
        "rho": (pretrain.weighting.rho1, pretrain.used_objectives["task"].rho2),
        "batches": (own.candidate_batch, own.target_batch),
        "batch": (pretrain.batch_size.amount, pretrain.batch_size.unit),
        "length": pretrain.max_length,
        "model": (settings.model.architecture, settings.model.size),
        "kept": (settings.select.name, str(settings.select.budget)),
    } == {
        "steps": (getattr(ISS_STEPS, scale)[place], "steps"),
        "rho": (getattr(ISS_RHO1, scale)[place], getattr(ISS_RHO2, scale)[place]),
        "batches": (ISS_BATCHES["candidates"][place], ISS_BATCHES["targets"][place]),
        "batch": (256, "texts"),
        "length": 512 if task == "imdb" else 128,
        "model": ("bert", "base"),
        "kept": ("influence", "20%retrieved"),
    }
    assert settings.retrieve.top_k == getattr(TOP_K, scale)[place]


def test_the_scoring_model_of_isss_authors() -> None:
    own = load_settings(preset="iss-small").select.options
    assert (own.size, own.layers) == ("base", ("last",))
    assert (own.targets, own.measure, own.choice, own.share_of_budget) == ("dev", "dot", "top_k", None)
    assert (own.masks, own.score_mask_probability) == (1, 0.1)
    assert (own.recipe_values.masks_targets, own.recipe_values.most_targets) == (True, None)
    fitted = scoring_settings(load_settings(preset="iss-small:imdb"))
    model = fitted.model
    assert (model.architecture, model.size, model.pooling, model.dropout) == ("bert", "base", "cls", 0.1)
    pretrain = fitted.pretrain
    assert (pretrain.learning_rate, own.epochs, pretrain.weight_decay, pretrain.batch_size.amount) == (5e-5, 15, 0, 16)
    assert (
        pretrain.weighting.rho1,
        pretrain.used_objectives["task"].rho2,
        pretrain.mask_probability,
        pretrain.dropout,
        pretrain.max_length,
    ) == (0, 3, 0.1, 0.1, 128)


@pytest.mark.parametrize(("task", "batch"), [("rct-20k", 16), ("chemprot", 8), ("acl-arc", 2), ("scierc", 4)])
def test_table_a2_of_iss(task: str, batch: int) -> None:
    settings = load_settings(preset=f"iss-dapt:{task}", given={"model": {"path": "hf:some/model"}})
    assert (settings.budget.amount, settings.budget.unit) == (50_000, "steps")
    assert (settings.select.candidate_batch, settings.select.target_batch) == (batch, 4)
    assert (settings.pretrain.batch_size.amount, settings.pretrain.max_length, settings.pretrain.weighting.rho1) == (
        256,
        128,
        "inf",
    )


def test_a_task_that_a_paper_has_not_is_refused() -> None:
    line = "the preset 'iss-dapt' has no values for the task 'imdb' (known: acl-arc, scierc, chemprot, rct-20k)"
    assert complaint("iss-dapt:imdb") == line


@pytest.mark.parametrize("scale", SCALES)
def test_an_own_task_gets_what_is_usual_in_the_table(scale: str) -> None:
    settings = load_settings(preset=f"tlm-{scale}")
    assert settings.budget.amount == median(getattr(STEPS, scale))
    assert settings.pretrain.batch_size.amount == median(getattr(BATCH, scale))
    assert settings.pretrain.used_objectives["task"].rho2 == min(multimode(getattr(RHO2, scale)))
    assert settings.pretrain.max_length == median(getattr(EXTERNAL_LENGTH, scale))
    assert settings.pretrain.weighting.rho1 == "auto"
    assert settings.retrieve.top_k == ("auto_large" if scale == "large" else "auto")
    assert settings.evaluate.metric == "auto", "macro_f1 for classes"


@pytest.mark.parametrize("name", [name for name in preset_names() if name.startswith("tlm-")])
def test_what_the_authors_code_says_of_stage_1(name: str) -> None:
    settings = load_settings(preset=name)
    model, pretrain = settings.model, settings.pretrain
    assert (model.architecture, model.size) == ("bert", "large" if "large" in name else "base")
    assert (settings.tokenizer.kind, settings.tokenizer.vocab_size) == ("wordpiece", 30522)
    assert settings.tokenizer.lowercase
    assert (settings.skip_pretraining, settings.skip_finetuning, settings.precision) == (False, False, "auto")
    assert (settings.select.name, settings.select.budget) == ("best_rank", None)
    assert (pretrain.learning_rate, pretrain.weight_decay) == (1e-4, 0.01)
    assert (ADAM_BETA1, pretrain.adam_beta2, ADAM_EPSILON) == (0.9, 0.999, 1e-6)
    assert (pretrain.lr_scheduler_type, pretrain.warmup_steps, pretrain.max_grad_norm) == ("linear", 10_000, None)
    assert (pretrain.dropout, model.dropout) == (0.1, 0.1)
    assert (pretrain.mask_probability, pretrain.mask_rare_exponent) == (0.15, 0)
    assert (pretrain.gradient_accumulation_steps, pretrain.batch_ramp_fraction) == (1, 0)
    assert (pretrain.truncate_passages, pretrain.task_head) == (True, "tlm")


@pytest.mark.parametrize("name", [*(name for name in preset_names() if name.startswith("tlm-")), "finetune-tlm"])
def test_tlms_fine_tuning(name: str) -> None:
    finetune = load(name).finetune
    assert (finetune.learning_rate, finetune.weight_decay) == (2e-5, 0)
    assert (ADAM_BETA1, finetune.adam_beta2, ADAM_EPSILON) == (0.9, 0.999, 1e-6)
    assert (finetune.lr_scheduler_type, finetune.warmup_steps, finetune.max_grad_norm) == ("linear", 3000, None)
    assert (finetune.batch_size.amount, finetune.batch_size.unit) == (32, "texts")
    assert (finetune.max_steps, finetune.eval_steps, finetune.early_stopping_patience) == (30_000, 1000, None)
    assert (finetune.start_from, finetune.head, len(finetune.seeds)) == ("last", "new", 3)


def test_the_papers_values_do_not_hang_on_our_defaults() -> None:
    (layer,) = preset_layers("tlm-small")
    optimizer = {"learning_rate", "weight_decay", "adam_beta2"}
    both = {*optimizer, "lr_scheduler_type", "warmup_steps", "max_grad_norm", "batch_size", "max_length"}
    stage_1 = {
        "weighting",
        "objectives",
        "task_head",
        "truncate_passages",
        "dropout",
    }
    assert set(layer["pretrain"]["weighting"]) == {"rho1"}
    assert {name: set(options) for name, options in layer["pretrain"]["objectives"].items()} == {"task": {"rho2"}}
    assert set(layer["pretrain"]) == both | stage_1 | {"mask_probability"}
    assert set(layer["finetune"]) == both | {"max_steps", "eval_steps", "start_from", "head", "seeds"}


def test_fine_tuning_as_in_dont_stop_pretraining() -> None:
    settings = load("finetune-dsp")
    finetune = settings.finetune
    assert (settings.skip_pretraining, settings.select.name, settings.model.dropout) == (True, "none", 0.1)
    assert (finetune.learning_rate, finetune.weight_decay, finetune.max_grad_norm) == (2e-5, 0.1, 1.0)
    assert (finetune.batch_size.amount, finetune.max_length, finetune.max_steps) == (16, 512, None)
    assert (finetune.epochs, finetune.early_stopping_patience, finetune.eval_steps) == (10, 3, None)


def test_the_small_pretrained_encoder_is_named_and_needs_no_stage_1() -> None:
    settings = load("finetune-small-pretrained")
    finetune = settings.finetune
    assert (settings.skip_pretraining, settings.select.name, settings.model.dropout) == (True, "none", 0.1)
    assert settings.model.path == SMALL_PRETRAINED
    assert (finetune.learning_rate, finetune.epochs, finetune.max_steps) == (1e-4, 12, None)
    assert (finetune.batch_size.amount, finetune.max_length, finetune.early_stopping_patience) == (32, 256, None)


def test_few_labels_bring_the_mean_vectors_of_a_class_together() -> None:
    settings = load("few-labels")
    finetune = settings.finetune
    assert (settings.skip_pretraining, settings.model.path, settings.model.pooling) == (True, SMALL_PRETRAINED, "mean")
    assert finetune.contrastive > 0
    assert finetune.eval_steps == finetune.max_steps, "dev is scored once: the last weights"


def test_a_checkpoint_gets_masked_lm_on_the_tasks_texts() -> None:
    settings = load("checkpoint-mlm")
    assert (settings.skip_pretraining, settings.skip_finetuning, settings.select.name) == (False, False, "none")
    assert settings.pretrain.used_objectives["task"].rho2 > 0
    assert settings.finetune == load("finetune-tlm").finetune


@pytest.mark.parametrize("name", ["mt-tartan", "meta-tartan"])
def test_what_tartans_authors_code_says(name: str) -> None:
    settings = load(name)
    pretrain, finetune = settings.pretrain, settings.finetune
    used = {objective: (one.kind, one.reads) for objective, one in pretrain.used_objectives.items()}
    assert used == {"task": ("task", "task"), "tapt": ("mlm", "task")}, "Table 1"
    assert (pretrain.learning_rate, pretrain.weight_decay, pretrain.warmup_steps) == (1e-4, 0.01, 0.06)
    assert (pretrain.head_learning_rate, pretrain.head_weight_decay) == (1e-3, 0.1)
    assert (ADAM_BETA1, pretrain.adam_beta2, ADAM_EPSILON) == (0.9, 0.98, 1e-6)
    assert (pretrain.clip_heads_apart, pretrain.max_grad_norm, pretrain.lr_scheduler_type) == (True, 1.0, "linear")
    assert (pretrain.batch_size.amount, pretrain.gradient_accumulation_steps, pretrain.max_length) == (64, 2, 512)
    assert (pretrain.eval_steps, pretrain.early_stopping_patience, pretrain.mask_probability) == (30, 20, 0.15)
    assert (finetune.learning_rate, finetune.epochs, finetune.early_stopping_patience) == (5e-6, 10, 3)
    assert (finetune.start_from, finetune.head, finetune.keep_better) == ("best", "pretrained", True)
    assert str(settings.domain.amount) == "10x"


def test_how_tartans_paper_learns_weights() -> None:
    meta = load("meta-tartan").pretrain.weighting
    assert (meta.name, load("mt-tartan").pretrain.weighting.name) == ("meta", "equal")
    assert (meta.learning_rate, meta.every, meta.floor) == (1e-2, 1, 0)
    assert (meta.parameters, meta.split, meta.head) == ("all", "dev", "adamw")
    assert (meta.fit_batch, meta.gradient_batch) == (32, 64)
    assert (HEAD_STEPS, HEAD_LEARNING_RATE, HEAD_WEIGHT_DECAY) == (10, 1e-3, 0.1)


def test_the_other_tables_of_tartan_are_a_weight_away() -> None:
    table_4 = ["model.path=a", "pretrain.objectives.dapt.weight=1", "pretrain.objectives.tapt.weight=0"]
    used = load_settings(preset="mt-tartan", overrides=table_4).pretrain.used_objectives
    assert {name: one.reads for name, one in used.items()} == {"task": "task", "dapt": "domain"}
    table_2 = load_settings(preset="meta-tartan", overrides=table_4[:2]).pretrain.used_objectives
    assert list(table_2) == ["task", "dapt", "tapt"]  # as a sequence: the domain first


def test_further_pre_training_as_in_dont_stop_pretraining() -> None:
    tapt, dapt, both = load("tapt"), load("dapt"), load("dapt-tapt")
    found: dict[str, set[tuple[str, int, float]]] = {}
    for settings in (tapt, dapt, both):
        pretrain = settings.pretrain
        assert settings.finetune == load("finetune-dsp").finetune
        for name, one in pretrain.used_objectives.items():
            batch = (one.batch_size or pretrain.batch_size).amount * pretrain.gradient_accumulation_steps
            found.setdefault(name, set()).add((one.reads, batch, one.learning_rate or pretrain.learning_rate))
    assert found == {"tapt": {("task", 256, 1e-4)}, "dapt": {("domain", 2048, 5e-4)}}
    assert (dapt.budget.amount, str(dapt.domain.amount)) == (12_500, "all")
    assert [one.weight for one in both.pretrain.used_objectives.values()] == [12_500, tapt.budget.amount]
    assert both.budget.amount == dapt.budget.amount + tapt.budget.amount


@pytest.mark.parametrize("name", TARTAN)
def test_from_random_weights_the_same_is_learned(name: str) -> None:
    settings, scratch = load(name), load(f"{name}-scratch")
    assert scratch.model.path is None
    assert scratch.pretrain.weighting == settings.pretrain.weighting
    assert {one: (found.kind, found.reads, found.weight) for one, found in scratch.pretrain.objectives.items()} == {
        one: (found.kind, found.reads, found.weight) for one, found in settings.pretrain.objectives.items()
    }


def test_tlm_with_learned_weights_leaves_dev_alone() -> None:
    settings = load("meta-tlm")
    used = {name: (one.kind, one.reads) for name, one in settings.pretrain.used_objectives.items()}
    assert used == {"task": ("task", "task"), "task_mlm": ("mlm", "task"), "corpus": ("mlm", "selection")}
    weighting = settings.pretrain.weighting
    assert (weighting.name, weighting.split, settings.model.path) == ("meta", "folds", None)


@pytest.mark.parametrize("name", ["finetune-tlm", "finetune-dsp", "finetune-small-pretrained", "finetune-scratch"])
def test_fine_tuning_alone_is_not_cut_short_by_a_budget(name: str) -> None:
    assert load(name).budget.unit == "steps"


@pytest.mark.parametrize("name", FROM_CHECKPOINT)
def test_a_preset_for_a_checkpoint_asks_for_one(name: str) -> None:
    assert complaint(name) == "key 'model.path': name the checkpoint to start from, a folder, hf:NAME or package:NAME"
    assert load_settings(preset=name, overrides=["model.path=folder"]).model.path == "folder"


@pytest.mark.parametrize(
    ("spelling", "task"),
    [
        ("ag", "agnews"),
        ("ag_news", "agnews"),
        ("hyp", "hyperpartisan"),
        ("hyperpartisan_news", "hyperpartisan"),
        ("amazon", "helpfulness"),
        ("IMDB", "imdb"),
        ("ACL-ARC", "acl-arc"),
        ("citation_intent", "acl-arc"),
        ("SciERC", "scierc"),
        ("sciie", "scierc"),
        ("rct", "rct-20k"),
        ("rct_20k", "rct-20k"),
    ],
)
def test_data_folders_names_are_understood(spelling: str, task: str) -> None:
    assert load_settings(preset=f"tlm-small:{spelling}") == load_settings(preset=f"tlm-small:{task}")


def test_a_file_may_name_a_preset_with_a_task(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("preset: tlm-large:hyperpartisan\npretrain: {objectives: {task: {rho2: 7}}}\n")
    settings = load_settings(path)
    assert (settings.pretrain.weighting.rho1, settings.pretrain.used_objectives["task"].rho2, settings.model.size) == (
        499,
        7,
        "large",
    )


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("latop", "unknown preset 'latop' (did you mean 'laptop'?)"),
        ("tlm-smal:chemprot", "unknown preset 'tlm-smal:chemprot' (did you mean 'tlm-small:chemprot'?)"),
        ("tlm-small-chemprot", "unknown preset 'tlm-small-chemprot' (did you mean 'tlm-small:chemprot'?)"),
        ("tlm-small:chemprt", "unknown task 'chemprt' behind the preset 'tlm-small' (did you mean 'chemprot'?)"),
        ("gpu:chemprot", "the preset 'gpu' has no values for single tasks (write gpu alone)"),
    ],
)
def test_a_wrong_name_is_met_with_the_right_one(name: str, line: str) -> None:
    assert complaint(name) == line


@pytest.mark.parametrize("task", ["", "zzzzzz"])
def test_an_unknown_task_is_met_with_all_of_them(task: str) -> None:
    line = complaint(f"tlm-large:{task}")
    assert line.startswith(f"unknown task {task!r} behind the preset 'tlm-large' (known: ")
    assert all(name in line for name in TASKS)


def test_a_name_like_no_other_is_met_with_the_files() -> None:
    assert complaint("zzzzzz") == f"unknown preset 'zzzzzz' (known: {', '.join(FILES)})"


def test_the_names_are_those_of_the_files_and_of_the_tasks(repository: Path) -> None:
    files = {path.stem for path in (repository / "src" / "endtask" / "config" / "presets").glob("*.yaml")}
    assert files == {
        *("iss-small", "iss-medium", "iss-large"),
        *("laptop", "gpu", "gpu-long", "demo", "tlm-small", "tlm-medium", "tlm-large"),
        *FROM_CHECKPOINT,
        *(f"{name}-scratch" for name in TARTAN),
        "meta-tlm",
        *("finetune-small-pretrained", "finetune-scratch", "few-labels"),
    }
    with_task = {f"{method}-{scale}:{task}" for method in ("tlm", "iss") for scale in SCALES for task in TASKS}
    with_task |= {f"iss-dapt:{task}" for task in DAPT_TASKS}
    assert preset_names() == sorted(files | with_task)


@pytest.mark.parametrize("name", FILES)
def test_presets_load_and_are_short_and_commented(repository: Path, name: str) -> None:
    text = (repository / "src" / "endtask" / "config" / "presets" / f"{name}.yaml").read_text(encoding="utf-8")
    assert load(name, seed=7).seed == 7
    assert text.startswith("# ")
    assert len(text.splitlines()) <= 60


@pytest.mark.parametrize("name", preset_names())
def test_reading_a_preset_twice_gives_the_same(name: str) -> None:
    first = preset_layers(name)
    first[-1].clear()
    assert preset_layers(name)[-1] != {}


def test_fast_presets_count_tokens_and_the_demo_texts() -> None:
    gpu, laptop, demo = (load_settings(preset=name) for name in ("gpu", "laptop", "demo"))
    assert (gpu.model.architecture, gpu.model.size, str(gpu.pretrain.batch_size)) == ("lean", "compact", "65536tok")
    assert (gpu.device, gpu.precision, gpu.compile) == ("cuda", "bfloat16", "auto")
    assert (laptop.model.architecture, laptop.model.size, str(laptop.pretrain.batch_size)) == (
        "lean",
        "tiny",
        "4096tok",
    )
    assert (demo.pretrain.batch_size.unit, demo.finetune.batch_size.unit) == ("texts", "texts")


def test_task_adaptive_pre_training_falls_linearly_without_a_warm_up() -> None:
    model = ["model.path=a"]
    tapt = load_settings(preset="tapt", overrides=model).pretrain
    assert (tapt.lr_scheduler_type, tapt.warmup_steps) == ("linear", 0)
    both = load_settings(preset="dapt-tapt", overrides=model).pretrain
    assert both.lr_scheduler_type == "linear"
    assert {name: one.warmup_steps for name, one in both.objectives.items()} == {"dapt": None, "tapt": 0}
