import dataclasses
import math

import pytest

from tfrnet import TFRConfig
from tfrnet.core.errors import InputError

# The numbers of the method's contract, written out here a second time on purpose.
PAPER = {
    "target_modules": "all-linear",
    "layers": None,
    "score_tokens": "all",
    "max_length": 256,
    "retain_examples": 24,
    "guard_examples": 64,
    "forget_weight": 1,
    "retain_weight": 1,
    "risk_margin": 1,
    "risk_decay": 0.7,
    "variance_decay": 0.7,
    "hit_decay": 0.7,
    "hit_weight": 1,
    "hit_quantile": 0.9,
    "budget": 128,
    "suppress_strength": 1.0,
    "dormant_threshold": 0.1,
    "max_sparsity": 0.04,
    "current_risk_ceiling": 0.5,
    "history_risk_ceiling": 0.5,
    "recovery_threshold": 0,
    "retain_gain": 1,
    "current_penalty": 1,
    "history_penalty": 1,
    "hit_penalty": 1,
    "recover_strength": 0.5,
    "guard_relative": 0.05,
    "guard_absolute": 0,
    "use_recovery": True,
    "use_guard": True,
    "use_history": True,
}
FIXED_IN_BOTH = [
    "max_length",
    "retain_examples",
    "guard_examples",
    "hit_quantile",
    "dormant_threshold",
    "max_sparsity",
    "recover_strength",
    "guard_relative",
    "use_recovery",
    "use_guard",
    "use_history",
]


def test_paper_preset_is_the_contract():
    config = TFRConfig.paper().to_dict()
    assert {name: config[name] for name in PAPER} == PAPER


def test_extensions_are_off_in_the_paper_preset():
    config = TFRConfig.paper()
    assert (config.step, config.backtracks, config.signed_scores) == ("select", 0, False)


def test_default_shares_the_numbers_that_are_not_ours_to_tune():
    config = TFRConfig().to_dict()
    assert {n: config[n] for n in FIXED_IN_BOTH} == {n: PAPER[n] for n in FIXED_IN_BOTH}


def test_every_field_has_help():
    assert all(len(item.metadata["help"]) > 5 for item in dataclasses.fields(TFRConfig))


def test_json_round_trip():
    config = TFRConfig.paper(layers=[1, 2], target_modules=["q_proj", "down_proj"])
    assert TFRConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budgte": 3}, "unknown setting 'budgte'"),
        ({"budget": -1}, "budget must be at least 0"),
        ({"budget": 1.5}, "budget must be a whole number"),
        ({"budget": True}, "budget must be a whole number"),
        ({"risk_decay": 1.1}, "risk_decay must be between 0 and 1"),
        ({"guard_relative": math.nan}, "guard_relative must be a finite number"),
        ({"risk_margin": math.inf}, "risk_margin must be a finite number"),
        ({"use_guard": 1}, "use_guard must be true or false"),
        ({"score_tokens": "some"}, "score_tokens must be all or answer"),
        ({"score_tokens": "answer"}, "score_tokens=answer needs step=select"),
        ({"layers": [0, "1"]}, r"layers\[1\] must be a whole number"),
        ({"layers": [-1]}, "layers must be at least 0"),
        ({"target_modules": []}, "target_modules is empty"),
        ({"target_modules": "("}, "not a valid regular expression"),
        ({"target_modules": 3}, "target_modules must be text or a list"),
    ],
)
def test_bad_values_are_refused_by_name(change, message):
    with pytest.raises(InputError, match=message):
        TFRConfig.from_dict(change)


@pytest.mark.parametrize(
    ("override", "name", "value"),
    [
        ("budget=64", "budget", 64),
        ("use_recovery=false", "use_recovery", False),
        ("layers=1,2", "layers", (1, 2)),
        ("layers=none", "layers", None),
        ("target_modules=q_proj,v_proj", "target_modules", ("q_proj", "v_proj")),
        ("target_modules=q_proj", "target_modules", ("q_proj",)),
        ("target_modules=all-linear", "target_modules", "all-linear"),
        ("target_modules=.*mlp.*", "target_modules", ".*mlp.*"),
        (r"target_modules=.*\.\d{1,2}\.mlp\..*", "target_modules", r".*\.\d{1,2}\.mlp\..*"),
        ("risk_margin=-0.5", "risk_margin", -0.5),
    ],
)
def test_overrides_are_read_by_type(override, name, value):
    assert getattr(TFRConfig().with_overrides([override]), name) == value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("budget", "--set takes field=value"),
        ("nothing=1", "unknown setting 'nothing'"),
        ("use_guard=yes", "use_guard must be true or false"),
        ("budget=many", "budget must be a whole number"),
    ],
)
def test_bad_overrides_are_refused(override, message):
    with pytest.raises(InputError, match=message):
        TFRConfig().with_overrides([override])


def test_unknown_preset_is_refused():
    with pytest.raises(InputError, match="unknown preset"):
        TFRConfig.preset("best")
