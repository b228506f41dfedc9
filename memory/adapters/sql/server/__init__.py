"""What the dialects that are reached over a network share."""
