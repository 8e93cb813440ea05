"""Gradients of an encoder, copied and written back with weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from endtask.weighting.gradients import FlatGradient, ModuleGradients


def make_body() -> nn.Module:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(2, 2))
    encoder[2].weight.requires_grad = False
    return encoder


def gradients_in(encoder: nn.Module) -> dict[str, Tensor]:
    return {name: weight.grad.clone() for name, weight in encoder.named_parameters() if weight.grad is not None}


def test_what_is_collected_can_be_spread_again() -> None:
    encoder = make_body()
    gradients = ModuleGradients(encoder)
    gradients.start()
    expected: dict[str, Tensor] = {}
    for name, scale in (("a", 1.0), ("b", 3.0)):
        (scale * encoder(torch.ones(5, 3)).square().sum()).backward()
        expected = gradients_in(encoder) if name == "a" else expected
        gradients.collect(name)
        assert all(weight.grad is None for weight in encoder.parameters())
    flat = torch.cat([gradient.flatten() for gradient in expected.values()])
    assert gradients.by_objective["a"].allclose(flat)
    assert gradients.by_objective["b"].allclose(3 * flat)
    gradients.spread({"a": torch.tensor(0.5), "b": torch.tensor(0.25)})
    after = gradients_in(encoder)
    assert after.keys() == expected.keys()
    assert all(gradient.allclose(1.25 * expected[name]) for name, gradient in after.items())


def test_a_second_batch_of_an_objective_is_added() -> None:
    encoder = make_body()
    gradients = ModuleGradients(encoder)
    for _ in range(2):
        encoder(torch.ones(5, 3)).sum().backward()
        gradients.collect("a")
    encoder(torch.ones(10, 3)).sum().backward()
    together = torch.cat([gradient.flatten() for gradient in gradients_in(encoder).values()])
    assert gradients.by_objective["a"].allclose(together)


def test_a_weight_without_a_gradient_counts_zeros_also_where_one_stood_before() -> None:
    encoder = make_body()
    gradients = ModuleGradients(encoder)
    encoder(torch.ones(5, 3)).sum().backward()
    gradients.collect("a")
    gradients.start()
    encoder[1](torch.ones(5, 4)).sum().backward()  # the first layer has no part in it
    gradients.collect("b")
    assert gradients.by_objective.keys() == {"b"}
    flat = gradients.by_objective["b"]
    assert flat[:16].eq(0).all()
    assert flat[16:24].eq(5).all()
    gradients.spread({"b": torch.tensor(1.0)})
    assert encoder[0].weight.grad is not None
    assert encoder[0].weight.grad.eq(0).all()
    assert encoder[2].weight.grad is None


def test_memory_is_used_again_at_the_next_step() -> None:
    encoder = make_body()
    gradients = ModuleGradients(encoder)
    places = []
    for name in ("a", "b"):
        gradients.start()
        encoder(torch.ones(5, 3)).sum().backward()
        gradients.collect(name)
        gradients.spread({name: torch.tensor(1.0)})
        assert encoder[0].weight.grad is not None
        places.append((gradients.by_objective[name].data_ptr(), encoder[0].weight.grad.data_ptr()))
        for weight in encoder.parameters():
            weight.grad = None
    assert places[0] == places[1]


def test_gradients_that_were_put_back_are_apart() -> None:
    encoder = make_body()
    gradients = ModuleGradients(encoder)
    encoder(torch.ones(5, 3)).sum().backward()
    gradients.collect("a")
    gradients.spread({"a": torch.tensor(0.0)})
    assert encoder[0].weight.grad is not None
    assert encoder[0].bias.grad is not None
    encoder[0].weight.grad.add_(1)
    assert encoder[0].bias.grad.eq(0).all()


def test_room_has_the_shape_of_each_weight() -> None:
    weights = [torch.zeros(2, 3), torch.zeros(4)]
    room = FlatGradient(weights)
    room.take([torch.ones(2, 3), None])
    assert room.flat.tolist() == [1] * 6 + [0] * 4
    assert [view.shape for view in room.views] == [(2, 3), (4,)]
