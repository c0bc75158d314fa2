"""What pyproject.toml cannot say: the extensions of the probe, left out where there is no C compiler."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            f"hangdoctor.probe.{package}._{package}",
            [f"hangdoctor/probe/{package}/_{package}.c"],
            # Small rather than fast: between two operations of a training the caches turn over.
            extra_compile_args=["-O3" if package == "calls" else "-Os", "-fno-plt", "-Wall"],
            optional=True,  # the probe and tracing then work in pure Python, slower
        )
        for package in ("calls", "record")
    ]
)
