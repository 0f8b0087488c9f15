"""All that the modules of scripts/papers use, under one name: claims, sweeps and probes, tables, pictures."""

from lib.figures import matplotlib
from lib.figures.layout import DASHES, INK, LINES, MUTED, PALETTE
from lib.figures.panels import draw, name_ends, set_scale, whole_x, write_unit
from lib.figures.scale import scale_of
from lib.logs import np
from lib.model.measures import Model, sharpness, token_cosine, unit
from papers.lib.papers import Claim, config_of, distance_from_law, learns, log_slope, stays_at_unigram
from papers.lib.papers_pictures import (COLORS, STYLES, Line, Panel, beside_laws, by_layer, depth_ticks, drawing,
                                        figure_of, losses_by_rate, seeds_of)
from papers.lib.papers_run import (amplification, curve, fresh, growth_of_gradient, law_of_growth, normscope, predicted,
                                   probe, read_csv, stream, sweep)
from papers.lib.papers_tables import choices, loss_table, markdown, placements, rates, spread, table_of
