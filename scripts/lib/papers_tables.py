"""Measures and Markdown tables of what the experiments of configs/papers found."""

import math
import re
from statistics import fmean as mean

from lib.papers_run import SIZED, Rows
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


def losses(down, across=None, against=None):
    """A table of final validation losses, of what runs have, {name: values}, down and across; where there are no runs it is empty.
    `against`: the line from which the others' difference is taken too, seed by seed, ± its standard error."""
    across = across or {"": {}}

    def table(found):
        rows = rows_of(found)

        def line(name, own, cell):
            return [name, *(cell({**own, **values}, values) if rows.matching(**own, **values) else "" for values in across.values())]

        def difference(runs, values):
            return rows.paired(runs, {**down[against], **values})["difference"]

        return markdown(["validation loss", *across], *(
            line(name, own, lambda runs, _: spread(rows.losses(**runs))) for name, own in down.items()), *(
            line(f"{name} − {against}", own, difference) for name, own in down.items() if against not in (None, name)))

    return table


# ---- of single experiments ------------------------------------------------------------------------------------


def slope(found, placement):
    """Of log |dW2| of the last block against log L, by least squares."""
    points = [(math.log(layers), math.log(norms[:, -1].mean())) for (p, layers), norms in found.items() if p == placement]
    return float(np.polyfit(*zip(*points), 1)[0])


def worst_off_law(found, placement):
    """The largest relative distance of the mean square from its law, over the layers."""
    measured, law = found[placement]
    return float(np.abs(measured.mean(axis=0) / law - 1).max())


def doubling(by_depth):
    """By what the logarithm of the gradient's growth is multiplied from a quarter of the deepest model's depth to all of it."""
    deep = max(by_depth)
    return math.log(by_depth[deep][0].mean()) / math.log(by_depth[min(by_depth, key=lambda depth: abs(depth - deep / 4))][0].mean())


def thirds(by_block):
    """What the last third of the blocks has over what the first third has, mean over seeds and blocks."""
    values = by_block.mean(axis=0)
    third = len(values) // 3
    return values[-third:].mean() / values[:third].mean()


def deepest(layers):
    return max(layers, key=lambda key: key[-1])[-1]


def batchnorm(found):
    sizes, norms = sorted({size for _, size in found["gap"]}), ("batchnorm", "layernorm")
    return markdown(["evaluation − training", *(f"batch {size}" for size in sizes)],
                    *([norm, *(spread(found["gap"][norm, size], "{:+.3f}") for size in sizes)] for norm in norms)) + "\n" + losses(
        values_of("norm", *norms), values_of("batch_size", *sizes, name="batch {}"))(found)


def off_theory(found, name, what):
    """(mean over the layers of the relative distance of the rms from theory, the same of the seeds' standard error)."""
    measured, expected = found[name][what]
    squares = measured ** 2
    error = squares.std(axis=0, ddof=1) / math.sqrt(len(squares)) / squares.mean(axis=0) / 2
    return float(np.abs(expected / np.sqrt(squares.mean(axis=0)) - 1).mean()), float(error.mean())


def worst_off_theory(found, what, limit):
    """The largest of them over what is allowed: the limit, or two standard errors."""
    pairs = [off_theory(found, name, what) for name in found]
    return max(off / max(limit, 2 * error) for off, error in pairs)


def theory(found):
    def ratio(pair):
        return f"{pair[0] / pair[-1]:.3g}"

    def cells(name):
        measured, expected = found[name]["grad"]
        return [*("{:.1f}% ({:.1f})".format(*(100 * x for x in off_theory(found, name, what))) for what in ("rms", "grad")),
                f"{ratio(np.sqrt((measured ** 2).mean(axis=0)))} / {ratio(expected)}"]

    return markdown(["rms of the stream, off theory (seeds' standard error)", "activation", "gradient",
                     "gradient at x_0 over x_L / theory"], *([name, *cells(name)] for name in found))


def grown(found, placement, rate):
    """The rms of the stream after the last block at the last step over that at the first, mean over seeds."""
    curves = found["stream"][placement, rate][1]
    return float((curves[:, -1] / curves[:, 0]).mean())


def over_law(sizes, matrix):
    """A matrix' rms at the last step over the law's."""
    return sizes[matrix][1][-1] / sizes["law"]


def equilibrium(found):
    return markdown(["rms at the last step / √(lr / 2 wd)", *SIZED],
                    *([f"lr {rate}, {scheme}", *(f"{over_law(sizes, matrix):.2f}" for matrix in SIZED)]
                      for (rate, scheme), sizes in found.items()))


def amplification(found):
    return losses({f"A {a:.1f}: L {layers}, branches × {scale}": {"n_layer": layers, "branch_scale": scale}
                   for (layers, scale), a in by_amplification(found)}, rates("0.0003", "0.001", "0.003"))(found)


def by_amplification(found):
    return sorted(found["amplification"].items(), key=lambda point: point[1])


def learnt(found, rate):
    """[(A, whether the model learnt at this rate)] by rising amplification A."""
    return [(a, Rows(rows).losses()[0] < LEARNS[1]) for (layers, scale), a in by_amplification(found)
            if (rows := found["rows"].matching(n_layer=layers, branch_scale=scale, lr=rate))]


def limit(found, rate):
    """The amplification halfway, as factors go, between the largest with which a model learnt and the smallest with which one did not."""
    tried = learnt(found, rate)
    return math.sqrt(max((a for a, good in tried if good), default=tried[0][0])
                     * min((a for a, good in tried if not good), default=tried[-1][0]))


def out_of_order(found, *rates_tried):
    """How many models did not learn although one of larger amplification did, at the same rate."""
    return sum(not good and any(better for _, better in tried[i:]) for tried in (learnt(found, rate) for rate in rates_tried)
               for i, (_, good) in enumerate(tried))
