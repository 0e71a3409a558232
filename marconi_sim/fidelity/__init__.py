"""What each departure of the published code from the paper is worth: `marconi-sim fidelity`."""
