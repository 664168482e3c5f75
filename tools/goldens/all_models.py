"""Every case of goldens.cases: folder, GGUF files, goldens, and models.json that lists them for the tests."""

from __future__ import annotations

import json
from pathlib import Path

from transformers import AutoConfig, PreTrainedModel

from goldens import gguf_files, mlx_folders, models
from goldens.cases import CASES, Case


def make(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    entries = [entry for case in CASES for entry in _make_case(case, out)]
    entries += mlx_folders.make(out)
    lines = ",\n  ".join(json.dumps(entry) for entry in entries)
    (out / "models.json").write_text(f"[\n  {lines}\n]\n")


def _make_case(case: Case, out: Path) -> list[dict]:
    folder = out / case.name
    original = models.build(case)
    models.save_folder(case, original, folder)
    loaded = models.load_double(folder)
    if case.old_style is not None:
        _check_same_meaning(case, folder, loaded)
    golden = f"{case.name}/golden.safetensors"
    entry = {"model": case.name, "golden": golden, "covers": case.covers}
    entry |= models.write_golden(case, loaded, out / golden, case.layers_kept)
    entries = [entry]
    for file in case.gguf:
        path = out / f"{case.name}.{file.suffix}.gguf"
        gguf_files.write(case, file, original, path)
        decoded = gguf_files.load_double(path, case.config)
        numbers = {key: entry[key] for key in ("prompt_lengths", "logit_std", "rounding")}
        if file.same_weights:
            _check_same_weights(decoded, loaded, path)
            file_golden = golden
        else:
            file_golden = f"{case.name}.{file.suffix}.golden.safetensors"
            numbers = models.write_golden(case, decoded, out / file_golden, ())
        covers = f"{case.name} as GGUF {file.suffix.upper()}"
        entries.append({"model": path.name, "golden": file_golden, "covers": covers} | numbers)
    print(f"{case.name}: {len(entries)} models, logit std {entry['logit_std']}, rounding {entry['rounding']:.1e}")
    return entries


def _check_same_weights(decoded: PreTrainedModel, loaded: PreTrainedModel, path: Path) -> None:
    # Gemma's stored gain is rounded once more when one is added; everything else must come back exactly.
    tolerance = 1e-7 if "gemma" in path.name else 0.0
    for name, value in loaded.state_dict().items():
        worst = float((decoded.state_dict()[name] - value).abs().max())
        assert worst <= tolerance, f"{path}: {name} came back {worst} off"


def _check_same_meaning(case: Case, folder: Path, loaded: PreTrainedModel) -> None:
    """transformers itself must read config.old.json as the same model."""
    old = models.load_double(folder, config=AutoConfig.from_pretrained(folder / "config.old.json"))
    for ids in models.prompts(case):
        different = (models.run(old, ids)["logits"] - models.run(loaded, ids)["logits"]).abs().max()
        assert different == 0, f"{folder}: config.old.json gives logits {different} off"
