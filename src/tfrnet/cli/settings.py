"""`tfrnet settings`: every setting with its value, range and meaning."""

from __future__ import annotations

import dataclasses

from tfrnet.cli import _options as opt
from tfrnet.cli._output import Output
from tfrnet.config import TFRConfig


def command(
    preset: opt.Preset = None, overrides: opt.Set = None, as_json: opt.AsJson = False
) -> int:
    """List the settings that --set can change, with the values of a preset."""
    output = Output(as_json)
    config = TFRConfig.preset(preset or "default").with_overrides(overrides or [])
    values = config.to_dict()
    for item in dataclasses.fields(config):
        output.say(f"{item.name} = {values[item.name]}")
        output.say(f"    {item.metadata['help']}")
    output.result("settings", {"config": values})
    return 0
