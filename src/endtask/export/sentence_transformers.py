"""`--to sentence-transformers`: the encoder of the saved model with mean pooling, for texts as vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from endtask.encoders.checkpoint_files import without_progress_bars
from endtask.encoders.huggingface import save_stock
from endtask.errors import InputError
from endtask.export.base import Facts, FolderExporter, TrainedRun, exporters, write_card
from endtask.export.encoder import copy_tokenizer
from endtask.export.model_card import CardKind
from endtask.io.atomic import write_json
from endtask.io.stage_folder import package_version, versions

_POOLING = "1_Pooling"
_USE = """from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer("path/to/this/folder").encode(["some text", "another text"])"""
_NOTES = (
    "This folder gives a vector for a text, the mean over its tokens by the fine-tuned encoder; the scores on this "
    "card are those of the classifier on top of it.",
)


@exporters.register("sentence-transformers")
class SentenceTransformers(FolderExporter):
    """A folder that `SentenceTransformer(path)` loads: encoder, mean pooling, maximum length."""

    def write(self, run: TrainedRun, folder: Path) -> Facts:
        encoder = _encoder_of(run.model)
        save_stock(encoder, folder)
        copy_tokenizer(run.model, folder)
        width = int(encoder.config.hidden_size)
        for name, content in _files(width, run.settings.finetune.max_length).items():
            (folder / name).parent.mkdir(exist_ok=True)
            write_json(folder / name, content)
        kind = CardKind(
            "sentence-transformers", usage=_USE, pipeline="feature-extraction", notes=_NOTES, with_times=True
        )
        write_card(run, folder, kind)
        return {"dimensions": width}


def _encoder_of(model: Path) -> Any:
    from transformers import AutoConfig, AutoModel

    from endtask.encoders.saved_model import EncoderConfig

    config = AutoConfig.from_pretrained(str(model), local_files_only=True)
    if isinstance(config, EncoderConfig):
        name = config.endtask_encoder
        raise InputError(f"the encoder {name!r} has no class in transformers", path=model, hint="use --to encoder")
    with without_progress_bars():
        encoder, _ = AutoModel.from_pretrained(str(model), local_files_only=True, output_loading_info=True)
    return encoder.eval()


def _files(width: int, max_length: int) -> dict[str, Any]:
    """Return the configuration files of the library, by name."""
    transformer = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    pooling = {"idx": 1, "name": "1", "path": _POOLING, "type": "sentence_transformers.models.Pooling"}
    found = versions()
    return {
        "modules.json": [transformer, pooling],
        "sentence_bert_config.json": {"max_seq_length": max_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "model_type": "SentenceTransformer",
            "__version__": {
                "endtask": package_version(),
                "transformers": found["transformers"],
                "pytorch": found["torch"],
            },
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        f"{_POOLING}/config.json": {
            "word_embedding_dimension": width,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
            "pooling_mode_weightedmean_tokens": False,
            "pooling_mode_lasttoken": False,
            "include_prompt": True,
        },
    }
