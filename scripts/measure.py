#!/usr/bin/env python3
"""Measures of a model that need more than a row of a log: every tensor of one batch (`normscope probe --dump`, first
batch that the config's seed trains on). By layer l of the residual stream x_l, 0 the embedding:

  lens           loss (nats) of final norm and head on x_l; the norm takes the statistics of x_l
                 (logit lens, nostalgebraist 2020)
  rank           effective rank of the tokens' matrix (B*T, C), from 1 to C: e^H, H = -sum p ln p, p its singular values
                 over their sum (Roy & Vetterli 2007)
  token_cosine   mean cosine of two different tokens of a sequence; it is 1 if all are alike
                 (Ethayarajh 2019, arXiv 1909.00512)
  kurtosis       mean s^4 / (mean s^2)^2 over features, where s^2 is a feature's mean square over tokens; 1 if all
                 features have the same size, C if a single one is not 0 (He et al. 2024, arXiv 2405.19279)
  dead           share of the FFN's hidden units that are 0 at every token
  influence      1 - cos(x_{l-1}, x_l), mean over tokens: how far block l turns the stream
                 (Men et al. 2024, arXiv 2403.03853)
  amplification  |x_l' - x_l|^2 / |x_l|^2 / d^2, where x' is x after every entry of the blocks' matrices has been
                 multiplied by 1 + d N(0, 1); mean over 8 draws
  sharpness      largest eigenvalue of the loss's Hessian in all parameters; gradient descent is unstable at rates above
                 2 / sharpness (Cohen et al. 2021, arXiv 2103.00065). A model with ReLU has none: its kinks spoil
                 differences of gradients

RUN stands for its newest weights, with --step S for those that checkpoint.keep_every kept of step S. --steps shows the
last layer at each kept step; --csv has a row for each step and layer, with the sharpness of the whole model in each.

Of weights, the program probes the first batch once; of an exchange file, it only verifies the checksum. The last two
measures probe again, with perturbed weights: amplification 8 times, sharpness up to 200 times; --only NAME leaves the
others out. JSON has null where a layer has no such measure, or one that is not finite, as for a stream of zeros.

--freeze shows instead what each norm does (Baroni et al. 2025, arXiv 2507.02559); it is for layernorm, rmsnorm and
groupnorm. A norm divides each token's vector by that vector's own deviation (rmsnorm: its rms; groupnorm: one for each
group). Frozen, it divides all of them by one number (groupnorm: by one for each group), the average of these deviations
over about 2048 characters of the validation text; layernorm still subtracts each token's own mean. Each norm is frozen
in turn. The table shows how much the loss on these characters rises, the last line with all norms frozen at once;
`deviation`, that one number; and `spread`, the standard deviation of the tokens' deviations over it. Norms on queries,
keys and values stay.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # python3 -P leaves it out
from lib.base.command import Parser, main
from lib.base.tables import print_csv, text_table
from lib.logs.run_weights import kept_weights
from lib.model.measures import EVERY, Model, freeze, measure


def run():
    """Reads the command line and prints the table."""
    parser = Parser("measure", __doc__)
    parser.add_argument("model", metavar="RUN|FILE",
                        help="a run folder, a safetensors file of weights, or an exchange file")
    parser.add_argument("--only", metavar="NAME", action="append", choices=EVERY, help="this measure; may be repeated")
    parser.add_argument("--freeze", action="store_true", help="instead, the rise of the loss with frozen norms")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--step", type=int, metavar="S", help="the run's weights of step S")
    which.add_argument("--steps", action="store_true", help="all weights that the run has kept")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="every layer as CSV")
    form.add_argument("--json", action="store_true", help="everything as JSON")
    args = parser.parse_args()
    only = args.only or EVERY
    if args.freeze and (args.only or args.steps or args.csv):
        parser.error("--freeze has one table, of one step; leave --only, --steps and --csv out")
    if args.steps:
        results = [{"step": step, **measure(Model(file), only)} for step, file in kept_weights(args.model).items()]
    else:
        model = Model(args.model if args.step is None else kept_weights(args.model, args.step)[args.step])
        result = freeze(model) if args.freeze else measure(model, only)
        results = [{"step": model.step, **result}]
    if args.json:
        print(json.dumps(results if args.steps else result, indent=1))
    elif args.csv:
        print_csv(table(rows_of(results)))
    elif args.steps:
        last = len(results[0]["layers"]) - 1
        print(*text_table(table([row for row in rows_of(results) if row["layer"] == last])), sep="\n")
    elif args.freeze:
        print_frozen(model, result)
    else:
        print_measures(model, result)


def rows_of(results):
    """A row {title: value} of each layer of each result of measures.measure that has its step."""
    return [{"step": result["step"], **row, **{key: result[key] for key in result if key == "sharpness"}}
            for result in results for row in result["layers"]]


def table(rows):
    """The titles and cells of rows {title: value}: values with five digits, nothing for None."""
    def cell(value):
        if isinstance(value, float):
            return f"{value:.5g}"
        return "" if value is None else str(value)

    return [[*rows[0]], *([cell(value) for value in row.values()] for row in rows)]


def print_frozen(model, result):
    """Prints the table of frozen norms."""
    print(f"{model.path}, step {model.step}: loss {result['loss']:.4f} on {result['characters']} characters of the "
          "validation text")
    lines = [[name, *(f"{row[key]:.4g}" for key in ("deviation", "spread", "rise"))]
             for name, row in result["norms"].items()]
    titles = ["frozen norm", "deviation", "spread", "rise of the loss"]
    print(*text_table([titles, *lines, ["all", "", "", f"{result['all']:.4g}"]]), sep="\n")


def print_measures(model, result):
    """Prints the table of layers, and the sharpness."""
    print(f"{model.path}, step {model.step}: loss {result['loss']:.4f}")
    print(*text_table(table(result["layers"])), sep="\n")
    if result.get("sharpness"):
        limit = 2 / result["sharpness"]
        print(f"sharpness {result['sharpness']:.4g}: gradient descent is unstable at rates above {limit:.2g}")
    elif "sharpness" in result:
        print("no sharpness: it is no number above 0, or the kinks of ReLU spoil differences of gradients")


if __name__ == "__main__":
    main(run, "measure")
