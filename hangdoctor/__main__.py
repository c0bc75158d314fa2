"""``python -m hangdoctor``: the same program as the ``hangdoctor`` command."""

from .cli.main import main

main()
