"""Between our network and Hugging Face model folders; missing or unexpected weights are errors."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor
from transformers import BertForMaskedLM, BertForSequenceClassification

from endtask.models.network import Network


def to_sequence_classification(network: Network) -> BertForSequenceClassification:
    """The stock classifier with the network's weights: plain `from_pretrained` loads what it saves."""
    model = BertForSequenceClassification(network.config)
    weights = _renamed(network, {"body.": "bert.", "task.pooler.": "bert.pooler.", "task.classifier.": "classifier."})
    model.load_state_dict(weights, strict=True)
    model.eval()
    return model


def to_masked_lm(network: Network) -> BertForMaskedLM:
    """The stock masked language model with the network's weights, to go on from elsewhere."""
    model = BertForMaskedLM(network.config)
    weights = _renamed(
        network,
        {
            "body.": "bert.",
            "masked_lm.transform.": "cls.predictions.transform.",
            "masked_lm.bias": "cls.predictions.bias",
        },
    )
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"]
    weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"]
    model.load_state_dict(weights, strict=True)
    model.eval()
    return model


def save_classifier(network: Network, folder: Path) -> None:
    """Write config and weights the way Hugging Face does."""
    to_sequence_classification(network).save_pretrained(str(folder))


def _renamed(network: Network, prefixes: dict[str, str]) -> dict[str, Tensor]:
    """The network's weights under Hugging Face's names; weights without a new name stay behind."""
    renamed = {}
    for name, weight in network.state_dict().items():
        for old, new in prefixes.items():
            if name.startswith(old):
                renamed[new + name.removeprefix(old)] = weight
    return renamed
