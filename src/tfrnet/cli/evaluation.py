"""Showing evaluation results to a person."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfrnet.cli.output import Output

if TYPE_CHECKING:
    from tfrnet.evaluation.suite import Compared


def show_results(output: Output, compared: Compared) -> None:
    """Print results, and what is missing with the way to get it."""
    for result in compared.results:
        _SHOW.get(result["task"], _show_task)(output, result)
    for entry in compared.missing:
        output.say(f"not computed: {entry['figure']}. {entry['why']}")


def _show_task(output: Output, result: Mapping[str, Any]) -> None:
    output.say(f"{result['task']}, {result['part']}, {result['n']} items")
    for name, measure in result["metrics"].items():
        star = "*" if name == result["metric"] else " "
        output.say(f" {star}{name:<20}{_percent(measure['value'], measure['stderr'])}")
    if "balanced_accuracy" in result:
        output.say(f"  {'balanced':<20}{result['balanced_accuracy']:6.1f} %")
    for name, value in result["floors"].items():
        output.say(f"  floor: {name:<13}{value:6.1f} %")
    if "chosen" in result:
        chosen = ", ".join(f"{name} {count}" for name, count in result["chosen"].items())
        legend = "" if "balanced_accuracy" in result else " (A is an item's first choice)"
        output.say(f"  times chosen: {chosen}{legend}")
    for name, value in result.get("published", {}).items():
        output.say(f"  published: {name.replace('_', ' '):<20}{value:.4f}")
    if result["truncated"]:
        output.say(f"  truncated: {result['truncated']} items")


def _show_tofu(output: Output, result: Mapping[str, Any]) -> None:
    output.say(f"TOFU, model utility {result['model_utility']:.4f}")
    names = ("probability", "rouge", "truth_ratio", "extraction_strength", "exact_memorisation")
    head = "".join(f"{name.replace('_', ' '):>22}" for name in names)
    output.say(f"  {'':<13}{'rows':>5}{head}")
    for split, values in result["sets"].items():
        cells = "".join(f"{values[n]:22.4f}" if n in values else f"{'':22}" for n in names)
        output.say(f"  {split:<13}{result['n'][split]:>5}{cells}")
    for form, values in result.get("truth_ratio_forms", {}).items():
        ratios = ", ".join(f"{name} {value:.4f}" for name, value in values.items())
        output.say(f"  truth ratio, {form}: {ratios}".replace("_", " "))
    if "forget_quality" in result:
        quality = result["forget_quality"]
        output.say(
            f"  forget quality: p = {quality['p_value']:.3g}, KS statistic "
            f"{quality['statistic']:.3f}; retain-only model's utility "
            f"{result['oracle']['model_utility']:.4f}"
        )


def _show_privacy(output: Output, result: Mapping[str, Any]) -> None:
    sizes = result["n"]
    output.say(
        f"privacy, {sizes['members']} members and {sizes['non_members']} non-members, "
        f"MIA gap {result['mia_gap']:.4f}"
    )
    oracle = result.get("oracle_auc", {})
    for name, auc in result["auc"].items():
        beside = f", retain-only {oracle[name]:.4f}" if name in oracle else ""
        output.say(f"  AUC {name:<18}{auc['value']:.4f} ± {auc['stderr']:.4f}{beside}")
    if "reference_auc" in result:
        output.say(
            f"  AUC {'reference':<18}{result['reference_auc']:.4f} (the retain-only model's loss)"
        )
    for name, value in result["blind_baselines"].items():
        output.say(f"  without a model: {name.replace('_', ' '):<28}{value:.4f}")
    if "privleak" in result:
        output.say(
            f"  PrivLeak {_number(result['privleak'])} (signed {_number(result['privleak_signed'])}"
            f", ratio {_number(result['privleak_ratio'])}, difference "
            f"{_number(result['privleak_difference'])}); retain-only MIA gap "
            f"{result['oracle_mia_gap']:.4f}"
        )


def _show_robustness(output: Output, result: Mapping[str, Any]) -> None:
    output.say(f"robustness, accuracy on {result['n']} forgotten items of {result['forget_task']}")
    output.say(
        f"  {'attack':<10}{'':<24}{'plain':>8}{'attacked':>10}{'untouched':>11}{'attacked':>10}"
        f"{'recovery':>10}"
    )
    for row in result["attacks"]:
        control, recovery = row["untouched_attacked"], row["recovery"]
        output.say(
            f"  {row['attack']:<10}{row['variant']:<24}{row['plain']:8.1f}{row['attacked']:10.1f}"
            f"{row['untouched']:11.1f}{'' if control is None else f'{control:.1f}':>10}"
            f"{'' if recovery is None else f'{100 * recovery:.0f} %':>10}"
        )
    for name, figures in result["relearning"].items():
        half = figures["steps_to_half_recovery"]
        output.say(
            f"  relearning, {name}: area between the curves {figures['area_between']:.1f}, half "
            f"recovered {'never' if half is None else f'after {half:.1f} steps'}"
        )


def _show_stream(output: Output, result: Mapping[str, Any]) -> None:
    from tfrnet.evaluation.yardsticks import YARDSTICKS

    forgetting = result["forgetting"]
    # Only methods with a mask have these figures.
    structure = result.get("structure")
    output.say(
        f"stream, {len(result['requests'])} requests on {result['forget_task']}, "
        f"{sum(result['accepted'])} accepted; accuracy on forgotten items in percent"
    )
    head = f"  {'after':<24}{'fixed':>8}{'seen':>8}{'unseen':>8}{'seen loss':>11}"
    output.say(head + (_STRUCTURE_HEAD if structure else ""))
    output.say(f"  {'nothing':<24}{forgetting['fixed'][0]:8.1f}")
    for t, name in enumerate(result["requests"]):
        unseen = f"{forgetting['unseen'][t]:.1f}" if t < len(forgetting["unseen"]) else ""
        output.say(
            f"  {name:<24}{forgetting['fixed'][t + 1]:8.1f}{forgetting['seen'][t]:8.1f}"
            f"{unseen:>8}{forgetting['seen_loss'][t]:11.3f}"
            f"{_structure_cells(structure, t) if structure else ''}"
        )
    flips = forgetting["flip_back"]
    if flips["share"] is not None:
        low, high = flips["interval"]
        output.say(
            f"  came back: {flips['flipped']} of {flips['wrong']} items that were wrong after "
            f"their own request ({100 * flips['share']:.1f} %, 95 % interval {100 * low:.1f} to "
            f"{100 * high:.1f})"
        )
    for name, yardstick in YARDSTICKS.items():
        value = result["yardsticks"].get(name)
        if value is not None:
            shown = f"{value:.{yardstick.digits}f}"
            output.say(f"  {yardstick.title:<20}{shown:>7}  {yardstick.meaning}")


_STRUCTURE_HEAD = (
    f"{'dormant':>9}{'mask below 1':>14}{'recovered':>11}{'core':>7}{'new':>7}{'recurring':>11}"
)


def _structure_cells(structure: Mapping[str, Any], t: int) -> str:
    share = structure["composition"][t]
    return (
        f"{structure['dormant'][t + 1]:>9}{structure['suppressed_now'][t + 1]:>14}"
        f"{structure['recovered'][t]:>11}{share['core']:7.2f}{share['new']:7.2f}"
        f"{share['recurring']:11.2f}"
    )


def _percent(value: float, stderr: float | None) -> str:
    return f"{value:6.1f} %" + (f" ± {stderr:.1f}" if stderr is not None else "")


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"


_SHOW: dict[str, Callable[[Output, Mapping[str, Any]], None]] = {
    "tofu": _show_tofu,
    "privacy": _show_privacy,
    "robustness": _show_robustness,
    "stream": _show_stream,
}
