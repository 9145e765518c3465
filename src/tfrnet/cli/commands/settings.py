"""`tfrnet settings`: every setting with its value, range and meaning."""

from __future__ import annotations

import dataclasses

from tfrnet.cli import options as opt
from tfrnet.cli.output import Output
from tfrnet.method import DEFAULT, find_config, method_names


def command(
    method: opt.Method = None,
    preset: opt.Preset = None,
    overrides: opt.Set = None,
    as_json: opt.AsJson = False,
) -> int:
    """List the settings of a method, which --set can change, with the values of a preset.

    Settings that have no effect with these values are listed at the end by name only.
    """
    output = Output(as_json)
    name = method or DEFAULT
    chosen = find_config(name)
    config = chosen.preset(preset or "default").with_overrides(overrides or [])
    values = config.effective()
    presets = list(chosen.presets())
    output.say(f"method {name}: {chosen.about}")
    output.say(f"presets: {', '.join(presets)}; methods: {', '.join(method_names())}")
    for item in dataclasses.fields(config):
        if item.name not in values:
            continue
        output.say(f"{item.name} = {values[item.name]}")
        output.say(f"    {item.metadata['help']}")
    for needed, idle in _by_value(config.without_effect()).items():
        output.say(f"only with {needed}: {', '.join(idle)}")
    output.result("settings", {"method": name, "presets": presets, "config": values})
    return 0


def _by_value(texts: dict[str, str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name, text in texts.items():
        groups.setdefault(text, []).append(name)
    return groups
