"""How fast tokens become alike with depth before training, by the norm's place, compared with theory."""

from papers.growth import mean_square
from papers.lib.experiment import (THEORY, Claim, Panel, Probed, log_slope, markdown, np, picture_of, placements, probe,
                                   stream)

PLACEMENTS = ("post", "pre", "pre_scaled", "peri", "mix")
SMALLEST = 1e-5  # of 1 - cosine: below it float32 has too few digits
SEEDS = 4
# Post-norm's 1 - cosine has too few digits beyond 72 blocks, in theory too.
VARIANTS = {**placements(*PLACEMENTS), "post": {"norm_placement": "post", "n_layer": 72}}


def tokens_apart(run):
    """1 - cosine of two tokens, layers 0..L, at least SMALLEST."""
    return np.maximum(1 - stream(run, "token_cosine"), SMALLEST)


def run(config, out, quick):
    return {"apart": probe(config, out, quick, VARIANTS, tokens_apart,
                           lambda theory: np.maximum(1 - theory["tokens"], 1e-15), SEEDS),
            "square": probe(config, out, quick, VARIANTS, mean_square, seeds=SEEDS)}


def misfit(x, y):
    """The rms distance of y from its straight line over x."""
    return float(np.sqrt(np.mean((y - np.polyval(np.polyfit(x, y, 1), x)) ** 2)))


def exponential_over_power(values):
    """The misfit of an exponential over that of a power law, both of the logarithm of values of layers 1, 2, ..., where
    they are above SMALLEST."""
    y = np.log(values[1:][values[1:] > SMALLEST])
    layers = np.arange(1, len(y) + 1)
    return misfit(layers, y) / misfit(np.log(layers), y)


def power(probes, placement):
    """The slope of log(1 - cosine) against the logarithm of the stream's mean square, over the deeper half."""
    values, squares = (probes[name][placement].mean for name in ("apart", "square"))
    deep = slice(len(values) // 2, None)
    return log_slope(squares[deep], values[deep])


def rate(values, chosen):
    """The slope of log(1 - cosine) per block, from the first to the last of the chosen layers."""
    first, last = chosen[0], chosen[-1]
    return float(np.log(values[last] / values[first]) / (last - first))


def claims(probes):
    apart = probes["apart"]
    depth, theory = len(apart["post"].law) - 1, apart["post"].law
    yield Claim("post: slope of log(1 - cosine) per block in theory, blocks 48 to 60 (law ln 5/8 = -0.47)",
                rate(theory, (depth * 2 // 3, depth * 5 // 6)), -0.52, -0.40)
    falling = np.flatnonzero((theory > 1e-3) & (theory < 0.3))
    falling = falling if len(falling) > 1 else (0, depth)
    yield Claim("post: measured slope per block, from 0.3 to 0.001, over theory's",
                rate(apart["post"].mean, falling) / rate(theory, falling), 0.85, 1.15)
    for placement, law in (("pre", -0.5), ("pre_scaled", -0.5), ("peri", -0.375)):
        yield Claim(f"{placement}: slope of log(1 - cosine) against log mean square, deeper half (law {law:g})",
                    power(probes, placement), law - 0.1, law + 0.1)
    mix = apart["mix"].mean
    quarter = (len(mix) - 1) // 4
    first, rest = (mix[end] / mix[begin] for begin, end in ((0, quarter), (quarter, -1)))
    yield Claim("mix: log(1 - cosine), its fall in the first quarter, which is post, over that in the rest",
                float(np.log(first) / np.log(rest)), 2, 100)
    for placement, low, high in (("post", 0, 1), ("pre", 1, 1e3), ("pre_scaled", 1, 1e3), ("peri", 1, 1e3)):
        yield Claim(f"{placement}: misfit of an exponential over that of a power law",
                    exponential_over_power(apart[placement].mean), low, high)
    for placement in ("pre", "pre_scaled", "peri"):
        distance = np.abs(np.log(apart[placement].mean / apart[placement].law)).max()
        yield Claim(f"{placement}: log(1 - cosine), the worst layer, less theory's", float(distance), 0, 0.2)


def table(probes):
    def cell(probed, layer):
        law = probed.law[layer]
        return f"{probed.measured[:, layer].mean():.3g} / {law:.3g}" if law > SMALLEST else ""

    depth = len(probes["apart"]["post"].law) - 1
    layers = [depth // part for part in (12, 6, 3, 2, 1)]
    lines = [[placement, *(cell(probed, layer) for layer in layers)] for placement, probed in probes["apart"].items()]
    return markdown(["1 − cosine of two tokens / theory", *(f"block {layer}" for layer in layers)], *lines)


def picture(probes):
    apart = {name: Probed(probed.measured[:, 1:], np.where(probed.law < SMALLEST, np.nan, probed.law)[1:])
             for name, probed in probes["apart"].items()}
    panels = [Panel(title, "1 − cosine", apart, True, 1)
              for title in ("An exponential is straight", "A power law is straight")]
    figure = picture_of("1 − cosine of two tokens before training", panels, THEORY)
    figure.axes[1].set_xlim(1, 100)
    figure.axes[1].set_xscale("log")
    return figure
