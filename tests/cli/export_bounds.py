"""What an export may take, on a checkpoint that is written for it: memory that does not follow the model's size,
and the speed is printed.

    export_bounds.py PD_ENGINE [LAYERS]      LAYERS: 4, of TinyLlama's shape; 22 is TinyLlama
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

MOST_BYTES = 200e6  # a matrix of the source, a buffer or two, the program: far below a checkpoint of 0.6 GB

root = pathlib.Path(__file__).resolve().parents[2]
engine, layers = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 4
failed = False
with tempfile.TemporaryDirectory() as folder:
    model = pathlib.Path(folder, "model")
    subprocess.run([sys.executable, root / "tools/random_checkpoint.py", model, "--layers", str(layers)], check=True)
    size = (model / "model.safetensors").stat().st_size
    for weights in ("fp16", "int8", "lut4"):
        out = str(pathlib.Path(folder, weights))
        start = time.monotonic()
        child = subprocess.Popen([engine, "export", str(model), "-o", out, "--weights", weights, "--check", "none", "-q"])
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.monotonic() - start
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        print(f"{weights}: {size / 1e6:.0f} MB in {seconds:.1f} s, {size / 1e6 / seconds:.0f} MB/s "
              f"({usage.ru_utime + usage.ru_stime:.1f} s of processor time), peak {peak / 1e6:.0f} MB", flush=True)
        failed |= status != 0 or peak > MOST_BYTES
        subprocess.run(["rm", "-r", out], check=False)
sys.exit(failed)
