"""All that the modules of scripts/papers use, under one name: claims, sweeps and probes, tables, pictures."""

from lib.base.keys import PLACED
from lib.figures.drawing import drawing
from lib.figures.layout import INK, MUTED, PALETTE, line_handle, matplotlib, new_figure
from lib.figures.panels import write_unit
from lib.figures.plot_final import set_values
from lib.logs import np
from lib.model.measures import Model, sharpness, token_cosine, unit
from papers.lib.papers import Claim, config_of, distance_from_law, learns, log_slope, stays_at_unigram
from papers.lib.papers_pictures import HEIGHT, THEORY, Panel, losses_by_rate, picture_of
from papers.lib.papers_results import Probed
from papers.lib.papers_run import (curve, fresh, growth_of_gradient, law_of_growth, normscope, predicted,
                                   probe, site, stream, sweep)
from papers.lib.papers_tables import choices, crossed, depths, loss_table, markdown, placements, rates, spread, table_of
