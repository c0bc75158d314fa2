"""Layouts run as real jobs, a few iterations each: the seconds of an iteration, measured."""
