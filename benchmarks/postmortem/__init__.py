"""Jobs that end in many ways: is the rank that failed first named from what is left of them?"""
