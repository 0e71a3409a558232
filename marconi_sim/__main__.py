"""`python -m marconi_sim` is `marconi-sim`."""

from marconi_sim.cli import main

main()
