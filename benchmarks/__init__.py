"""Measurements that anybody can repeat with one command each."""
