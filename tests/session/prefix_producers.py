"""One folder of prefixes for many ways to compute them: each run's text is what it is without the folder.

    prefix_producers.py PD_ENGINE MODELS [--long]      MODELS: tests/data/models
"""
import array
import itertools
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile

ENGINE, MODELS, LONG = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve(), "--long" in sys.argv
MODEL = MODELS / "llama-base"
PROMPT = ("Once upon a time there was a small engine that read the beginning of a story and kept it, so that it "
          "need not read it again. ") * 2
TOKENS = 24
failures = 0


def run(flags: list, folder: pathlib.Path | None) -> dict:
    """What the answer says; with a folder, its prompt is kept there, or found."""
    command = [ENGINE, "run", "--raw", "-p", PROMPT, "-n", str(TOKENS), "--json", "--logprobs", "1", "-q", *flags]
    if folder:
        command += ["--prefix-cache-dir", str(folder)]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout)


def fine_tune(source: pathlib.Path, to: pathlib.Path) -> None:
    """The same shape, other weights: each float is changed a little."""
    shutil.copytree(source, to)
    file = to / "model.safetensors"
    data = bytearray(file.read_bytes())
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    for name, tensor in header.items():
        if name == "__metadata__" or tensor["dtype"] != "F32":
            continue
        begin, end = (8 + size + offset for offset in tensor["data_offsets"])
        values = array.array("f", bytes(data[begin:end]))
        for i in range(0, len(values), 3):
            values[i] *= 1.25
        data[begin:end] = values.tobytes()
    file.write_bytes(data)


def export(model: pathlib.Path, weights: str, to: pathlib.Path) -> pathlib.Path:
    command = [ENGINE, "export", model, "--weights", weights, "--chunks", "32", "--history", "0,64,256", "-q", "-o", to]
    subprocess.run([str(part) for part in command], check=True, timeout=120)
    return to


def has_mlx() -> bool:
    done = subprocess.run([ENGINE, "logits", "-m", str(MODEL), "-i", "1", "--device", "mlx", "-o", "-"],
                          capture_output=True, timeout=120)
    return done.returncode == 0


with tempfile.TemporaryDirectory() as root:
    root = pathlib.Path(root)
    os.environ["PD_ENGINE_CACHE"] = str(root / "cache")
    tuned = root / "tuned"
    fine_tune(MODEL, tuned)
    on_cpu = ["-m", MODEL, "--decode", "cpu"]
    producers = {
        "cpu": on_cpu,
        "reference": ["-m", MODEL, "--decode", "reference"],
        "reference to cpu": ["-m", MODEL, "--prefill", "reference", "--decode", "cpu"],
        "fine-tune": ["-m", tuned, "--decode", "cpu"],
        "q4_1 file": ["-m", MODELS / "llama-base.q4_1.gguf", "--decode", "cpu"],
    }
    for weights in ("fp16", "int8", "lut4"):
        bundle = export(MODEL, weights, root / weights)
        producers[f"coreml {weights}"] = [*on_cpu, "--prefill", "coreml", "--bundle", bundle]
    bundle = export(tuned, "fp16", root / "tuned-fp16")
    producers["coreml fine-tune"] = ["-m", tuned, "--decode", "cpu", "--prefill", "coreml", "--bundle", bundle]
    if has_mlx():
        for bits in ("none", "q4", "q8"):
            producers[f"mlx {bits}"] = ["-m", MODEL, "--decode", "mlx", "--quantize", bits]
            producers[f"mlx {bits} to cpu"] = [*on_cpu, "--prefill", "mlx", "--quantize", bits]
    alone = {name: run(flags, None) for name, flags in producers.items()}
    texts = {name: answer["token_ids"] for name, answer in alone.items()}
    print(f"{len(producers)} producers, {len(set(map(tuple, texts.values())))} texts")

    def compare(what: str, name: str, answer: dict) -> None:
        global failures
        want = alone[name]
        distance = max((abs(a["logprob"] - b["logprob"]) for a, b in zip(answer["logprobs"], want["logprobs"])), default=0)
        # Rounding may depend on how a prompt is divided; another producer's keys are far beyond that.
        if answer["token_ids"] != want["token_ids"] or distance > 1e-3:
            failures += 1
            print(f"FAILED: {what}: {name} says another text, log-probabilities {distance:.5f} apart, "
                  f"{answer['prefill'].get('cached_tokens', 0)} tokens of the cache")

    pairs = list(itertools.permutations(producers, 2))
    if not LONG:  # those that share most: the same model in another form
        pairs = [pair for pair in pairs if "cpu" in pair or pair == ("coreml lut4", "coreml fp16")]
    for first, second in pairs:
        folder = root / "prefixes"
        compare(f"fills the folder", first, run(producers[first], folder))
        compare(f"after {first}", second, run(producers[second], folder))
        again = run(producers[second], folder)
        compare(f"after {first} and itself", second, again)
        if not again["prefill"].get("cached_tokens"):
            failures += 1
            print(f"FAILED: {second} does not find what it has kept itself, so that this proves nothing")
        shutil.rmtree(folder)
    if LONG:  # all of them over one folder, in turn
        folder = root / "all"
        for turn in range(2):
            for name, flags in producers.items():
                compare(f"turn {turn} of all", name, run(flags, folder))
sys.exit(1 if failures else 0)
