"""What a report's script draws: the rows of the runs, thinned and packed so that thirty runs make a small page."""

import base64
import math
import re

from lib import plot_loss
from lib.report_page import css_dash
from lib.runs import PlotError, np
from lib.sites import every_site

MOST_NUMBERS, MOST_LOSSES = 20_000, 300  # of a run: values of its layers; rows of its loss
LOWEST = -35  # the power of ten of the smallest value that is told from 0; the largest is 10^37


def packed(values):
    """Numbers as base64 of 16 bits each: three significant digits times a power of ten, all that the page shows of them.
    Codes 0, 1, 2 are not a number, zero, and infinite or beyond."""
    values = np.abs(np.ravel(values))
    normal = np.isfinite(values) & (values > 10.0 ** (LOWEST + 2))
    exponent = np.floor(np.log10(np.where(normal, values, 1.0))).astype(int) - 2
    digits = np.rint(np.where(normal, values, 1.0) / 10.0 ** exponent).astype(int)
    exponent, digits = np.where(digits >= 1000, exponent + 1, exponent), np.where(digits >= 1000, 100, digits)
    codes = np.where(normal, 3 + (exponent - LOWEST) * 900 + digits - 100, np.where(np.isnan(values), 0, 1))
    return base64.b64encode(np.where((codes > 65535) | np.isinf(values), 2, codes).astype("<u2").tobytes()).decode("ascii")


def thinned(count, most):
    """At most about `most` of the places 0 … count − 1, evenly apart, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, max(most, 2))).round().astype(int))


def sites_of(run):
    """{"steps", "layers", "sites": {site: {"rms", "grad"}}}: packed arrays (steps, layers 0 … L); nothing where the run has
    logged none."""
    try:
        sites = every_site(run)
    except PlotError:
        return {"steps": [], "layers": 0, "sites": {}}
    steps = np.unique(np.concatenate([site.steps for site in sites.values()]))
    layers = max(site.rms.shape[1] for site in sites.values())
    steps = steps[thinned(steps.size, MOST_NUMBERS // (2 * layers * len(sites)))]
    table = {}
    for name, site in sites.items():
        whole = np.full((2, steps.size, layers), np.nan)
        there = np.isin(steps, site.steps)
        whole[:, there, :site.rms.shape[1]] = np.stack([site.rms, site.grad])[:, np.isin(site.steps, steps)]
        table[name] = {"rms": packed(whole[0]), "grad": packed(whole[1])}
    return {"steps": steps.tolist(), "layers": layers, "sites": table}


def losses_of(run):
    """{"train", "val"}: lists of [step, loss], a loss that is not finite as None."""
    try:
        rows = run.rows("metrics.csv", ("step", "train_loss", "val_loss"), "not a training run")
    except PlotError:
        return {"train": [], "val": []}

    def points(kept, column):
        return [[int(row[0]), float(f"{row[column]:.5g}") if math.isfinite(row[column]) else None] for row in rows[kept]]

    validated = np.flatnonzero(~np.isnan(rows[:, 2]))
    return {"train": points(thinned(len(rows), MOST_LOSSES), 1), "val": points(validated[thinned(validated.size, 60)], 2)
            if validated.size else []}


def page_data(groups):
    """Everything that the page's script reads."""
    runs = []
    for number, group in enumerate(groups):
        for run in group.runs:
            runs.append({"group": number, "seed": run.value("train.seed"), "diverged": run.lost_at() if run.diverged else None,
                         **sites_of(run), **losses_of(run)})
    curves = [np.array([loss if loss is not None else math.nan for _, loss in run[kind]]) for run in runs for kind in ("train", "val")]
    trained = [run for group in groups for run in group.runs if not run.probe]
    levels = plot_loss.common_levels(trained) if trained else {}
    guess = max(map(math.log, plot_loss.vocabularies(trained)), default=None)
    return {
        "groups": [{"label": g.label, "legend": g.legend(None), "color": g.color, "dash": css_dash(g.dash), "seeds": len(g.runs)}
                   for g in groups],
        "runs": runs, "steps": sorted({step for run in runs for step in run["steps"]}), "levels": levels,
        "loss": plot_loss.limits(curves, levels, guess)}


# ---- still pictures -------------------------------------------------------------------------------------------


def inline(svg):
    """A figure's SVG as part of an HTML page: no style attributes, which the page's policy forbids, no names of elements that
    another picture may have too, and coordinates to a hundredth."""
    svg = svg[svg.index("<svg"):]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' (xmlns(:xlink)?|version|width|height)="[^"]*"', "", svg.split(">", 1)[0]) + ">" + svg.split(">", 1)[1]
    svg = re.sub(r'<g id="[^"]*"', "<g", svg).replace("xlink:href", "href")
    svg = re.sub(r' style="([^"]*)"', lambda found: _attributes(found[1]), svg)
    svg = re.sub(r' (?:d|x|y|points)="[^"]*"', lambda found: re.sub(r"(\d\.\d\d)\d+", r"\1", found[0]), svg)
    return re.sub(r"\n\s*", "\n", svg)


def _attributes(css):
    """Declarations as the attributes of the same names."""
    said = {}
    for name, value in (declaration.split(":", 1) for declaration in css.split(";") if declaration.strip()):
        name, value = name.strip(), value.strip().replace("'", "")
        if name == "font":
            said["font-weight"] = "bold" if "bold" in value.split("px")[0] else "normal"
            said["font-size"], said["font-family"] = re.search(r"[\d.]+px", value)[0], "DejaVu Sans, sans-serif"
        else:
            said[name] = value
    return "".join(f' {name}="{value}"' for name, value in said.items())
