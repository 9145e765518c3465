"""Settings that have no effect are refused, and left out of what is shown and compared."""

from dataclasses import fields

import pytest

from tfrnet import TFRConfig
from tfrnet.core.errors import InputError
from tfrnet.methods.npo.config import NPOConfig

IDLE = {
    "solve": ["suppress_strength", "recover_strength", "retain_gain", "step_guard", "give_back"],
    "fisher": ["forget_margin", "memory_rows", "hold_guard", "level_quantile"],
    "select": ["steps", "fisher_decay", "forget_ceiling", "forget_margin"],
    "calibrate": ["suppress_strength", "step_guard", "forget_margin", "deep_margin", "labels"],
}


def other_value(name: str) -> object:
    (field,) = (f for f in fields(TFRConfig) if f.name == name)
    if isinstance(field.default, bool):
        return not field.default
    return field.default / 2 if isinstance(field.default, float) and field.default else 1


@pytest.mark.parametrize(("step", "name"), [(s, n) for s, names in IDLE.items() for n in names])
def test_a_setting_without_effect_under_a_step_is_refused_with_the_reason(step, name):
    with pytest.raises(InputError, match=rf"{name} has no effect here; it needs step="):
        TFRConfig(step=step, **{name: other_value(name)})
    with pytest.raises(InputError, match=f"{name} has no effect"):
        TFRConfig(step=step).with_overrides([f"{name}={TFRConfig().to_dict()[name]}"])
    assert name not in TFRConfig(step=step).effective()


def test_the_default_shows_only_what_acts():
    assert len(fields(TFRConfig)) == 72
    # Without those of the paper's and the Fisher step, and of the solved one's goal.
    assert len(TFRConfig().effective()) == 72 - 9 - 5
    # Without guard_apart too, as it holds the guard, and without number_siblings: it has none.
    assert len(TFRConfig.preset("calibrated").effective()) == 72 - 9 - 5 - 2
    # Without those of the paper's and the Fisher step, and of the calibrated one.
    assert len(TFRConfig.preset("deep").effective()) == 72 - 9 - 16 - 1
    assert len(TFRConfig.paper().effective()) == 72 - 19 - 16


def test_another_step_drops_what_acted_before():
    changed = TFRConfig.preset("fisher").with_overrides(["step=solve", "budget=none"])
    assert changed == TFRConfig(
        step="solve",
        guard_relative=0.15,
        guard_absolute=0,
        steps=4,
        backtracks=4,
        drift_limit=17,
    )


def test_a_record_may_hold_settings_without_effect():
    record = TFRConfig.paper().to_dict() | {"steps": 1, "forget_margin": -2.0}
    assert TFRConfig.from_record(record) == TFRConfig.paper()
    with pytest.raises(InputError, match="unknown setting 'tau'"):
        TFRConfig.from_record(record | {"tau": 1})


def test_what_a_record_is_too_old_to_name_is_as_it_was_then():
    then = {
        "near_examples": None,
        "held_rivals": None,
        "least_reached": 0.0,
        "siblings": 0,
        "untouched_siblings": False,
        "use_wrong_answers": False,
        "request_rivals": False,
        "own_symbols": False,
        "every_digit": False,
        "hold_written": 0,
        "memory_fall": 0.0,
        "repairs": 0,
        "repair_examples": 240,
    }
    calibrated = TFRConfig.preset("calibrated").to_dict()
    found = TFRConfig.from_record({n: v for n, v in calibrated.items() if n not in then})
    assert found.to_dict() == calibrated | then
    default = TFRConfig().to_dict()
    del default["number_siblings"]
    assert not TFRConfig.from_record(default).number_siblings


def test_an_adapters_settings_need_an_adapter():
    with pytest.raises(InputError, match="rank has no effect here; it needs trained=lora"):
        NPOConfig(rank=4)
    assert NPOConfig(trained="lora", rank=4).effective()["rank"] == 4
    assert "rank" not in NPOConfig().effective()


@pytest.mark.parametrize("setting", ["guard_relative", "steps"])
def test_a_number_beyond_all_bounds_is_refused_in_one_line(setting):
    with pytest.raises(InputError, match=f"{setting} (is too large a|must be a finite) number"):
        TFRConfig().with_overrides([f"{setting}=1{'0' * 400}"])
