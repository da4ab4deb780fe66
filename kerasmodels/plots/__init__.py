"""Pictures: attention maps, the position table, learning-rate schedules, learning curves.

Every function returns a `matplotlib.figure.Figure`. None of them opens a window or registers the
figure with pyplot, so nothing has to be closed: `figure.savefig("attention.png")` writes it, and a
notebook shows it when it is the last expression of a cell. matplotlib is imported by the first call
(`pip install "kerasmodels[plots]"`).
"""

from kerasmodels.plots.attention import attention_map, position_table
from kerasmodels.plots.gan import gan_1d, gan_1d_state
from kerasmodels.plots.images import image_grid
from kerasmodels.plots.training import learning_curves, schedule

__all__ = [
    "attention_map",
    "gan_1d",
    "gan_1d_state",
    "image_grid",
    "learning_curves",
    "position_table",
    "schedule",
]
