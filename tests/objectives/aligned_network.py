"""A tiny network with a head for an aligned objective."""

from __future__ import annotations

import copy

from endtask.config import ModelSettings
from endtask.encoders.network import Network, build_network
from tests.aligned_toy import make_tokenizer
from tests.tiny import LABELS

HEAD = "aligned_toy"


def make_aligned_network(
    classes: int, *, tokens: bool = False, kind: str = "wordpiece", architecture: str = "lean"
) -> Network:
    """Reads up to 128 tokens; its extra head answers for every token or every text."""
    tokenizer = make_tokenizer(kind)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 128}
    network = build_network(
        ModelSettings.model_validate({"architecture": architecture, "dropout": 0.0, **sizes}),
        vocabulary=len(tokenizer),
        special_ids={"pad": tokenizer.pad_token_id, "cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id},
        labels=LABELS,
        seed=0,
    )
    config = copy.deepcopy(network.config)
    config.id2label = dict(enumerate(map(str, range(classes))))
    of_tokens, of_texts = network.architecture.token_head, network.architecture.task_head
    network.add_head(HEAD, of_tokens(config) if tokens else of_texts(config), seed=1)
    return network
