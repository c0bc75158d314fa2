"""The promises of the house: start-up time is not asserted here, but what would spoil it is; the public verbs are frozen."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import click

from scripts import house_figures
from tests.support.stage import hangdoctor

ROOT = Path(__file__).parents[1]


def test_files_that_are_run_first_are_there() -> None:
    names = re.findall(r'"(tests/.+\.py)"', (ROOT / "tests" / "conftest.py").read_text())
    assert len(names) > 9
    assert [name for name in names if not (ROOT / name).is_file()] == []


def product() -> dict[str, ast.Module]:
    """The parsed files of what users run, by their path in the repository."""
    return {
        str(file.relative_to(ROOT)): ast.parse(file.read_text())
        for package, files in house_figures.packages(ROOT).items()
        for file in files
        if package not in ("benchmarks", "tests")
    }


def test_every_public_name_of_the_product_has_a_docstring() -> None:
    trees = product()
    assert len(trees) > 300
    without = {file: house_figures.undocumented(tree) for file, tree in trees.items()}
    without |= {file: ["the module"] for file, tree in trees.items() if not ast.get_docstring(tree)}
    assert {file: names for file, names in without.items() if names} == {}


# A struct's packer takes no keywords, and a tuple for it costs 0.2 microseconds at every operation.
MAY_BE_LONG = {("hangdoctor/probe/recorder.py", "_pack_into")}


def test_long_calls_of_the_product_name_their_arguments() -> None:
    long = {
        (file, call.partition(" ")[0])
        for file, tree in product().items()
        for call in house_figures.long_calls(tree, 7)
    }
    assert long == MAY_BE_LONG


def test_a_missing_docstring_and_a_long_call_are_found() -> None:
    source = """
class Open:
    def told(self): "Says it."
    async def bare(self): f(1, 2, 3, 4, 5, 6, last=7)
    def _own(self): ...
class _Hidden:
    def bare(self): f(1, 2, 3, 4, *rest, 6, 7)
"""
    tree = ast.parse(source)
    assert house_figures.undocumented(tree) == ["Open (line 2)", "bare (line 4)"]
    assert house_figures.long_calls(tree, 7) == ["f (line 7)"]


def test_help_imports_no_verb_and_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['hangdoctor', '--help']\n"
        "from hangdoctor.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'rich', 'psutil', 'zmq', 'torch', 'msgspec', 'hangdoctor.cli.dump'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)


def test_two_ways_to_start_are_one_program(tmp_path: Path) -> None:
    by_module = hangdoctor("--help", cwd=tmp_path).stdout
    script = str(Path(sys.executable).with_name("hangdoctor"))
    done = subprocess.run(
        [script, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[1:] == by_module.splitlines()[1:]


def flags_of(verb: str) -> set[str]:
    from hangdoctor.cli.main import program

    command = program.get_command(click.Context(program), verb)
    assert command is not None
    return {option for p in command.params for option in p.opts if option.startswith("--")}


COMMON = {"--json", "--quiet", "--no-color", "--exit-code"}
REACHED = set(
    "--hostfile --pbs --ray --exec --hosts".split()
    + "--k8s --namespace --container --context --debug-image".split()
)


def test_public_verbs_and_flags_neither_appear_nor_vanish_unnoticed() -> None:
    from hangdoctor.cli.main import VERBS

    assert set(VERBS) == set(
        "dump diagnose run agent collect sidecar top trace report preflight incidents fleet mcp clean completion demo".split()
    )
    assert flags_of("dump") == COMMON | REACHED | {
        "--local",
        "--pid",
        "--jobid",
        "--job",
        "--user",
        "--settle",
        "--timeout",
        "--native",
        "--blocking",
        "--python",
        "--remote-shell",
        "--bundle",
        "--no-bundle",
        "--nccl-dump",
        "--full",
    }
    assert flags_of("diagnose") == COMMON | {"--bundle", "--jobid", "--full"}
    assert flags_of("run") == {"--trace", "--follow", "--ignore", "--from-iteration", "--quiet"}
    assert flags_of("agent") == {
        "--once",
        "--folder",
        "--collector",
        "--via",
        "--insecure",
        "--jobid",
        "--job",
        "--node",
        "--interval",
        "--linger",
        "--while-heard",
        "--spool",
    }
    watch = {
        "--folder",
        "--job",
        "--bind",
        "--stall-after",
        "--slow-after",
        "--settle",
        "--capture-timeout",
        "--config",
        "--dry-run",
        "--once",
        "--web",
        "--web-anywhere",
        "--web-host",
        "--metrics-ranks",
        "--metrics-token",
        "--metrics-open",
    }
    assert flags_of("top") == {
        "--jobid",
        "--collector",
        "--local",
        "--folder",
        "--token-file",
        "--job",
        "--once",
        "--json",
        "--interval",
        "--filter",
        "--no-color",
    }
    assert flags_of("collect") == watch | {"--insecure", "--lonely", "--parent", "--name"}
    assert flags_of("sidecar") == watch | REACHED | {"--jobid", "--local", "--python"}
    assert flags_of("incidents") == {"--folder", "--job"}
    web = {"--web", "--web-anywhere", "--web-host", "--metrics-token", "--metrics-open"}
    assert flags_of("fleet") == web | {"--root", "--folder", "--json"}
    assert flags_of("report") == {
        "--text",
        "--json",
        "--html",
        "--perfetto",
        "--folded",
        "--folded-by-rank",
        "--speedscope",
        "--quiet",
    }
    assert flags_of("preflight") == COMMON | REACHED | {
        "--local",
        "--jobid",
        "--gpus",
        "--path",
        "--python",
        "--timeout",
        "--once",
        "--collectives",
        "--sizes",
        "--rounds",
        "--collective-timeout",
        "--slow-below",
        "--serve",
    }
    assert flags_of("completion") == set()
    assert flags_of("demo") == {"--script", "--fault", "--ranks", "--wait", "--full"}
    assert flags_of("clean") == {"--dry-run", "--bundles", "--quiet"}


def test_names_of_formats_stay_when_modules_are_renamed() -> None:
    """Saved bundles and scripts of users hold on to them."""
    from hangdoctor.model.capture import CAPTURE_SCHEMA
    from hangdoctor.model.diagnosis import DIAGNOSIS_SCHEMA
    from hangdoctor.preflight.compare import SCHEMA as preflight
    from hangdoctor.storage.bundle import BUNDLE_SCHEMA
    from hangdoctor.timeline.late_arrivals import SCHEMA as stragglers

    names = {CAPTURE_SCHEMA, DIAGNOSIS_SCHEMA, preflight, BUNDLE_SCHEMA, stragglers}
    kinds = ("capture", "diagnosis", "preflight", "bundle", "stragglers")
    assert names == {f"hangdoctor.{kind}/1" for kind in kinds}


def test_a_package_called_agents_in_front_is_not_taken_for_ours(tmp_path: Path) -> None:
    for name in ("agents", "train"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the other package')\n")
    env = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"}
    done = hangdoctor("agent", "--once", "e30=", cwd=tmp_path, env=env)
    assert "the other package" not in done.stdout + done.stderr


def test_wrong_usage_is_exit_code_2(tmp_path: Path) -> None:
    for arguments in (
        ["dump", "--local", "--pbs"],
        ["dump", "--settle", "-1", "--local"],
        ["nonsense"],
        ["diagnose"],
    ):
        done = hangdoctor(*arguments, cwd=tmp_path, code=2)
        assert done.stderr and "Traceback" not in done.stderr
