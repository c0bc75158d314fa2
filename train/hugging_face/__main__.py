"""python -m hangdoctor.train.hugging_face export|import: models to and from Hugging Face's folders.

    python -m hangdoctor.train.hugging_face export --checkpoint ckpt/global_step300 --output FOLDER
    python -m hangdoctor.train.hugging_face import --input FOLDER > model.yaml

`export` writes config.json and model.safetensors of a checkpoint of any layout, in the shape of
GPT-2 or Llama. `import` prints the options of such a model as YAML, `model.weights` among them: a
new training with that file starts from its weights, in any layout.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from ..generate import load_model
from ..options import ConfigError
from .exchange import options_of, write_model


def imported(folder: Path) -> str:
    """The YAML for a folder's model."""
    import yaml

    sections: dict[str, Any] = {"model": {**options_of(folder), "weights": str(folder)}}
    if (folder / "tokenizer.json").is_file():
        sections["data"] = {"tokenizer": str(folder / "tokenizer.json")}
    return yaml.safe_dump(sections, sort_keys=False)


def main(argv: list[str] | None = None) -> int:
    """Export or import; 2 where that cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m hangdoctor.train.hugging_face", description=(__doc__ or "").splitlines()[0]
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    export = verbs.add_parser("export", help="a checkpoint as a Hugging Face model")
    export.add_argument("--checkpoint", required=True, type=Path, help="a global_stepN folder")
    export.add_argument("--output", required=True, type=Path, help="folder to write")
    export.add_argument("--tokenizer", default="", help="where the tokenizer is now")
    importing = verbs.add_parser("import", help="options that start from a Hugging Face model")
    importing.add_argument("--input", required=True, type=Path, help="a model's folder")
    options = parser.parse_args(argv)
    try:
        if options.verb == "import":
            print(imported(options.input), end="")
        else:
            model, _ = load_model(options.checkpoint, options.tokenizer)
            write_model(model, options.output)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
