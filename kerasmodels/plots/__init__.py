"""Pictures of what models learn, and of how they learn it.

Every function returns a `matplotlib.figure.Figure`. None of them opens a window or registers the
figure with pyplot, so nothing has to be closed: `figure.savefig("attention.png")` writes it, and a
notebook shows it when it is the last expression of a cell. matplotlib is imported by the first call
(`pip install "kerasmodels[plots]"`).
"""

from kerasmodels.plots.attention import attention_map, position_table
from kerasmodels.plots.confusion import confusion_counts, confusion_matrix
from kerasmodels.plots.explain import grad_cam, grad_cam_map, saliency, saliency_map
from kerasmodels.plots.gan import gan_1d, gan_1d_state
from kerasmodels.plots.images import filters, image_grid
from kerasmodels.plots.residual import residual_responses
from kerasmodels.plots.training import learning_curves, schedule, training_curves

__all__ = [
    "attention_map",
    "confusion_counts",
    "confusion_matrix",
    "filters",
    "gan_1d",
    "gan_1d_state",
    "grad_cam",
    "grad_cam_map",
    "image_grid",
    "learning_curves",
    "position_table",
    "residual_responses",
    "saliency",
    "saliency_map",
    "schedule",
    "training_curves",
]
