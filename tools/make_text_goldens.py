#!/usr/bin/env python3
"""Makes tests/data/text with Hugging Face tokenizers, transformers, sentencepiece and the gguf package.

    tools/make_text_goldens.py tokenizers templates
    tools/make_text_goldens.py smollm2 --smollm2 SmolLM2-135M-Instruct.Q4_1.gguf

The same versions (tools/requirements-goldens.txt) give the same bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

REPOSITORY = Path(__file__).resolve().parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=["tokenizers", "templates", "smollm2"])
    parser.add_argument("--out", type=Path, default=REPOSITORY / "tests" / "data" / "text")
    parser.add_argument("--smollm2", type=Path, help="the default model's GGUF file")
    args = parser.parse_args()

    from goldens import text_lines

    lines = text_lines.lines()
    args.out.mkdir(parents=True, exist_ok=True)
    if "tokenizers" in args.parts:
        from goldens import text_tokenizers

        (args.out / "lines.json").write_text(json.dumps(lines, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
        text_tokenizers.make_byte_level(args.out, lines)
        text_tokenizers.make_sentence_piece(args.out, lines)
        text_tokenizers.make_metaspace(args.out, lines)
        text_tokenizers.make_gemma(args.out, lines)
    if "templates" in args.parts:
        from goldens import text_templates

        text_templates.make(args.out / "templates.json")
        text_templates.make_differential(args.out)
    if "smollm2" in args.parts:
        if args.smollm2 is None:
            parser.error("smollm2 needs --smollm2 FILE")
        from goldens import text_tokenizers

        text_tokenizers.make_smollm2(args.out, lines, args.smollm2)
    print(f"{len(lines)} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
