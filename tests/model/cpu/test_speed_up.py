"""What a model has in the place of torch's own modules."""

from __future__ import annotations

from torch import nn

from model.cpu import swap
from model.cpu.dropout import Dropout, PlainDropout
from model.cpu.linear import Linear, has_onednn
from model.modules.encoder import load_encoder
from model.modules.multitask import MultitaskModel


def test_a_model_has_ours_and_its_tensors_keep_their_names(tiny: MultitaskModel) -> None:
    def kinds(module: nn.Module, plain: type[nn.Module]) -> set[type[nn.Module]]:
        return {type(part) for part in module.modules() if isinstance(part, plain)}

    assert kinds(tiny.encoder, nn.Dropout) == {Dropout}
    assert kinds(tiny.heads, nn.Dropout) == {PlainDropout}
    assert kinds(tiny.encoder, nn.Linear) == {Linear if has_onednn() else nn.Linear}
    assert tiny.encoder.state_dict().keys() == load_encoder("tiny").state_dict().keys()


def test_a_saved_configuration_does_not_name_our_attention(tiny: MultitaskModel) -> None:
    config = tiny.encoder.config
    assert config._attn_implementation == "stockpot"  # type: ignore[union-attr]
    assert "stockpot" not in config.to_json_string()  # type: ignore[union-attr,operator]


def test_a_swap_keeps_the_settings_and_leaves_kinds_of_others_alone() -> None:
    class Other(nn.Dropout):
        pass

    module = nn.Sequential(nn.Dropout(0.2), nn.Sequential(Other(0.4), nn.Dropout(0.3))).eval()
    swap(module, nn.Dropout, Dropout)
    found = [part for part in module.modules() if isinstance(part, nn.Dropout)]
    assert [(type(part), part.p, part.training) for part in found] == [
        (Dropout, 0.2, False),
        (Other, 0.4, False),
        (Dropout, 0.3, False),
    ]
