"""Layers by name, path and pattern."""

from __future__ import annotations

import pytest

from endtask.errors import InputError
from endtask.gradients.capture import choose_weights
from tests.gradients.batches import make_network
from tests.tiny import ARCHITECTURES


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_depths_of_twelve_layers_are_those_of_the_iss_paper(architecture: str) -> None:
    network = make_network(architecture, layers=12)
    for name, number in (("quarter", 2), ("half", 5), ("three_quarters", 8), ("last", 11)):
        ((path, weight),) = choose_weights(network, [name]).items()
        assert f".{number}.att" in path
        assert weight is network.encoder.get_submodule(path).weight
        assert weight.shape == (8, 8)


@pytest.mark.parametrize(("layers", "numbers"), [(1, "0000"), (2, "0011"), (3, "0122"), (6, "1245")])
def test_depths_of_few_layers_exist(layers: int, numbers: str) -> None:
    network = make_network(layers=layers)
    names = ["quarter", "half", "three_quarters", "last"]
    assert [next(iter(choose_weights(network, [name]))) for name in names] == [f"layers.{n}.attn.Wo" for n in numbers]


def test_patterns_and_repeated_names_come_once_and_in_the_order_of_the_body() -> None:
    network = make_network()
    chosen = choose_weights(network, ["last", "layers.1.*", "layers.0.mlp.W?", "embedding"])
    assert list(chosen) == [
        "embeddings.tok_embeddings",
        *("layers.0.mlp.Wi", "layers.0.mlp.Wo"),
        *("layers.1.attn.Wqkv", "layers.1.attn.Wo", "layers.1.mlp.Wi", "layers.1.mlp.Wo"),
    ]
    assert chosen["embeddings.tok_embeddings"] is network.embeddings


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    network = make_network()
    with pytest.raises(InputError, match=r"lean has no layer 'lsat' \(did you mean 'last'\?\)"):
        choose_weights(network, ["lsat"])
    with pytest.raises(InputError, match=r"did you mean 'layers.1.attn.Wqkv'"):
        choose_weights(network, ["layers.1.attn.Wq"])


@pytest.mark.parametrize("layers", [[], "last"])
def test_no_list_of_layers_is_refused(layers: list[str]) -> None:
    with pytest.raises(InputError, match="key 'layers': give a list of at least one layer"):
        choose_weights(make_network(), layers)
