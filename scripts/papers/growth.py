"""The growth of the residual stream with depth at initialisation, compared with the law of each placement, whose closed
form is on the page."""

from papers.lib.experiment import THEORY, Claim, Panel, distance_from_law, picture_of, placements, probe, stream

PLACEMENTS = placements("pre", "pre_scaled", "post", "sandwich", "peri")


def mean_square(run):
    return stream(run, "rms") ** 2


def run(config, out, quick):
    return probe(config, out, quick, PLACEMENTS, mean_square, lambda theory: theory["rms"] ** 2, seeds=16)


def claims(probes):
    for placement in ("pre", "pre_scaled", "sandwich", "peri", "post"):
        distance = distance_from_law({placement: probes[placement]})
        yield Claim(f"{placement}: largest distance of the stream's mean square from its law", distance, 0, 0.05)


def picture(probes):
    return picture_of("Mean square of the residual stream at initialisation",
                      [Panel("", "mean square (units²)", probes, True)], THEORY, points=True)
