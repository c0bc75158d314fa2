"""`hangdoctor trace`: one file for each group of sub-verbs."""
