"""Products of rows equal products of whole gradients from autograd for single texts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from endtask.encoders.batch import BatchShape, TextBatch
from endtask.encoders.device_context import DeviceContext
from endtask.encoders.network import TLM_TASK, Network
from endtask.gradients.engine import GradientEngine, TextLosses, masked_lm_losses, task_losses
from endtask.gradients.rows import LinearRows, LookupRows
from endtask.gradients.targets import STRATEGIES, Options, Strategy, products
from tests.gradients.batches import PAD, labelled_batch, make_network, masked_batch
from tests.gradients.oracle import flat_gradients, relative_error
from tests.tiny import ARCHITECTURES

LAYERS = ("last", "half", "embedding", "*")
LENGTHS = st.lists(st.integers(2, 9), min_size=1, max_size=5)


def flat_pair(
    network: Network, masked: TextBatch, labelled: TextBatch, layers: tuple[str, ...]
) -> tuple[Tensor, Tensor]:
    return (
        flat_gradients(network, masked, masked_lm_losses, layers),
        flat_gradients(network, labelled, task_losses, layers),
    )


def engine_products(
    network: Network, masked: TextBatch, labelled: TextBatch, layers: tuple[str, ...], options: Options | None = None
) -> Tensor:
    engine = GradientEngine(network, layers)
    candidates, targets = engine.gradients(masked, masked_lm_losses), engine.gradients(labelled, task_losses)
    return products(candidates, targets, options=options)


@settings(max_examples=15)
@given(
    model=st.sampled_from([("lean", "mean"), ("lean", "cls"), ("bert", "cls")]),
    shape=st.sampled_from([(8, 2), (12, 3), (4, 1)]),
    depth=st.integers(1, 3),
    candidates=LENGTHS,
    targets=LENGTHS,
    seed=st.integers(0, 1000),
    probability=st.floats(0.05, 0.9),
    chosen=st.sets(st.sampled_from(LAYERS), min_size=1, max_size=2),
    strategy=st.sampled_from([None, *STRATEGIES]),
)
def test_products_equal_those_of_a_loop(
    model: tuple[str, str],
    shape: tuple[int, int],
    depth: int,
    candidates: list[int],
    targets: list[int],
    seed: int,
    probability: float,
    chosen: set[str],
    strategy: Strategy | None,
) -> None:
    network = make_network(model[0], pooling=model[1], hidden=shape[0], heads=shape[1], layers=depth)
    masked = masked_batch(network, candidates, seed=seed, probability=probability)
    labelled = labelled_batch(network, targets, seed=seed + 1)
    layers = tuple(sorted(chosen))
    ours = engine_products(network, masked, labelled, layers, Options(strategy=strategy))
    assert relative_error(ours, *flat_pair(network, masked, labelled, layers)) < 1e-8


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("layers", [("last",), ("embedding",), ("*",)], ids=lambda layers: layers[0])
def test_every_encoder_in_single_precision(architecture: str, layers: tuple[str, ...]) -> None:
    network = make_network(architecture, dtype=torch.float32)
    masked = masked_batch(network, [9, 2, 5, 7], seed=1)
    labelled = labelled_batch(network, [4, 8, 3], seed=2)
    ours = engine_products(network, masked, labelled, layers)
    assert ours.dtype == torch.float32
    double = make_network(architecture)
    for one in (network, double):
        assert relative_error(ours.to(one.dtype), *flat_pair(one, masked, labelled, layers)) < 1e-4


@pytest.mark.parametrize("losses", [masked_lm_losses, task_losses])
@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_one_loss_against_itself_gives_squared_norms(architecture: str, losses: TextLosses) -> None:
    network = make_network(architecture)
    make_batch = masked_batch if losses is masked_lm_losses else labelled_batch
    batch = make_batch(network, [6, 9, 3])
    for layers in (("embedding",), ("last", "half"), ("*",)):
        gradients = GradientEngine(network, layers).gradients(batch, losses)
        flat = flat_gradients(network, batch, losses, layers)
        assert relative_error(products(gradients, gradients), flat, flat) < 1e-8
        cosines = products(gradients, gradients, "cosine").diagonal()
        assert torch.allclose(cosines, (flat.norm(dim=1) > 0).double())


def test_any_loss_will_do() -> None:
    network = make_network("bert", tlm_head=True)
    batch = labelled_batch(network, [6, 9, 3])

    def both(network: Network, hidden: Tensor, batch: TextBatch) -> Tensor:
        return 3 * masked_lm_losses(network, hidden, batch) + task_losses(network, hidden, batch, TLM_TASK)

    together = replace(masked_batch(network, [6, 9, 3]), labels=batch.labels)
    gradients = GradientEngine(network, ("*",)).gradients(together, both)
    flat = flat_gradients(network, together, both, ("*",))
    assert relative_error(products(gradients, gradients), flat, flat) < 1e-8


@pytest.mark.parametrize("architecture", ["lean", "bert"])
def test_a_room_with_padding_changes_nothing(architecture: str) -> None:
    network, lengths = make_network(architecture), [6, 9, 3]
    fixed_shape = BatchShape(tokens=25, texts=6, masked=16)
    exact = engine_products(network, masked_batch(network, lengths), labelled_batch(network, lengths), ("*",))
    padded = engine_products(
        network,
        masked_batch(network, lengths, fixed_shape=fixed_shape),
        labelled_batch(network, lengths, fixed_shape=fixed_shape),
        ("*",),
    )
    assert padded.shape == (3, 3)
    assert torch.allclose(padded, exact, rtol=1e-10)


def test_only_positions_that_the_head_reads_have_rows_in_the_last_layer() -> None:
    lengths = [9, 6, 7]
    for architecture, pooling, rows in (("bert", "auto", 3), ("lean", "cls", 3), ("lean", "mean", 22)):
        network = make_network(architecture, pooling=pooling)
        engine = GradientEngine(network)
        ((of_targets,),) = engine.gradients(labelled_batch(network, lengths), task_losses).blocks.values()
        masked = masked_batch(network, lengths)
        ((of_candidates,),) = engine.gradients(masked, masked_lm_losses).blocks.values()
        assert len(of_targets.owners) == rows
        assert len(of_candidates.owners) == masked.masked < masked.real_tokens


def test_a_text_without_masked_tokens_has_no_gradient() -> None:
    network = make_network()
    masked = masked_batch(network, [2, 9], probability=0.5)
    gradients = GradientEngine(network, ("*",)).gradients(masked, masked_lm_losses)
    scores = products(gradients, gradients)
    assert scores[0].tolist() == [0, 0]
    assert scores[1, 1] > 0
    assert products(gradients, gradients, "cosine")[0].tolist() == [0, 0]
    nothing = GradientEngine(network, ("*",)).gradients(masked_batch(network, [2, 2]), masked_lm_losses)
    assert products(nothing, gradients).tolist() == [[0, 0], [0, 0]]


def test_word_vectors_are_used_twice_and_the_padding_vector_is_never_read() -> None:
    network = make_network()
    masked = masked_batch(network, [9, 9], probability=0.9)
    masked.input_ids[masked.masked_positions[0]] = PAD  # as the masking's random token may be
    ((output, lookup),) = (
        sorted(uses, key=lambda rows: isinstance(rows, LookupRows))
        for uses in GradientEngine(network, ("embedding",)).gradients(masked, masked_lm_losses).blocks.values()
    )
    assert isinstance(output, LinearRows)
    assert isinstance(lookup, LookupRows)
    assert len(output.owners) == masked.masked
    assert len(lookup.owners) == 17
    assert PAD not in lookup.tokens
    labelled = labelled_batch(network, [5])
    ours = engine_products(network, masked, labelled, ("embedding",))
    assert relative_error(ours, *flat_pair(network, masked, labelled, ("embedding",))) < 1e-8


def rank_correlation(one: Tensor, other: Tensor) -> float:
    """The lowest over the targets (columns)."""
    pairs = zip(*(scores.argsort(0).argsort(0).double().T for scores in (one, other)), strict=True)
    return min(float(torch.corrcoef(torch.stack(pair))[0, 1]) for pair in pairs)


@pytest.mark.parametrize("architecture", ["lean", "bert"])
@pytest.mark.parametrize("layers", [("last",), ("half",)], ids=lambda layers: layers[0])
def test_bfloat16_ranks_as_double_precision_does(architecture: str, layers: tuple[str, ...]) -> None:
    lengths = list(np.random.default_rng(0).integers(8, 16, size=20))
    network = make_network(architecture, hidden=32, dtype=torch.float32, shaken=False)
    masked, labelled = masked_batch(network, lengths, seed=1), labelled_batch(network, lengths[:6], seed=2)
    network.dtype = torch.bfloat16
    engine = GradientEngine(network, layers, DeviceContext(torch.device("cpu"), torch.bfloat16))
    ours = products(engine.gradients(masked, masked_lm_losses), engine.gradients(labelled, task_losses))
    one, other = flat_pair(make_network(architecture, hidden=32, shaken=False), masked, labelled, layers)
    assert rank_correlation(ours, one @ other.T) >= 0.99


def test_the_network_is_left_as_it_was() -> None:
    network = make_network(dropout=0.5)
    network.train()
    network.heads["task"].eval()
    network.encoder.final_norm.weight.requires_grad_(False)
    before = [module.training for module in network.modules()]
    wanted = [weight.requires_grad for weight in network.parameters()]
    engine = GradientEngine(network, ("*",))
    batch = labelled_batch(network, [6, 9])
    with torch.no_grad():
        first = engine.gradients(batch, task_losses)
        second = engine.gradients(batch, task_losses)
    assert [module.training for module in network.modules()] == before
    assert [weight.requires_grad for weight in network.parameters()] == wanted
    assert all(weight.grad is None for weight in network.parameters())
    assert torch.equal(products(first, first), products(second, second))  # dropout was off


@pytest.mark.parametrize(
    ("architecture", "layers", "lowest"),
    [
        ("bert", ("last",), 2),
        *((architecture, ("half", "last"), 1) for architecture in ("lean", "bert")),
        *((architecture, ("embedding",), -1) for architecture in ("lean", "bert")),
    ],
)
def test_nothing_below_the_lowest_chosen_layer_is_differentiated(
    architecture: str, layers: tuple[str, ...], lowest: int
) -> None:
    network = make_network(architecture, layers=3)
    # The layer that holds the chosen weight is the first whose output has a graph; its input has none.
    stack = network.encoder.layers if architecture == "lean" else network.encoder.encoder.layer
    graphs: list[tuple[bool, bool]] = []

    def look(module: torch.nn.Module, inputs: tuple[Tensor, ...], output: Tensor | tuple[Tensor, ...]) -> None:
        graphs.append((inputs[0].requires_grad, _first(output).requires_grad))

    hooks = [module.register_forward_hook(look) for module in stack]
    GradientEngine(network, layers).gradients(masked_batch(network, [6, 9]), masked_lm_losses)
    for hook in hooks:
        hook.remove()
    assert [after for _, after in graphs] == [number >= lowest for number in range(3)]
    assert [before for before, _ in graphs] == [number > lowest for number in range(3)]


def test_the_lower_half_of_a_cut_encoder_is_not_differentiated() -> None:
    network = make_network("lean", layers=3)
    stack = network.encoder.layers
    graphs: list[bool] = []
    hooks = [
        module.register_forward_hook(lambda module, inputs, output: graphs.append(output.requires_grad))
        for module in stack
    ]
    GradientEngine(network, ("half",)).gradients(masked_batch(network, [6, 9]), masked_lm_losses)
    for hook in hooks:
        hook.remove()
    assert graphs == [False, True]  # below and above; the layer in between runs in two parts


def _first(output: Tensor | tuple[Tensor, ...]) -> Tensor:
    return output if isinstance(output, Tensor) else output[0]


def test_a_network_that_trains_compiled_is_read_as_written() -> None:
    network = make_network("lean")
    batch = labelled_batch(network, [6, 9])
    before = GradientEngine(network, ("*",)).gradients(batch, task_losses)
    network.compile_parts()
    after = GradientEngine(network, ("*",)).gradients(batch, task_losses)
    assert torch.equal(products(before, before), products(after, after))


def test_a_weight_that_is_not_used_is_named() -> None:
    network = make_network()
    engine = GradientEngine(network, ("*",))
    engine.weights["spare"] = torch.nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="no use of spare was seen"):
        engine.gradients(labelled_batch(network, [4]), task_losses)
