"""Measures and Markdown tables of what the experiments of configs/papers found."""

import math
import re
from statistics import fmean as mean

from lib.papers_run import KINDS, SIZED, Rows
from lib.runs import np

UNIGRAM = 3.08  # nats: what counting letters achieves on the bundled corpus
STUCK = UNIGRAM - 0.06, UNIGRAM + 0.1
LEARNS = 2.0, 2.8


def rows_of(found):
    """The runs of a sweep, beside which an experiment may have found more."""
    return found if isinstance(found, Rows) else found["rows"]


def final(**values):
    """A measure: the final validation loss of these runs, mean over seeds."""
    return lambda found: mean(rows_of(found).losses(**values))


def paired(of, base):
    """A measure: the mean over seeds of the losses of these runs minus those of the base."""
    return lambda found: rows_of(found).paired(of, base)["mean"]


# ---- tables ---------------------------------------------------------------------------------------------------


def markdown(header, *rows):
    """A table; a minus sign is one."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in (header, *rows)]
    return re.sub(r"(?<![\w.])-(?=\d)", "−", "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])) + "\n"


def spread(values, form="{:.3f}"):
    """Mean ± standard deviation of the seeds."""
    values = np.array(values, float)
    if not np.isfinite(values).all():
        return "diverged"
    return form.format(values.mean()) + (f" ± {form.format(values.std(ddof=1))}".replace("+", "") if len(values) > 1 else "")


def values_of(key, *values, name="{}"):
    """Lines or columns of a table: runs by the value of a key."""
    return {name.format(value): {key: value} for value in values}


def rates(*values):
    return values_of("lr", *values, name="lr {}")


def placements(*names):
    return values_of("norm_placement", *names)


def lines(rows, cell, down, across):
    """Lines of a table, down and across of what runs have, {name: values}: cell(rows, values), empty where no runs have them."""
    return [[name, *(cell(rows, {**own, **values}) if rows.matching(**own, **values) else "" for values in across.values())]
            for name, own in down.items()]


def grid(title, cell, down, across):
    """A table of such lines."""
    return lambda found: markdown([title, *across], *lines(rows_of(found), cell, down, across))


def losses(down, across=None, against=None):
    """A table of final validation losses. `against`: the line from which the others' difference is taken too, seed by seed, ± its
    standard error."""
    across = across or {"": {}}
    others = {f"{name} − {against}": own for name, own in down.items() if against not in (None, name)}

    def loss(rows, values):
        return spread(rows.losses(**values))

    def difference(rows, values):
        return rows.paired(values, {**values, **down[against]})["difference"]

    return lambda found: markdown(["validation loss", *across], *lines(rows_of(found), loss, down, across),
                                  *lines(rows_of(found), difference, others, across))


def several(*parts):
    """The tables one below the other."""
    return lambda found: "\n".join(part(found) for part in parts)


# ---- of single experiments ------------------------------------------------------------------------------------


def of(name, reduced, **values):
    """A measure: what `reduced` makes of what was measured of these runs, an array, a row a run."""
    return lambda found: float(reduced(rows_of(found).measured(name, **values)))


def less(measure, other):
    return lambda found: measure(found) - other(found)


def over(measure, other):
    return lambda found: measure(found) / other(found)


def log_slope(points):
    """Of log y against log x, by least squares; points (x, y)."""
    return float(np.polyfit(*np.log(points).T, 1)[0])


def slope(found, placement):
    """Of log |dW2| of the last block against log L."""
    return log_slope([(layers, norms[:, -1].mean()) for (p, layers), (norms, _) in found.items() if p == placement])


def worst_off(found, relative=True):
    """The largest distance of the mean over seeds from its law, over layers and variants."""
    return max(float(np.abs((measured.mean(axis=0) - law) / (law if relative else 1)).max()) for measured, law in found.values())


def doubling(found, norm):
    """By what the logarithm of the gradient's growth is multiplied from a quarter of the deepest model's depth to all of it."""
    growth = {layers: math.log(measured.mean()) for (name, layers), (measured, _) in found.items() if name == norm}
    return growth[max(growth)] / growth[max(growth) // 4]


def thirds(by_block):
    """What the last third of the blocks has over what the first third has, mean over seeds and blocks."""
    values = by_block.mean(axis=0)
    third = len(values) // 3
    return values[-third:].mean() / values[:third].mean()


def off_theory(found, name, what):
    """(mean over the layers of the relative distance of the rms from theory, the same of the seeds' standard error)."""
    measured, expected = found[what][name]
    squares = measured ** 2
    error = squares.std(axis=0, ddof=1) / math.sqrt(len(squares)) / squares.mean(axis=0) / 2
    return float(np.abs(expected / np.sqrt(squares.mean(axis=0)) - 1).mean()), float(error.mean())


def worst_off_theory(found, what, limit):
    """The largest of them over what is allowed: the limit, or two standard errors."""
    pairs = [off_theory(found, name, what) for name in found[what]]
    return max(off / max(limit, 2 * error) for off, error in pairs)


def theory(found):
    def ratio(pair):
        return f"{pair[0] / pair[-1]:.3g}"

    def cells(name):
        measured, expected = found["grad"][name]
        return [*("{:.1f}% ({:.1f})".format(*(100 * x for x in off_theory(found, name, what))) for what in ("rms", "grad")),
                f"{ratio(np.sqrt((measured ** 2).mean(axis=0)))} / {ratio(expected)}"]

    return markdown(["rms of the stream, off theory (seeds' standard error)", "activation", "gradient",
                     "gradient at x_0 over x_L / theory"], *([name, *cells(name)] for name in found["rms"]))


def grown(found, placement, rate):
    """The rms of the stream after the last block at the last step over that at the first, mean over seeds."""
    curves = found.measured("stream", norm_placement=placement, lr=rate)[:, 1]
    return float((curves[:, -1] / curves[:, 0]).mean())


def equilibrium(found):
    return markdown(["rms at the last step / √(lr / 2 wd)", *SIZED],
                    *([f"lr {row['lr']}, {row['scheme']}", *(f"{size:.2f}" for size in row["size"])] for row in found.rows))


def amplification(found):
    return losses({f"A {a:.1f}: L {layers}, branches × {scale}": {"n_layer": layers, "branch_scale": scale}
                   for a, layers, scale in by_amplification(found)}, rates("0.0003", "0.001", "0.003"))(found)


def by_amplification(found, **values):
    """[(A, blocks, scale of the branches)] of the runs by rising amplification A."""
    return sorted({(row["A"], row["n_layer"], row["branch_scale"]) for row in found.where(**values)})


def has_learnt(found, **values):
    """Whether these runs have left the unigram level; one that diverged has not."""
    return final(**values)(found) < LEARNS[1]


def learnt(found, rate):
    """[(A, whether the model learnt at this rate)] by rising amplification A."""
    return [(a, has_learnt(found, n_layer=layers, branch_scale=scale, lr=rate)) for a, layers, scale in by_amplification(found, lr=rate)]


def limit(found, rate):
    """The amplification halfway, as factors go, between the largest with which a model learnt and the smallest with which one did not."""
    tried = learnt(found, rate)
    return math.sqrt(max((a for a, good in tried if good), default=tried[0][0])
                     * min((a for a, good in tried if not good), default=tried[-1][0]))


def out_of_order(found, *rates_tried):
    """How many models did not learn although one of larger amplification did, at the same rate."""
    return sum(not good and any(better for _, better in tried[i:]) for tried in (learnt(found, rate) for rate in rates_tried)
               for i, (_, good) in enumerate(tried))


def beside_theory(found, name, **values):
    """(measured, an array (runs, layers), by theory) of what was measured as [measured, by theory]."""
    pairs = found.measured(name, **values)
    return pairs[:, 0], pairs[0, 1]


def sensitivity(**line):
    """A measure: what is lost beside the best rate, mean over the rates, a loss above the first step's counting as that (Wortsman et
    al. 2023, arXiv 2309.14322). Of runs of one seed."""
    def measure(found):
        kept = np.minimum(found.losses(**line), found.measured("first", **line))
        return float(kept.mean() - kept.min())
    return measure


def behind(base, **line):
    """A measure: what runs lose to the base, each at its best rate."""
    def best(found, values):
        return min(final(**values, lr=rate)(found) for rate in {row["lr"] for row in found.where(**values)})
    return lambda found: best(found, line) - best(found, base)


def last_rms(site, **line):
    """A measure: a curve's value at the last step, mean over seeds."""
    return of(site, lambda curves: curves[:, 1, -1].mean(), **line)


def curvature_slope(when, **line):
    """A measure: of log curvature before or after training against log L, over seeds and depths."""
    return lambda found: log_slope([(float(row["n_layer"]), row["curvature"][when]) for row in found.where(**line)])


def out_of_order_kinds(squares):
    """How many neighbours of KINDS are not in the order of their mean squares."""
    return (np.diff(squares) <= 0).sum()


def sharpness_order(found):
    def line(placement, when):
        squares = found.measured("squares", norm_placement=placement)[:, when].mean(axis=0)
        return [f"{placement}, {('step 1', 'after warm-up')[when]}", *(f"{square / squares[2]:.2g}" for square in squares)]
    return markdown(["mean square of the gradient, over the FFN's", *KINDS], *(line(p, when) for p in ("pre", "post") for when in (0, 1)))
