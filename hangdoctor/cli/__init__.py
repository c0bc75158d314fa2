"""One file for each verb, loaded when it runs."""
