#!/usr/bin/env python3
"""What a probe will measure, by theory: activations and gradients of every layer, attention, the first loss. No weight is drawn."""

import json
import math
import sys
from collections import namedtuple
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.command import Parser, ScriptError, printable, table_of
from lib.keys import completed
from lib.mean_field import TOLERANCE, allowed, predict, resolved, sites_of, text_of_config, tokens_of
from lib.runs import find_runs, main, np
from lib.sites import SITES

from lib import safetensors_io  # after runs, which finds a python3 that has numpy

DETAILS = """--against takes a probe, a run's first step, or a safetensors file of any program: act.<layer>.<site>, and
act_grad.<layer>.<site> of the mean loss, (B, T, width) each, with the sites of layers.csv and blocks from 1. From PyTorch:

  sites = {}
  def tap(name): return lambda block, x, y: sites.update({name: y}) or y.retain_grad()
  for l, block in enumerate(model.blocks, 1):
      block.register_forward_hook(tap(f"{l}.stream"))
      block.attn.register_forward_hook(tap(f"{l}.attn_out"))
  loss(model(tokens), targets).backward()
  tensors = {f"act.{k}": y for k, y in sites.items()} | {f"act_grad.{k}": y.grad for k, y in sites.items()}
  safetensors.torch.save_file(tensors, "mine.safetensors")

A site may be off by the tolerance and three standard errors of the measured mean over its seeds; a gradient by the theory's
own error too, about a part in d_model a block. The spread of one seed is unknown: it has three times the tolerance.
Exit code 1 if a site is off or names and shapes are not the config's, 2 where the theory has no prediction."""

# ---- held against a measurement ---------------------------------------------------------------------------------

# `squares` {(layer, site): array (seeds, 2) of the mean squares of value and gradient, nan where there is none}; `faults`: a line
# for each name or shape that is the config's or the measurement's alone.
Measured = namedtuple("Measured", "squares seeds tokens faults")
NAMES = (*SITES, "final", "logits")


def measured_runs(path, config):
    """The first step of a run, or the seeds of a probe."""
    runs = find_runs([path], "layers.csv")
    model, wanted = runs[0].config["model"], sites_of(config["model"]["n_layer"])
    if len({json.dumps([run.config["model"], tokens_of(run.config)]) for run in runs}) > 1:
        raise ScriptError(f"{printable(path)}: its runs differ in more than the seed; name one of them")
    if model.get("dropout") and not runs[0].probe:
        raise ScriptError(f"{printable(path)}: its steps have dropout, and a prediction has none; probe its config")
    faults = [f"model.{key} is {model[key]}; the config has {config['model'][key]}"
              for key in ("n_layer", "d_model", "d_ff", "context") if model[key] != config["model"][key]]
    squares = {}
    for run in runs:
        rows = run.rows("layers.csv", ("step", "layer", "rms", "grad_rms"), "probe it", keep=("site", NAMES))
        for step, layer, rms, grad, name in rows:
            if step == (0 if run.probe else 1):
                squares.setdefault((int(layer), NAMES[int(name)]), []).append((rms**2, grad**2))
    whole = {site: np.array(found) for site, found in squares.items() if site in wanted and len(found) == len(runs)}
    faults += [f"{site} of layer {layer} is missing" for layer, site in wanted if (layer, site) not in whole]
    faults += [f"{site} of layer {layer} is no site of the config" for layer, site in squares if (layer, site) not in wanted]
    return Measured(whole, len(runs), tokens_of(runs[0].config), faults)


def measured_file(path, config, vocabulary):
    """The tensors act.<layer>.<site> and act_grad.<layer>.<site>, (B, T, width), of a safetensors file. A kind of site may be left
    out, but of all blocks."""
    try:
        tensors, _ = safetensors_io.read(path)
    except ValueError as error:
        raise ScriptError(str(error).removeprefix("[safetensors] "), 1) from None
    model, squares, faults = config["model"], {}, []
    names = {f"{kind}.{layer}.{site}": (layer, site, i)
             for layer, site in sites_of(model["n_layer"]) for i, kind in enumerate(("act", "act_grad"))}
    found = {name: tensor for name, tensor in tensors.items() if name in names}
    if not any(tensor.ndim == 3 and tensor.size for tensor in found.values()):
        raise ScriptError(f"{printable(path)}: no tensor named as act.1.stream; scripts/predict.py --help shows how")
    batch = next(tensor.shape[0] for tensor in found.values() if tensor.ndim == 3)
    for name, tensor in found.items():
        layer, site, i = names[name]
        shape = batch, model["context"], {"ffn_hidden": model["d_ff"], "logits": vocabulary}.get(site, model["d_model"])
        if tensor.shape == shape:
            squares.setdefault((layer, site), np.full((1, 2), np.nan))[0, i] = np.mean(np.square(tensor, dtype=np.float64))
        else:
            faults.append(f"{name} is {tensor.shape}; expected {shape}")
    kinds = {names[name][1:] for name in found}
    faults += [f"{name} is missing" for name, (_, *kind) in names.items() if name not in found and tuple(kind) in kinds]
    faults += [f"{printable(name)} is no site of the config" for name in tensors
               if name not in names and name.startswith(("act.", "act_grad."))]
    return Measured(squares, 1, batch * model["context"], faults)


# `ratio`: measured over predicted rms; `limit`: how far its logarithm may be from 0.
Ratio = namedtuple("Ratio", "what layer site ratio limit is_off")


def ratios(prediction, measured, tolerance, model):
    """The Ratios of values in the order of the forward pass, then of gradients in that of the backward pass."""
    found = []
    for i, (what, allowed_error) in enumerate(zip(("activation", "gradient"), allowed(model, measured.seeds, tolerance))):
        for (layer, site), predicted in list(prediction.sites.items())[::1 - 2 * i]:
            square = measured.squares.get((layer, site), np.full((1, 2), np.nan))[:, i]
            if np.isnan(square).all():
                continue
            mean, limit = float(square.mean()), allowed_error
            if measured.seeds > 1 and mean > 0:  # the relative error of a root is half that of the mean square
                limit += 3 * float(square.std(ddof=1)) / math.sqrt(measured.seeds) / (2 * mean)
            ratio = math.sqrt(mean) / predicted[i] if predicted[i] else 1.0 if mean == 0 else math.inf
            found.append(Ratio(what, layer, site, ratio, limit, not (ratio > 0 and abs(math.log(ratio)) <= limit)))
    return found


def print_against(path, config, tolerance):
    """Prints the ratios and what is off; the exit code."""
    text, model = text_of_config(config), completed(config["model"])
    measured = measured_runs(path, config) if Path(path).is_dir() else measured_file(path, config, text.size)
    found = ratios(predict(config, text, measured.tokens), measured, tolerance, model)
    for what in ("activation", "gradient"):
        cells = {(one.layer, one.site): f"{one.ratio:.2f}{'!' if one.is_off else ' '}" for one in found if one.what == what}
        names = [name for name in NAMES if any(site == name for _, site in cells)]
        if names:
            print(f"{what}s, measured over predicted\n")
            layers = range(model["n_layer"] + 2)
            columns = [["layer", *map(str, layers)], *([name, *(cells.get((layer, name), "") for layer in layers)] for name in names)]
            print(*table_of(columns), "", sep="\n")
    off = [one for one in found if one.is_off]
    for one in off[:1]:
        print(f"first to leave: the {one.what} at {one.site} of layer {one.layer}, {one.ratio:.3g} of the prediction; expected "
              f"within {math.expm1(one.limit):.0%}")
    for fault in measured.faults:
        print(f"not compared: {fault}")
    if not off and not measured.faults:
        print(f"all {len(found)} figures are as predicted; {measured.seeds} seed{'s' if measured.seeds > 1 else ', whose spread is unknown'}")
    return int(bool(off or measured.faults))


# ---- the prediction ---------------------------------------------------------------------------------------------


def print_prediction(prediction, name):
    """The layers as a table, and the rest."""
    rows = [["layer", "stream", "attn_out", "ffn_out", "gradient", "entropy", "max score", "tokens", "input"]]
    for layer, seen in enumerate(prediction.layers):
        stream = prediction.sites[layer, "stream"]
        branches = [f"{prediction.sites[layer, site][0]:.3g}" if layer else "" for site in ("attn_out", "ffn_out")]
        rows.append([str(layer), f"{stream[0]:.3g}", *branches, f"{stream[1]:.3g}",
                     *(f"{seen[key]:.2f}" if layer else "" for key in ("entropy", "max_score")),
                     *(f"{seen[key]:.3f}" for key in ("token_cosine", "input_cosine"))])
    print(f"{printable(name)}: means over seeds, before any training\n")
    print(*table_of(list(zip(*rows))), sep="\n")
    print("\nstream, attn_out, ffn_out: rms; gradient: rms of the stream's; entropy (nats) and largest score of attention;\n"
          f"tokens: cosine of two tokens; input: of x_0 and x_l\n\nfirst loss     {prediction.loss:.3f}\namplification  "
          f"{prediction.amplification:.3g}: noise of 1% in every matrix moves the stream by {math.sqrt(prediction.amplification):.3g}%")


def run():
    """Reads the command line and prints; the exit code."""
    parser = Parser("predict", f"{__doc__}\n\n{DETAILS}")
    parser.add_argument("config", metavar="CONFIG", help="a config, or a run's config.json")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="overrides a key of the config")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="as CSV: layer,site,rms,grad_rms")
    form.add_argument("--json", action="store_true", help="as JSON, with all figures")
    form.add_argument("--against", metavar="RUN|FOLDER|FILE", help="measured values over the prediction")
    parser.add_argument("--tolerance", type=float, metavar="X", default=TOLERANCE,
                        help="with --against: how far off a site may be, relatively (default: %(default)g)")
    options = parser.parse_args()
    if not options.tolerance >= 0:
        parser.error(f"--tolerance: got {options.tolerance}; expected a number from 0")
    config = resolved(options.config, options.set)
    if options.against:
        return print_against(options.against, config, options.tolerance)
    prediction = predict(config)
    rows = [(layer, site, *values) for (layer, site), values in prediction.sites.items()]
    if options.csv:
        print("layer,site,rms,grad_rms", *(",".join(map(str, row)) for row in rows), sep="\n")
    elif options.json:
        print(json.dumps({"loss": prediction.loss, "amplification": prediction.amplification,
                          "layers": [{"layer": i, **layer} for i, layer in enumerate(prediction.layers)],
                          "sites": [dict(zip(("layer", "site", "rms", "grad_rms"), row)) for row in rows]}, indent=2))
    else:
        print_prediction(prediction, config["name"])
    return 0


if __name__ == "__main__":
    main(run, "predict")
