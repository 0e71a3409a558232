"""What a trace holds, in numbers and as a picture."""
