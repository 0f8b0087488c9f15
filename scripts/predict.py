#!/usr/bin/env python3
"""Predicts the values that a probe will measure: activations and gradients of every layer, attention, the first loss.
It computes them by theory and draws no weight.

--against takes a probe, the first step of a run that has no dropout and began with weights of its own, or a safetensors
file of any program: act.<layer>.<site>, and act_grad.<layer>.<site> of the mean loss, (B, T, width) each, with the
sites of layers.csv and blocks from 1. From PyTorch:

  sites = {}
  def tap(name): return lambda block, x, y: sites.update({name: y}) or y.retain_grad()
  for l, block in enumerate(model.blocks, 1):
      block.register_forward_hook(tap(f"{l}.stream"))
      block.attn.register_forward_hook(tap(f"{l}.attn_out"))
  loss(model(tokens), targets).backward()
  tensors = {f"act.{k}": y for k, y in sites.items()} | {f"act_grad.{k}": y.grad for k, y in sites.items()}
  safetensors.torch.save_file(tensors, "mine.safetensors")

A site may differ from the prediction by the tolerance plus three standard errors of the mean over seeds, as the theory
expects them: about 1/sqrt(d_model), more with depth, over the root of the number of seeds. A gradient may differ by the
double if large tied embeddings make sums of gradients nearly cancel; to that the theory's own error is added, about one
part in d_model for each block. The limit is printed; more seeds narrow it.
Exit code 1 if a site is off, names and shapes are not the config's, or a run's text has changed; 2 if the theory has
no prediction: the head of lib/theory/mean_field.py says for what.
"""

import itertools
import json
import math
import sys
from collections import namedtuple
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import Parser, ScriptError, main, printable
from lib.base.tables import print_csv, text_table
from lib.logs import np, safetensors_io
from lib.logs.run_text import require_text
from lib.logs.runs import find_runs
from lib.logs.sites import HEAD_SITES, SITES
from lib.theory.embedding_and_head import text_of_config
from lib.theory.mean_field import TOLERANCE, allowed, first_step_fault, logged_sites, predict, resolved, tokens_of

# ---- comparison with a measurement ------------------------------------------------------------------------------

NAMES = (*SITES, *HEAD_SITES)
KINDS = ("act", "act_grad")
# squares  mean squares of values and gradients, an array (seeds, sites, 2) in the order of logged_sites; NaN where
#          nothing is measured
# tokens   the number of tokens over which the loss is a mean
# faults   a line for each name or shape that only the config or only the measurement has
Measured = namedtuple("Measured", "squares tokens faults")


def measured_runs(path, config):
    """The Measured of the first step of a run, or of the seeds of a probe. ScriptError: runs that differ in more than
    the seed, have a first_step_fault, or another text."""
    runs, sites = find_runs([path], "layers.csv"), logged_sites(config["model"]["n_layer"])
    model, tokens = runs[0].config["model"], tokens_of(runs[0].config)
    if any((run.config["model"], tokens_of(run.config)) != (model, tokens) for run in runs):
        raise ScriptError(f"{printable(path)}: its runs differ in more than the seed; name one of them")
    for run in runs:
        if fault := first_step_fault(run):
            raise ScriptError(f"{run}: {fault}")
        require_text(config["data"], run.text_hash, run)
    faults = [f"model.{key} is {model[key]}; the config has {config['model'][key]}"
              for key in ("n_layer", "d_model", "d_ff", "context") if model[key] != config["model"][key]]
    squares = np.full((len(runs), len(sites), 2), np.nan)
    for seed, run in enumerate(runs):
        rows = run.rows("layers.csv", ("step", "layer", "rms", "grad_rms"), "probe it", keep=("site", NAMES))
        first = 0 if run.probe else 1
        measured = {(int(layer), NAMES[int(name)]): rms for step, layer, *rms, name in rows if step == first}
        squares[seed] = np.square([measured.get(site, (np.nan, np.nan)) for site in sites])
    is_missing = np.isnan(squares).any(axis=(0, 2))
    faults += [f"{site} of layer {layer} is missing" for (layer, site), missing in zip(sites, is_missing) if missing]
    faults += [f"{site} of layer {layer} is no site of the config"
               for layer, site in measured if (layer, site) not in sites]
    return Measured(squares, tokens, faults)


def measured_file(path, config, vocabulary):
    """The Measured of the tensors act.<layer>.<site> and act_grad.<layer>.<site>, (B, T, width), in a safetensors file.
    A kind of site may be missing, but then in all blocks. ScriptError: no such tensor, or a damaged file."""
    tensors, _ = safetensors_io.read(path)
    model, sites = config["model"], logged_sites(config["model"]["n_layer"])
    given = {name: tensor for name, tensor in tensors.items() if name.split(".")[0] in KINDS}
    batch = next((len(tensor) for tensor in given.values() if tensor.ndim == 3 and tensor.size), 0)
    if not batch:
        raise ScriptError(f"{printable(path)}: no tensor named as act.1.stream; scripts/predict.py --help shows how")
    widths = {"ffn_hidden": model["d_ff"], "logits": vocabulary}
    given_kinds = {(name.split(".")[0], name.split(".")[-1]) for name in given}
    squares, faults = np.full((1, len(sites), 2), np.nan), []
    for (i, (layer, site)), (j, kind) in itertools.product(enumerate(sites), enumerate(KINDS)):
        name, shape = f"{kind}.{layer}.{site}", (batch, model["context"], widths.get(site, model["d_model"]))
        tensor = given.pop(name, None)
        if tensor is not None and tensor.shape == shape:
            squares[0, i, j] = np.mean(np.square(tensor, dtype=np.float64))
        elif tensor is not None:
            faults.append(f"{name} is {tensor.shape}; expected {shape}")
        elif (kind, site) in given_kinds:
            faults.append(f"{name} is missing")
    faults += [f"{printable(name)} is no site of the config" for name in given]
    return Measured(squares, batch * model["context"], faults)


def compared(measured, predicted, limits):
    """(ratio, distance), arrays (sites, 2): measured over predicted rms, and the size of its logarithm over the limit
    for it; NaN where nothing is measured. `measured`: mean squares (seeds, sites, 2); `predicted`: rms (sites, 2);
    `limits`: as of `allowed`."""
    mean = measured.mean(0)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 over 0 if a branch's scale starts at 0
        ratio = np.where((mean == 0) & (predicted == 0), 1, np.sqrt(mean) / predicted)
        return ratio, np.abs(np.log(ratio)) / limits


def print_against(path, config, tolerance):
    """Prints measured over predicted rms, and the first site that is off. Returns the exit code."""
    text, model = text_of_config(config), config["model"]
    is_folder = Path(path).is_dir()
    squares, tokens, faults = measured_runs(path, config) if is_folder else measured_file(path, config, text.size)
    prediction = predict(config, text, tokens)
    sites, predicted = zip(*prediction.sites.items())
    limits = allowed(model, prediction.spread, len(squares), tolerance)
    ratio, distance = compared(squares, np.array(predicted), limits)
    is_off = distance > 1
    kinds = "activation", "gradient"
    for j, kind in enumerate(kinds):
        cells = {site: f"{ratio[i, j]:.2f}{'!' if is_off[i, j] else ' '}"
                 for i, site in enumerate(sites) if not np.isnan(ratio[i, j])}
        names = [name for name in NAMES if any(site == name for _, site in cells)]
        if names:
            rows = [[str(layer), *(cells.get((layer, name), "") for name in names)]
                    for layer in range(model["n_layer"] + 2)]
            print(f"{kind}s, measured over predicted\n", *text_table([["layer", *names], *rows]), "", sep="\n")
    # Values in the order of the forward pass, then gradients in that of the backward pass.
    off = [*((i, 0) for i in np.flatnonzero(is_off[:, 0])), *((i, 1) for i in np.flatnonzero(is_off[:, 1])[::-1])]
    if not np.isnan(distance).all():
        i, j = off[0] if off else np.unravel_index(np.nanargmax(distance), distance.shape)
        layer, site = sites[i]
        count = np.count_nonzero(~np.isnan(ratio))
        which = "first to leave" if off else f"{count} values are as predicted; the farthest"
        print(f"{which}: the {kinds[j]} at {site} of layer {layer}, {ratio[i, j]:.3g} of the prediction; expected "
              f"within {math.expm1(limits[j]):.0%} (seeds: {len(squares)})")
    for fault in faults:
        print(f"not compared: {fault}")
    return int(bool(off or faults))


# ---- the prediction ---------------------------------------------------------------------------------------------


def print_prediction(prediction, name):
    """Prints the layers as a table, then the loss and the amplification."""
    rows = [["layer", "stream", "attn_out", "ffn_out", "gradient", "entropy", "max score", "tokens", "input"]]
    for layer, values in enumerate(prediction.layers):
        stream = prediction.sites[layer, "stream"]
        branches = [f"{prediction.sites[layer, site][0]:.3g}" if layer else "" for site in ("attn_out", "ffn_out")]
        rows.append([str(layer), f"{stream[0]:.3g}", *branches, f"{stream[1]:.3g}",
                     *(f"{values[key]:.2f}" if layer else "" for key in ("entropy", "max_score")),
                     *(f"{values[key]:.3f}" for key in ("token_cosine", "input_cosine"))])
    print(f"{printable(name)}: means over seeds, before any training\n")
    print(*text_table(rows), sep="\n")
    moved = math.sqrt(prediction.amplification)
    print("\nstream, attn_out, ffn_out: rms; gradient: rms of the stream's; entropy (nats) and largest score of "
          "attention;\ntokens: cosine of two tokens; input: of x_0 and x_l\n\n"
          f"first loss     {prediction.loss:.3f}\namplification  {prediction.amplification:.3g}: noise of 1% in every "
          f"matrix moves the stream by {moved:.3g}%")


def run():
    """Reads the command line and prints the prediction or the comparison. Returns the exit code."""
    parser = Parser("predict", __doc__)
    parser.add_argument("config", metavar="CONFIG", help="a config, or a run's folder")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="overrides a key of the config")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="as CSV: layer,site,rms,grad_rms")
    form.add_argument("--json", action="store_true", help="as JSON, with all values")
    form.add_argument("--against", metavar="RUN|FOLDER|FILE", help="measured values over the prediction")
    parser.add_argument("--tolerance", type=float, metavar="X", default=TOLERANCE,
                        help="with --against: the relative error allowed for a site (default: %(default)g)")
    options = parser.parse_args()
    if not options.tolerance >= 0:
        parser.error(f"--tolerance: got {options.tolerance}; expected a number from 0")
    config = resolved(options.config, options.set)
    if options.against:
        return print_against(options.against, config, options.tolerance)
    prediction = predict(config)
    rows = [(layer, site, *values) for (layer, site), values in prediction.sites.items()]
    if options.csv:
        print_csv([("layer", "site", "rms", "grad_rms"), *rows])
    elif options.json:
        print(json.dumps({"loss": prediction.loss, "amplification": prediction.amplification,
                          "layers": [{"layer": i, **layer} for i, layer in enumerate(prediction.layers)],
                          "sites": [dict(zip(("layer", "site", "rms", "grad_rms"), row)) for row in rows]}, indent=2))
    else:
        print_prediction(prediction, config["name"])
    return 0


if __name__ == "__main__":
    main(run, "predict")
