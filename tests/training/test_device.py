"""Device, precision and attention of a phase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from endtask.config import BatchSize, Settings
from endtask.encoders import attention as attention_module
from endtask.encoders import network as network_module
from endtask.encoders.device_context import DeviceContext
from endtask.errors import InputError
from endtask.objectives.mlm import MaskedLM
from endtask.objectives.stream import TextStream
from endtask.training import device as device_module
from endtask.training.device import check_device, choose_device, choose_device_context, move
from endtask.training.loop import build_optimizer, train
from endtask.training.phase import Phase
from endtask.weighting.equal import Equal
from tests.tiny import make_masking, make_network, make_packed

from .numbers import number_phase

CPU = torch.device("cpu")


@pytest.fixture
def present(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say which devices this machine has."""

    def set_present(*names: str, bfloat16: bool = True) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in names)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bfloat16)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in names)

    return set_present


@pytest.mark.parametrize(("names", "chosen"), [((), "cpu"), (("mps",), "mps"), (("cuda", "mps"), "cuda")])
def test_auto_takes_the_best_one_present(present: Any, names: tuple[str, ...], chosen: str) -> None:
    present(*names)
    assert choose_device(Settings(device="auto")) == torch.device(chosen)


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_a_missing_device_is_one_line(present: Any, device: Any) -> None:
    present()
    with pytest.raises(InputError, match=rf"key 'device': this machine has no {device} device \(use device=auto\)"):
        choose_device_context(Settings(device=device))


def test_the_cpu_can_always_be_asked_for(present: Any) -> None:
    present("cuda")
    assert choose_device(Settings(device="cpu")) == CPU


@pytest.mark.parametrize(("threads", "calls"), [(3, [3]), (None, [])])
def test_threads_are_set_if_asked_for(monkeypatch: pytest.MonkeyPatch, threads: int | None, calls: list[int]) -> None:
    seen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", seen.append)
    choose_device(Settings(device="cpu", threads=threads))
    assert seen == calls


@pytest.mark.parametrize(
    ("names", "bfloat16", "precision", "chosen"),
    [
        (("cuda",), True, "auto", torch.bfloat16),
        (("cuda",), False, "auto", torch.float32),
        (("cuda",), True, "float32", torch.float32),
        (("mps",), True, "auto", torch.float32),
        ((), True, "auto", torch.float32),
        ((), False, "bfloat16", torch.bfloat16),
    ],
)
def test_precision_is_as_asked_or_what_the_device_does_well(
    present: Any, names: tuple[str, ...], bfloat16: bool, precision: Any, chosen: torch.dtype
) -> None:
    present(*names, bfloat16=bfloat16)
    context = choose_device_context(Settings(precision=precision))
    assert (context.device.type, context.dtype) == ((*names, "cpu")[0], chosen)


@pytest.mark.parametrize(
    ("supported", "limit", "chosen"),
    [
        (True, None, torch.bfloat16),
        (True, "default", torch.bfloat16),
        (True, "AVX512_CORE_AMX", torch.bfloat16),
        (True, "AVX512_CORE", torch.float32),
        (False, None, torch.float32),
    ],
)
def test_a_cpu_with_amx_computes_in_bfloat16(
    present: Any, monkeypatch: pytest.MonkeyPatch, supported: bool, limit: str | None, chosen: torch.dtype
) -> None:
    present()
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: supported, raising=False)
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    if limit is not None:
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
    assert choose_device_context(Settings()).dtype == chosen
    assert choose_device_context(Settings(precision="float32")).dtype == torch.float32


def test_products_run_in_the_precision_of_the_place() -> None:
    layer, points = nn.Linear(3, 3), torch.ones(2, 3)
    with DeviceContext(CPU, torch.bfloat16).autocast():
        assert layer(points).dtype == torch.bfloat16
    with DeviceContext(CPU).autocast():
        assert layer(points).dtype == torch.float32
    assert not DeviceContext(CPU).pins_memory
    assert DeviceContext(torch.device("cuda")).pins_memory


@pytest.mark.parametrize("architecture", ["lean", "bert"])
@pytest.mark.parametrize("attention", ["auto", "padded"])
def test_without_a_gpu_attention_is_padded(architecture: str, attention: str) -> None:
    settings = Settings.model_validate({"model": {"attention": attention}})
    network = move(make_network(architecture), settings, DeviceContext(CPU))
    assert network.backend == "padded"
    assert network.layout(16).grid
    assert network.layout(16).padded == (architecture == "bert")
    assert not network.fixed_shapes


@pytest.mark.parametrize("attention", ["varlen", "flex"])
def test_a_kernel_that_is_not_there_is_one_line(attention: str) -> None:
    settings = Settings.model_validate({"model": {"attention": attention}})
    with pytest.raises(InputError, match=rf"key 'model.attention': {attention} does not work here \(cpu"):
        move(make_network(), settings, DeviceContext(CPU))
    with pytest.raises(InputError, match=rf"key 'model.attention': modernbert has padded, not {attention}"):
        move(make_network("modernbert"), settings, DeviceContext(CPU))


def test_bert_has_one_kernel_more_than_padded_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    flex = Settings.model_validate({"model": {"attention": "flex"}})
    with pytest.raises(InputError, match=r"key 'model.attention': bert has varlen and padded, not flex"):
        move(make_network("bert"), flex, DeviceContext(CPU))
    varlen = Settings.model_validate({"model": {"attention": "varlen"}})
    with pytest.raises(InputError, match=r"key 'model.attention': varlen does not work here \(cpu"):
        move(make_network("bert"), varlen, DeviceContext(CPU))
    monkeypatch.setattr(attention_module, "_varlen_works", lambda device, size: size == 8)
    for settings, backend in ((Settings(), "varlen"), (varlen, "varlen")):
        network = move(make_network("bert"), settings, DeviceContext(CPU, torch.bfloat16))
        assert (network.backend, network.layout(16).grid, network.layout(16).padded) == (backend, False, False)
    padded = Settings.model_validate({"model": {"attention": "padded"}})
    assert move(make_network("bert"), padded, DeviceContext(CPU, torch.bfloat16)).layout(16).padded
    assert move(make_network("modernbert"), Settings(), DeviceContext(CPU, torch.bfloat16)).backend == "padded"
    odd = make_network("bert")
    odd.config.num_attention_heads = 4  # a size of heads that the kernel does not have
    assert move(odd, Settings(), DeviceContext(CPU, torch.bfloat16)).backend == "padded"


@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_a_kernel_that_is_not_there_is_told_ahead(architecture: str) -> None:
    settings = Settings.model_validate(
        {"model": {"architecture": architecture, "attention": "varlen"}, "device": "cpu"}
    )
    with pytest.raises(InputError, match=r"key 'model.attention': varlen does not work here \(cpu"):
        check_device(settings)


@pytest.mark.parametrize(("backend", "grid"), [("varlen", False), ("flex", False), ("padded", True)])
def test_batches_are_laid_out_for_the_kernel_that_was_found(
    monkeypatch: pytest.MonkeyPatch, backend: str, grid: bool
) -> None:
    asked = []

    def choose(*arguments: object, **named: object) -> str:
        asked.append((*arguments, named["fixed_shapes"], named["head_size"]))
        return backend

    monkeypatch.setattr(network_module, "choose_backend", choose)
    network = move(make_network(), Settings(), DeviceContext(CPU, torch.bfloat16))
    assert asked == [("auto", CPU, torch.bfloat16, False, 8)]
    assert (network.backend, network.dtype, network.layout(16).grid) == (backend, torch.bfloat16, grid)


@pytest.mark.parametrize(
    ("compiled", "expected"), [("auto", False), (False, False), (True, True)], ids=["auto", "false", "true"]
)
@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_what_is_compiled_gets_batches_of_one_shape(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, compiled: Any, expected: bool, architecture: str
) -> None:
    parts: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda part, **options: parts.append(part))
    network = move(make_network(architecture), Settings(compile=compiled), DeviceContext(CPU))
    assert parts == ([network.encoder, network.heads["masked_lm"]] if expected else [])
    stream = stream_of(tmp_path, network)
    shapes = {stream.batch(step).input_ids.shape for step in range(6)}
    assert (len(shapes) == 1) == expected


def stream_of(folder: Path, network: Any) -> TextStream:
    texts = make_packed(folder)
    size = BatchSize.parse("64tok")
    return TextStream("any", texts, network, batch_size=size, seed=0, masking=make_masking())


def phase_of(folder: Path, settings: Settings, architecture: str = "lean") -> Phase:
    context = choose_device_context(settings)
    network = move(make_network(architecture), settings, context)
    network.fixed_shapes = True  # the same batches, compiled or not
    objective = MaskedLM("corpus", stream_of(folder, network))
    return number_phase(
        network=network, objectives={"corpus": objective}, weighting=Equal("corpus"), steps=4, context=context
    )


@pytest.mark.filterwarnings("ignore:mkldnn_matmul failed")  # a CPU without bfloat16 takes another way
@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_in_low_precision_it_trains_much_the_same(tmp_path: Path, architecture: str) -> None:
    losses = {}
    for precision in ("float32", "bfloat16"):
        settings = Settings.model_validate({"precision": precision, "device": "cpu"})
        phase = phase_of(tmp_path / precision, settings, architecture)
        records = list(train(phase, build_optimizer(phase)))
        losses[precision] = [float(record.losses["corpus/mlm"]) for record in records]
        assert all(weight.dtype == torch.float32 for weight in phase.network.parameters())
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.01)
    assert losses["bfloat16"] != losses["float32"]


def test_compiled_it_trains_the_same_and_compiles_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traced and differentiated ahead as on a GPU, but without a C++ compiler at the end, which takes a minute."""
    original = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda part, **options: original(part, backend="aot_eager", **options))
    losses = {}
    for compiled in (False, True):
        torch._dynamo.reset()
        counters.clear()
        phase = phase_of(tmp_path / str(compiled), Settings(compile=compiled))
        steps = train(phase, build_optimizer(phase))
        found = [next(steps)]
        graphs = counters["stats"]["unique_graphs"]
        found.extend(steps)
        losses[compiled] = [float(record.losses["corpus/mlm"]) for record in found]
        assert (graphs > 0) == compiled
        assert counters["stats"]["unique_graphs"] == graphs, "nothing compiled again"
    assert losses[True] == pytest.approx(losses[False], rel=1e-4)
    assert phase.network.state_dict().keys() == make_network().state_dict().keys()


@pytest.mark.parametrize(
    ("compile", "device", "tokens", "architecture", "expected"),
    [
        ("auto", "cpu", 1e6, "lean", "plain"),
        ("auto", "cuda", 1e6, "lean", "graphs"),
        ("auto", "cuda", 1e9, "lean", "compiled"),
        ("auto", "cuda", 1e6, "bert", "compiled"),
        ("graphs", "cuda", 1e9, "lean", "graphs"),
        ("graphs", "cpu", 1e6, "lean", "plain"),
        (True, "cuda", 1e6, "lean", "compiled"),
        (True, "cpu", 1e6, "lean", "compiled"),
        (False, "cuda", 1e6, "lean", "plain"),
    ],
)
def test_short_trainings_on_a_gpu_are_recorded_and_long_ones_compiled(
    compile: Any, device: str, tokens: float, architecture: str, expected: str
) -> None:
    settings = Settings.model_validate({"compile": compile})
    context = DeviceContext(torch.device(device))
    assert device_module._execution_mode(make_network(architecture), settings, context, tokens) == expected
