"""What the plots share: finding and reading run folders, labels from their configs, and the look of a figure."""

import csv
import itertools
import json
import logging
import math
import os
import sys
import unicodedata
from pathlib import Path

SYSTEM_PYTHON = "/usr/bin/python3"
logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no word about its caches on a first start
try:
    import matplotlib
    import numpy as np

    matplotlib.use("Agg")
    matplotlib.rcdefaults()  # the same figure whatever the user's own settings
    from matplotlib import pyplot, ticker
except ImportError as import_error:  # another python3 comes first on PATH, without the distribution's packages
    if sys.executable != SYSTEM_PYTHON and os.access(SYSTEM_PYTHON, os.X_OK):
        os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    print(f"[plot] {import_error}; install python3-matplotlib and python3-numpy", file=sys.stderr)
    sys.exit(1)

SEED = "train.seed"
# Keys that change no number worth a label.
BOOKKEEPING = ("name", "$schema", "log.", "eval.", "checkpoint.", "train.threads", "train.on_nonfinite")
# Keys whose default follows another key: named only where nothing else tells two runs apart.
DERIVED = ("model.final_norm", "model.norm_bias", "model.init.residual_scaling", "model.init.embed_std",
           "model.d_ff", "model.ffn_bias", "train.min_lr")
# How values are written; `None` stands for the value alone. Other keys: last part of the key, then the value.
WORDING = {"model.norm_placement": None, "model.norm": None, "model.n_layer": "L {}", "model.d_model": "C {}",
           "model.context": "T {}", "model.activation": None, "model.init.scheme": None, "train.optimizer": None,
           "train.precision": None, "data.path": None, "train.lr": "lr {}", "train.warmup_steps": "warm-up {}",
           "train.batch_size": "batch {}", "train.steps": "{} steps", SEED: "seed {}"}
# What runs may differ in and still be shown together unasked: placement and norm, and what follows from these.
KINDRED = ("model.norm_placement", "model.norm", "model.final_norm", "model.norm_bias", "model.init.residual_scaling")
NORMLESS = ("rezero", "none")  # placements without a norm, whatever model.norm was
WHOLE = {"step": 1e7, "layer": 1025}  # columns of whole numbers from 0, and the largest a run can write

# Okabe and Ito's colours, the strongest on white first; their yellow is too pale for a line, so grey stands in.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C8C8C")
INK, MUTED, GRID = "#222222", "#666666", "#E3E3E3"
WIDTH, DPI = 10.0, 140  # inches; 1400 pixels


class PlotError(Exception):
    """One line that says what is wrong. `code` is the exit code: 2 for usage, 1 for I/O."""

    def __init__(self, message, code=2):
        super().__init__(message)
        self.code = code


def printable(text):
    """The text with control characters escaped: file names may hold anything."""
    return "".join(f"\\x{ord(c):02x}" if unicodedata.category(c) in ("Cc", "Cs") else c for c in str(text))


def main(run):
    """Calls `run` and turns what goes wrong into one line on stderr and an exit code."""
    try:
        run()
    except PlotError as error:
        print(f"[plot] {error}", file=sys.stderr)
        sys.exit(error.code)
    except OSError as error:
        print(f"[plot] {printable(error.filename or 'output')}: {error.strerror or error}", file=sys.stderr)
        sys.exit(1)


# ---- reading --------------------------------------------------------------------------------------------------


class Run:
    """A run folder, or one seed of a probe folder."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.probe = self.folder.name.startswith("seed-") and not (self.folder / "metrics.csv").exists()
        self.home = self.folder.absolute().parent if self.probe else self.folder.absolute()
        self.config = self._json("config.json")
        for section in ("model", "data", "train"):
            if not isinstance(self.config.get(section, {}), dict):
                raise PlotError(f"{self}: damaged config.json: {section} is not an object")
        self.summary = self._json("summary.json") if (self.folder / "summary.json").exists() else {}
        self.keys = _meaningful_keys(self.config)
        self.seed = self.keys.pop(SEED, None)

    def __str__(self):
        return printable(self.folder)

    def _json(self, name):
        try:
            value = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise PlotError(f"{self}: no {name}; not a run folder") from None
        except ValueError as error:
            raise PlotError(f"{self}: damaged {name}: {error}") from None
        if not isinstance(value, dict):
            raise PlotError(f"{self}: damaged {name}: not an object")
        return value

    def rows(self, name, columns, hint, keep=None):
        """The named columns as an array (rows, columns) of floats; `keep`: (column, value) that a row must have."""
        try:
            file = open(self.folder / name, newline="", encoding="utf-8", errors="replace")
        except FileNotFoundError:
            raise PlotError(f"{self}: no {name}; {hint}") from None
        found = []
        with file:
            reader = csv.reader(file)
            header = next(reader, [])
            missing = [c for c in (*columns, *([keep[0]] if keep else [])) if c not in header]
            if missing:
                raise PlotError(f"{self}: {name} has no column {', '.join(missing)}")
            places = [header.index(c) for c in columns]
            filter_place = header.index(keep[0]) if keep else None
            for row in reader:
                try:
                    if keep is None or row[filter_place] == keep[1]:
                        found.append([float(row[p]) if row[p] else math.nan for p in places])
                        whole = [(v, WHOLE[c]) for c, v in zip(columns, found[-1]) if c in WHOLE]
                        if not all(0 <= v <= largest and v == int(v) for v, largest in whole):
                            raise ValueError
                except (ValueError, IndexError):
                    raise PlotError(f"{self}: {name} line {reader.line_num}: damaged row") from None
        if not found:
            raise PlotError(f"{self}: {name} has no rows yet")
        return np.array(found)

    @property
    def diverged(self):
        return self.summary.get("status") == "diverged"


def _meaningful_keys(config):
    """The config flattened to {"model.norm": value}, less what does not bear on the numbers."""
    flat = {}

    def walk(value, name):
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{name}.{key}" if name else key)
        elif not name.startswith(BOOKKEEPING):
            flat[name] = json.dumps(value)

    walk(config, "")
    if json.loads(flat.get("model.norm_placement", "null")) in NORMLESS:
        flat.pop("model.norm", None)
    return flat


def find_runs(paths, needed):
    """The runs that the paths name: run folders, probe folders, or folders of these (one or two levels down)."""
    runs, seen = [], set()
    for path in map(Path, paths):
        if not path.is_dir():
            raise PlotError(f"{printable(path)}: no such folder; name run folders, such as runs/quickstart/pre")
        folders = [path] if (path / "config.json").exists() else _folders_below(path, needed)
        if not folders:
            raise PlotError(f"{printable(path)}: no config.json, and no run with {needed} in the folders below")
        for folder in folders:
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                runs.append(Run(folder))
    return runs


def _folders_below(path, needed):
    """Run folders one or two levels below, and the seeds of probe folders there."""
    found = {f.parent for levels in ("*", "*/*", "*/*/seed-*") for f in path.glob(f"{levels}/config.json")}
    return sorted((f for f in found if (f / needed).exists()), key=_natural_order)


def _natural_order(path):
    """Sorts L=2 before L=12."""
    digits = "".join(c if c.isdigit() else " " for c in str(path)).split()
    letters = "".join("0" if c.isdigit() else c for c in str(path)).replace("00", "0")
    return letters, [int(d) for d in digits], str(path)


def newest_family(needed):
    """The newest run below runs/ and all that differ from it only in placement, norm or seed; says which."""
    root = Path("runs")
    folders = _folders_below(root, needed) if root.is_dir() else []
    if not folders:
        raise PlotError(f"runs: no run with {needed} here; name run folders, or train one first: "
                        "build/normscope train configs/quickstart.json")
    folders.sort(key=lambda f: (f / needed).stat().st_mtime_ns, reverse=True)
    newest = Run(folders[0])

    def kin(run):
        common = {k: v for k, v in run.keys.items() if k not in KINDRED}
        return common, run.probe  # a probe is no kin of a training run

    family, taken = [], set()
    for folder in folders:  # newest first: of two runs of one config, the newer is shown
        try:
            run = Run(folder)
        except PlotError:
            continue  # damaged, and nobody asked for it
        same = (json.dumps(run.keys, sort_keys=True), run.seed)
        if kin(run) == kin(newest) and same not in taken:
            taken.add(same)
            family.append(run)
    family.sort(key=lambda r: _natural_order(r.folder))
    others = [str(run) for run in family if run.folder != newest.folder]
    print(f"newest run: {newest}; " + (f"with it, differing only in placement, norm or seed: {', '.join(others)}"
                                       if others else "no other differs from it only in placement, norm or seed"))
    return family


# ---- labels ---------------------------------------------------------------------------------------------------


class Group:
    """Runs that differ only in their seed: one colour, one label; `runs` in the order of the command line."""

    def __init__(self, runs, label, color):
        self.runs, self.label, self.color = runs, label, color

    @property
    def diverged(self):
        return [run for run in self.runs if run.diverged]

    def legend(self):
        """The label with what a reader must know of the runs: how many seeds, which diverged."""
        notes = [f"mean and range of {len(self.runs)} seeds"] if len(self.runs) > 1 else []
        if self.diverged and len(self.runs) > 1:
            notes.append(f"{len(self.diverged)} diverged")
        elif self.diverged:
            culprit = self.runs[0].summary.get("first_nonfinite")
            notes.append(f"diverged at step {culprit['step']}" if isinstance(culprit, dict) and "step" in culprit
                         else "diverged")
        return shortened(self.label, 90) + (f" ({', '.join(notes)})" if notes else "")


def group_runs(runs):
    """Groups of runs that differ only in seed, labelled by what differs between the groups."""
    by_config = {}
    for run in runs:
        by_config.setdefault(json.dumps(run.keys, sort_keys=True), []).append(run)
    members, apart = [], set()
    for same in by_config.values():
        if len({run.seed for run in same}) == len(same):
            members.append(same)
            continue
        by_home = {}  # one config and seed twice (an older build, other weights): told apart by their folders
        for run in same:
            by_home.setdefault(run.home, []).append(run)
        apart.update(range(len(members), len(members) + len(by_home)))
        members += by_home.values()
    labels = _labels([same[0].keys for same in members])
    if apart:
        homes = [members[i][0].home for i in sorted(apart)]
        shared = Path(os.path.commonpath(homes)) if len(homes) > 1 else homes[0].parent
        distinct = len(set(labels)) > 1
        for i in apart:
            folder = printable(members[i][0].home.relative_to(shared))
            labels[i] = f"{labels[i]} · {folder}" if distinct else folder
    return [Group(same, label, color) for same, label, color in zip(members, labels, _colors(len(members)))]


def _labels(configs):
    """A label each: the values of the keys in which the configs differ."""
    order = {key: i for i, key in enumerate(WORDING)}
    names = sorted({k for c in configs for k in c}, key=lambda k: (order.get(k, len(order)), k))
    differing = [k for k in names if len({c[k] for c in configs if k in c}) > 1]

    def rank(keys):
        seen = {}
        return [seen.setdefault(tuple(c.get(k) for k in keys), len(seen)) for c in configs]

    for key in [k for k in differing if k in DERIVED]:
        without = [k for k in differing if k != key]
        if rank(without) == rank(differing):
            differing = without
    if not differing:
        differing = ["model.norm_placement", "model.norm"]
    return [" · ".join(_wording(k, c[k]) for k in differing if k in c) or "run" for c in configs]


def _wording(key, text):
    """A key's value as a reader says it."""
    value = json.loads(text)
    if key == "data.path":
        value = " + ".join(Path(str(p)).stem for p in (value if isinstance(value, list) else [value]))
    elif isinstance(value, list):  # placements block by block: runs of equal ones as "pre ×6"
        pieces = []
        for item in value:
            if pieces and pieces[-1][0] == item:
                pieces[-1][1] += 1
            else:
                pieces.append([item, 1])
        value = ", ".join(f"{item} ×{n}" if n > 1 else str(item) for item, n in pieces)
    elif isinstance(value, bool):
        return f"{key.split('.')[-1]} {'on' if value else 'off'}"
    elif isinstance(value, float):
        value = f"{value:g}"
    if value == "none" and key in ("model.norm", "model.norm_placement"):
        return "no norm"
    form = WORDING.get(key, key.split(".")[-1] + " {}")
    return printable((form or "{}").format(value))


def shared_settings(groups):
    """What all runs have in common, as a subtitle."""
    runs = [run for group in groups for run in group.runs]

    def common(key):
        values = {run.keys.get(key) for run in runs}
        return _wording(key, values.pop()) if len(values) == 1 and None not in values else None

    def sized(size, unit):
        return size and unit.format(size.split()[1])

    layers, width, context = (common(f"model.{key}") for key in ("n_layer", "d_model", "context"))
    parts = [sized(layers, "{} block" if layers == "L 1" else "{} blocks"), sized(width, "width {}"),
             sized(context, "context {}")]
    if len(groups) > 1:  # of a single group the legend says it
        parts += [common("model.norm_placement"), common("model.norm")]
    training = () if all(run.probe for run in runs) else ("train.optimizer", "train.lr")
    parts += [common(key) for key in ("model.init.scheme", *training, "data.path")]
    seeds = {run.seed for run in runs}
    if len(seeds) == 1 and None not in seeds:
        parts.append(f"seed {seeds.pop()}")
    return shortened(" · ".join(part for part in parts if part), 112)


def shortened(text, length):
    return text if len(text) <= length else text[:length - 1] + "…"


# ---- the look of a figure -------------------------------------------------------------------------------------


def _colors(count):
    """A colour a group: the palette, and beyond its eight a ramp."""
    if count <= len(PALETTE):
        return PALETTE[:count]
    return [matplotlib.colors.to_hex(c) for c in pyplot.get_cmap("viridis")(np.linspace(0, 0.92, count))]


def literal(text):
    """Text that matplotlib shall not read as a formula."""
    return text.replace("$", r"\$")


def _legend_shape(texts):
    """(rows, columns) of the flattest legend that fits the figure's width; columns are filled first."""
    for rows in range(1, len(texts) + 1):
        columns = [texts[i:i + rows] for i in range(0, len(texts), rows)]
        if sum(0.6 + 0.085 * max(map(len, column)) for column in columns) < WIDTH - 0.5:
            break
    return rows, len(columns)


def new_figure(rows, columns, panel_height, title, subtitle, handles, panel_titles=True):
    """A figure with a title, a subtitle and one legend above its panels; (figure, axes as a flat list)."""
    matplotlib.rcParams.update({
        "font.family": "DejaVu Sans", "font.size": 11, "text.color": INK, "axes.labelcolor": INK,
        "axes.edgecolor": "#999999", "axes.linewidth": 0.8, "axes.spines.top": False, "axes.spines.right": False,
        "axes.titlesize": 12, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 24,
        "axes.grid": True, "axes.axisbelow": True, "grid.color": GRID, "grid.linewidth": 0.8,
        "xtick.color": "#999999", "ytick.color": "#999999", "xtick.labelcolor": INK, "ytick.labelcolor": INK,
        "lines.solid_capstyle": "round", "legend.frameon": False, "svg.fonttype": "none", "svg.hashsalt": "normscope"})
    legend_rows, legend_columns = _legend_shape([handle.get_label() for handle in handles])
    header = 0.86 + 0.26 * legend_rows + (0.62 if panel_titles else 0.4)
    height = header + rows * panel_height
    figure, axes = pyplot.subplots(rows, columns, figsize=(WIDTH, height), squeeze=False)
    edge = 0.03
    figure.text(edge, 1 - 0.2 / height, literal(title), size=16, weight="bold", va="top")
    figure.text(edge, 1 - 0.56 / height, literal(subtitle), size=10.5, color=MUTED, va="top")
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(edge, 1 - 0.82 / height), ncol=legend_columns,
                  borderpad=0, borderaxespad=0, columnspacing=1.6, handlelength=1.6, handletextpad=0.6)
    figure.subplots_adjust(left=0.09, right=0.975, top=1 - header / height, bottom=0.6 / height,
                           wspace=0.2, hspace=0.52)
    return figure, list(axes.flat)


def say(axes, text, right=False):
    """What an axis shows and its unit, above its upper end: there it is read without turning one's head."""
    axes.annotate(literal(text), (1 if right else 0, 1), (0, 7), xycoords="axes fraction",
                  textcoords="offset points", ha="right" if right else "left", size=10.5, color=MUTED)


def nothing_finite(axes):
    """Says in an empty panel why it is empty."""
    axes.text(0.5, 0.5, "no finite values", transform=axes.transAxes, ha="center", color=MUTED)


def whole_x(axes, last):
    """An x axis of whole numbers up to `last`."""
    axes.xaxis.set_major_locator(ticker.MaxNLocator(8, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda v, _: f"{v:.0f}"))
    axes.set_xlim(-0.02 * last - 0.05, 1.02 * last + 0.05)


def band(rows):
    """(mean, min, max) over axis 0 of what is finite; NaN where nothing is."""
    rows = np.where(np.isfinite(rows), rows, np.nan)
    lost = np.isnan(rows).all(axis=0)
    filled = np.where(lost, 0.0, rows)
    return tuple(np.where(lost, np.nan, f(filled, axis=0)) for f in (np.nanmean, np.nanmin, np.nanmax))


def on_steps(steps, values):
    """Rows of several runs, each with its own steps, on all their steps: (steps, array (runs, steps))."""
    every = np.unique(np.concatenate(steps))
    table = np.full((len(steps), every.size), np.nan)
    for row, at, value in zip(table, steps, values):
        row[np.searchsorted(every, at)] = value
    return every, table


def cross(axes, x, values, color):
    """A cross at the last finite value: there the run diverged. If that is above the plot, the cross sits on its upper
    edge, and dots lead to it from where the curve leaves."""
    good = np.isfinite(values)
    if not good.any():
        return
    x, values, top = x[good], values[good], axes.get_ylim()[1]
    inside = np.flatnonzero(values <= top)
    if values[-1] > top and inside.size:
        leaving = slice(inside[-1], inside[-1] + 2)
        axes.plot([np.interp(top, values[leaving], x[leaving]), x[-1]], [top, top], color=color, linewidth=1.6,
                  linestyle=(0, (1, 1.6)), clip_on=False, zorder=5)
    axes.plot(x[-1], min(values[-1], top), marker="X", markersize=11, color=color, markeredgecolor="white",
              clip_on=False, zorder=6)


def name_lines(axes, most=4):
    """Writes the label of each labelled line beside it, if all find room clear of lines and texts; else the legend
    must do. To be called last, when limits and margins are final."""
    named = [line for line in axes.lines if not line.get_label().startswith("_")]
    if not 2 <= len(named) <= most:
        return
    between = np.linspace(0, 1, 25)[:, None, None]

    def points(line):  # also between its rows, in pixels
        at = line.get_transform().transform(np.ma.filled(line.get_xydata(), np.nan))
        return (at[:-1] + between * (at[1:] - at[:-1])).reshape(-1, 2) if len(at) > 1 else at

    def distance(other, line):  # in pixels; a name must be nearer to its own line than to another run's
        if other.get_color() == line.get_color():
            return 3
        return 12 if other.get_color() in {l.get_color() for l in named} else 5

    def touch(box, places):
        return ((places > box.min) & (places < box.max)).all(axis=1).any()

    def free(box, line):
        room = axes.bbox
        return (room.x0 < box.x0 and box.x1 < room.x1 and room.y0 < box.y0 and box.y1 < room.y1
                and not any(box.padded(4).overlaps(other) for other in taken)
                and not any(touch(box.padded(distance(other, line)), places) for other, places in curves))

    with np.errstate(invalid="ignore"):
        renderer = axes.figure.canvas.get_renderer()
        curves = [(line, points(line)) for line in axes.lines]
        legend = axes.get_legend()
        taken = [item.get_window_extent(renderer) for item in (*axes.texts, *([legend] if legend else []))]
        written = []
        for line in named:
            at = line.get_xydata()[np.isfinite(line.get_ydata())]
            places = (0.93, 0.87, 0.8, 0.7, 0.6, 0.5, 0.4, 0.25) if len(at) else ()
            for place, (side, up) in itertools.product(places, itertools.product((0, -1, 1), (1, -1))):
                text = axes.annotate(line.get_label(), at[int(place * len(at))], (6 * side, (4 if side else 6) * up),
                                     textcoords="offset points", ha=("center", "left", "right")[side],
                                     va="bottom" if up > 0 else "top", color=line.get_color(), weight="bold",
                                     size=10.5, annotation_clip=False)
                box = text.get_window_extent(renderer)
                if free(box, line):
                    taken.append(box)
                    written.append(text)
                    break
                text.remove()
        if len(written) < len(named):
            for text in written:
                text.remove()


def output_path(given, runs, default):
    """Where the PNG goes: -o, or beside the first run."""
    if given is None:
        return Path(os.path.normpath(os.path.relpath(runs[0].home.parent))) / default
    path = Path(given)
    if path.suffix.lower() not in (".png", ".svg", ""):
        raise PlotError(f"-o {printable(given)}: PNG and SVG are written; give a name ending in .png or .svg")
    if path.is_dir():
        path = path / default
    return path.with_suffix(".png")


def save(figure, path):
    """Writes PNG and SVG side by side, the same bytes every time, and says where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    print(f"wrote {printable(path)} and {printable(path.with_suffix('.svg').name)}")
