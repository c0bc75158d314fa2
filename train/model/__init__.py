"""The GPT as a list of pipeline layers."""
