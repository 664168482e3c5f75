"""examples/two_prompts.cc gives each prompt the text that pd-engine gives it alone: two_prompts.py EXAMPLE PD_ENGINE MODEL"""
import os
import subprocess
import sys

PROMPTS = ["The capital of France is", "Once upon a time, in a village by the sea,"]

example, engine, model = sys.argv[1:]


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=240).stdout


together = output(example, model, *PROMPTS)
alone = [output(engine, "run", "-m", model, "-q", "-n", "48", "-p", prompt) for prompt in PROMPTS]
for prompt, text in zip(PROMPTS, alone):
    if len(text) < 20 or f"> {prompt}\n{text}" not in together:
        sys.exit(f"alone, {prompt!r} is answered with {text!r}; the example printed:\n{together}")
lanes = 2 if len(os.sched_getaffinity(0)) > 1 else 1
if f"on {lanes} lane" not in together:
    sys.exit(f"expected {lanes} lanes:\n{together}")
