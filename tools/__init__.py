"""Small programs that the Makefile and CI run."""
