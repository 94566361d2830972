"""Runs an operator with two synchronisation points as graphs, fused kernels and megakernels, and measures them.

Data flows one way, and so do the imports between the rooms:

``operator`` (what is computed) → ``variants`` (how) → ``record`` (what a run leaves) → ``device`` (where) →
``run`` (plan, launch, verify, measure) → ``report`` (tables, figures) → ``cli`` (the command ``mk``).
"""

__version__ = "0.1.0"
