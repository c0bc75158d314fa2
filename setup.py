"""What pyproject.toml cannot say: the extension of call tracing, left out where there is no C compiler."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "hangdoctor.probe.calls._calls",
            ["hangdoctor/probe/calls/_calls.c"],
            extra_compile_args=["-O3", "-Wall"],
            optional=True,  # tracing then works in pure Python, slower
        )
    ]
)
