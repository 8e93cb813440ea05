"""A checkpoint in half precision: half the bytes, the same model as far as float16 can tell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.half_checkpoint import halve, main
from endtask.config import ModelSettings
from endtask.encoders.checkpoint import load_network, open_checkpoint
from endtask.errors import InputError
from endtask.tokenization.tokenizer import load_tokenizer, save_tokenizer
from tests.encoders.stock_models import save_stock
from tests.tiny import LABELS, make_tokenizer


@pytest.mark.parametrize("shard", ["1GB", "5KB"])
def test_it_is_half_as_large_and_loads_as_before(tmp_path: Path, shard: str) -> None:
    save_stock(tmp_path / "stock", "bert").save_pretrained(tmp_path / "whole", max_shard_size=shard)
    save_tokenizer(make_tokenizer(), tmp_path / "whole")
    written = halve(str(tmp_path / "whole"), tmp_path / "half")
    assert all({value.dtype for value in load_file(file).values()} == {torch.float16} for file in written)
    whole, half = (
        load_network(open_checkpoint(str(tmp_path / name)), ModelSettings(), pad_id=0, labels=LABELS, seed=0)
        for name in ("whole", "half")
    )
    for name, value in half.state_dict().items():
        assert value.dtype == torch.float32
        assert value.allclose(whole.state_dict()[name], atol=2e-3), name
    assert load_tokenizer(tmp_path / "half").get_vocab() == make_tokenizer().get_vocab()


def test_whole_numbers_stay_and_too_large_ones_are_refused(tmp_path: Path) -> None:
    save_stock(tmp_path / "whole", "bert", "bare")
    file = tmp_path / "whole" / "model.safetensors"
    tensors = load_file(file) | {"embeddings.position_ids": torch.arange(24)}
    save_file(tensors, file)
    (written,) = halve(str(tmp_path / "whole"), tmp_path / "half")
    assert load_file(written)["embeddings.position_ids"].equal(torch.arange(24))
    save_file(tensors | {"pooler.dense.bias": torch.full((16,), 1e5)}, file)
    with pytest.raises(InputError, match=r"pooler.dense.bias holds numbers too large for half precision"):
        halve(str(tmp_path / "whole"), tmp_path / "half")


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_stock(tmp_path / "whole", "bert", "bare")

    def call(*arguments: object) -> None:
        monkeypatch.setattr(sys, "argv", ["half_checkpoint", *map(str, arguments)])
        main()

    call(tmp_path / "whole", tmp_path / "half")
    assert capsys.readouterr().out.endswith(f"MB of weights in {tmp_path / 'half'}\n")
    with pytest.raises(SystemExit, match=r"absent, key 'model.path': no such checkpoint folder"):
        call(tmp_path / "absent", tmp_path / "half")
    with pytest.raises(SystemExit, match="usage: "):
        call(tmp_path / "whole")
