"""One module per format; each describes itself in a constant `FORMAT` (see `marconi_sim.trace.importing.formats`)."""
