"""The scoring model's own settings, in the shape of a run's: it is fitted by the same loop as any other."""

from __future__ import annotations

from endtask.models.sizes import SIZES, Shape, shape_of
from endtask.settings import FinetuneSettings, ModelSettings, Settings, TrainSettings
from endtask.settings.influence import InfluenceSettings

_TIMES_SMALLER = 10
"""Published budgets: choosing text by gradients pays with a scoring model about ten times below the trained one."""
_RATE_FROM_RANDOM, _RATE_FROM_CHECKPOINT = 1e-3, 5e-5
_TOKENIZER_TEXTS = 50_000


def scoring_settings(settings: Settings) -> Settings:
    """Settings under which stage 1 fits the scoring model, on the task's text alone unless `rho1` says otherwise.

    >>> found = scoring_settings(Settings(model=ModelSettings(size="base")))
    >>> found.model.size, found.train.rho2, found.train.learning_rate
    ('mini', 3.0, 0.001)
    """
    own = settings.select.influence
    changed = {
        "model": _model(settings, own),
        "train": _train(settings, own),
        "finetune": FinetuneSettings(max_length=own.max_length),
        "tokenizer": settings.tokenizer.model_copy(
            update={"train_texts": min(_TOKENIZER_TEXTS, settings.tokenizer.train_texts or _TOKENIZER_TEXTS)}
        ),
        "stage1": "joint",
        "seed": seed_of(settings),
        "compile": "graphs",  # a few minutes of a small network are over before it would be compiled
        "report_to": (),
    }
    return settings.model_copy(update=changed)


def seed_of(settings: Settings) -> int:
    """The seed of weights, folds and masks."""
    own = settings.select.influence.seed
    return settings.seed if own is None else own


def size_for(model: ModelSettings) -> str:
    """The largest named size with at most a tenth of the encoder's weights; the smallest where none is so small.

    >>> [size_for(ModelSettings(size=size)) for size in ("large", "base", "compact", "tiny")]
    ['medium', 'mini', 'tiny', 'tiny']
    """
    most = _weights(shape_of(model)) / _TIMES_SMALLER
    fitting = [name for name in SIZES if _weights(shape_of(ModelSettings(size=name))) <= most]
    return max(fitting, key=lambda name: _weights(shape_of(ModelSettings(size=name))), default="tiny")


def _weights(shape: Shape) -> int:
    """About as many as the layers have, whatever their kind."""
    return 12 * shape.hidden_size**2 * shape.num_hidden_layers


def _model(settings: Settings, own: InfluenceSettings) -> ModelSettings:
    if settings.model.path is not None:
        return settings.model.model_copy(update={"dropout": own.dropout})
    return ModelSettings(
        architecture=own.architecture,
        size=size_for(settings.model) if own.size == "auto" else own.size,
        pooling=own.pooling,
        dropout=own.dropout,
        attention=settings.model.attention if own.architecture == "lean" else "auto",
        max_position_embeddings=max(own.max_length, settings.model.max_position_embeddings),
    )


def _train(settings: Settings, own: InfluenceSettings) -> TrainSettings:
    automatic = _RATE_FROM_RANDOM if settings.model.path is None else _RATE_FROM_CHECKPOINT
    return TrainSettings(
        seed=seed_of(settings),
        learning_rate=automatic if own.learning_rate == "auto" else own.learning_rate,
        weight_decay=0.0,
        batch_size=own.batch_size,
        max_length=own.max_length,
        mask_probability=own.mask_probability,
        rho1=own.rho1,
        rho2=own.mlm_weight,
        dropout=own.dropout,
    )
