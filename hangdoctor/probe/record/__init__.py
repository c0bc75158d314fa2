"""The C extension of the black box's hot path, where a compiler was there when hangdoctor was
installed.
"""
