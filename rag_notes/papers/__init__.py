"""What the papers print and claim, and the verification of it by our runs."""
