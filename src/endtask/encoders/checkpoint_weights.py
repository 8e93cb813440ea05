"""From a Hugging Face checkpoint to our network: the encoder whole, the masked-LM head where there is one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from endtask.encoders.network import Network
from endtask.encoders.weights import load_tensors
from endtask.errors import InputError

_KEY = "model.path"
_FETCH_AGAIN = "copy or download the checkpoint again"
_NAMED = 3
# Tables that earlier releases saved and the pooler, which is part of a task head here.
_NOT_ENCODER = ("embeddings.position_ids", "embeddings.token_type_ids", "pooler.")
Tensors = dict[str, Tensor]


def check_complete(files: Iterable[Path]) -> None:
    """Refuse files that were cut off, by their headers alone."""
    for file in files:
        try:
            with safe_open(str(file), framework="pt"):
                continue
        except SafetensorError as error:
            raise InputError(f"damaged: {error}", path=file, hint=_FETCH_AGAIN) from None


def read_tensors(files: Iterable[Path], encoder: str) -> Tensors:
    """All tensors of a checkpoint, named as in a model with a head; `encoder` is the prefix of the encoder's there."""
    tensors: Tensors = {}
    for file in files:
        tensors |= load_tensors(file, hint=_FETCH_AGAIN)[0]
    if not any(name.startswith(encoder) for name in tensors):  # saved without any head
        tensors = {encoder + name: value for name, value in tensors.items()}
    # Weights once converted from TensorFlow have its names for the two parts of a norm.
    named = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias", ".decoder.bias": ".bias"}
    for name in list(tensors):
        for old, new in named.items():
            if name.endswith(old):
                tensors.setdefault(name.removesuffix(old) + new, tensors.pop(name))
    return tensors


def fill_network(network: Network, tensors: Tensors, path: str) -> None:
    """Put a checkpoint's tensors into the network; of the encoder all must be there, and nothing unknown."""
    encoder = network.architecture.to_masked_lm["encoder."]
    names = _stock_names(network)
    expected = {stock for stock, own in names.items() if own.startswith("encoder.")}
    there = {name for name in tensors if name.startswith(encoder)}
    there -= {name for name in there if name.removeprefix(encoder).startswith(_NOT_ENCODER)}
    _check("lacks weights that its configuration asks for", expected - there, path)
    _check("holds weights that its configuration does not ask for", there - expected, path)
    if not _has_masked_lm_head(names.keys() - expected, tensors):
        names = {stock: names[stock] for stock in expected}
    _check("lacks part of its masked-LM head", names.keys() - tensors.keys(), path)
    _check_tied(network, tensors, path)
    _copy(network, {own: (stock, tensors[stock]) for stock, own in names.items()}, path)


def _stock_names(network: Network) -> dict[str, str]:
    """Names in the stock masked language model -> names in the network."""
    return {
        stock + name.removeprefix(own): name
        for own, stock in network.architecture.to_masked_lm.items()
        for name in network.state_dict()
        if name.startswith(own)
    }


def _has_masked_lm_head(names: Iterable[str], tensors: Tensors) -> bool:
    # A classifier's own head may have the same names, as ModernBERT's has.
    return not any(name.startswith("classifier.") for name in tensors) and any(name in tensors for name in names)


def _check_tied(network: Network, tensors: Tensors, path: str) -> None:
    """Our masked-LM head has no output matrix of its own but the word embeddings, as in all common checkpoints."""
    own = next(name for name, weights in network.named_parameters() if weights is network.embeddings)
    stock = next(stock for stock, name in _stock_names(network).items() if name == own)
    for name, value in tensors.items():
        if name.endswith("decoder.weight") and not value.equal(tensors[stock]):
            raise InputError(f"{name} is not equal to {stock}, which is not supported", path=path, key=_KEY)


def _copy(network: Network, tensors: dict[str, tuple[str, Tensor]], path: str) -> None:
    weights = network.state_dict()
    for own, (stock, value) in tensors.items():
        if value.shape != weights[own].shape:
            wanted, found = tuple(weights[own].shape), tuple(value.shape)
            raise InputError(f"{stock} has the shape {found}, its configuration says {wanted}", path=path, key=_KEY)
        weights[own].copy_(value)


def _check(trouble: str, names: set[str], path: str) -> None:
    if names:
        shown = ", ".join(sorted(names)[:_NAMED])
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        raise InputError(f"{trouble}: {shown}{more}", path=path, key=_KEY)
