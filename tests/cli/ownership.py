"""What is not ours stays byte for byte what it was, and no answer of a batch is lost or comes twice.

    ownership.py PD_ENGINE MODELS [--long]      MODELS: tests/data/models
"""
import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

ENGINE, MODELS, LONG = os.path.abspath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve(), "--long" in sys.argv
MODEL = str(MODELS / "llama-base")
OTHER_MODEL = str(MODELS / "llama-base.q4_1.gguf")  # the same shape
SEED = random.randrange(1 << 32)
RANDOM = random.Random(SEED)
failures = []


def check(ok: bool, what: str) -> bool:
    if not ok:
        failures.append(what)
        print("FAILED:", what, flush=True)
    return ok


def run(*arguments, limit=None, closed=(), kill=None, **options) -> subprocess.CompletedProcess:
    """limit: bytes that a file may have; closed: descriptors; kill: (signal, seconds after the start, or
    what says that it is time)."""

    def prepare():
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        for descriptor in closed:
            os.close(descriptor)

    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    child = subprocess.Popen([ENGINE, *map(str, arguments)], preexec_fn=prepare, **options)
    if kill:
        if callable(kill[1]):
            while child.poll() is None and not kill[1]():
                time.sleep(0.0005)
        else:
            time.sleep(kill[1])
        child.send_signal(kill[0])
    out, err = child.communicate(timeout=120)
    return subprocess.CompletedProcess(child.args, child.returncode, out or b"", (err or b"").decode(errors="replace"))


def snapshot(folder: pathlib.Path) -> dict:
    """Everything in a folder: its kind and mode, and its bytes or where it leads."""
    entries = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        what = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        entries[str(path.relative_to(folder))] = (stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode), what)
    return entries


def differences(before: dict, after: dict) -> list:
    return [name for name, entry in before.items() if after.get(name) != entry]


def questions(count: int) -> str:
    lines = []
    for i in range(count):
        line = {"id": i, "prompt": chr(97 + i % 26) * (1 + i * 5 % 90), "raw": True, "max_tokens": 5 + i % 7}
        if i % 5 == 4:
            line |= {"temperature": 0.9, "seed": i}
        lines.append(json.dumps(line))
    return "\n".join(lines) + "\n"


def answers(path: pathlib.Path) -> list:
    keys = ("line", "id", "text", "finish_reason", "tokens")
    return [[json.loads(line)[key] for key in keys] for line in path.read_text().splitlines()]


class World:
    """A folder full of what belongs to somebody."""

    def __init__(self, root: pathlib.Path, bundle: pathlib.Path):
        self.root = root
        root.mkdir()
        (root / "in.jsonl").write_text(questions(6))
        (root / "README").write_text("Mine.\nAll of it.\n")
        (root / "one-line").write_text("a letter without its end")
        (root / "binary").write_bytes(bytes(range(256)) * 40)
        (root / "looks.jsonl").write_text('{"line":1,"input":"0123456789abcdef","text":"not yours"}\n')
        (root / "half.jsonl").write_text('{"line":1,"inp')
        (root / "readonly").write_text("do not write")
        (root / "readonly").chmod(0o400)
        (root / "link").symlink_to("README")
        (root / "chain").symlink_to("link")
        (root / "circle").symlink_to("circle")
        (root / "dangling").symlink_to("made-by-a-link")
        (root / "to-input").symlink_to("in.jsonl")
        os.link(root / "in.jsonl", root / "hard-input")
        os.mkfifo(root / "fifo")
        (root / "photos").mkdir()
        (root / "photos" / "cat.jpg").write_bytes(b"meow")
        (root / "photos" / "bundle.json").write_text('{"name": "a web page", "files": {"cat.jpg": {}}}')
        (root / "to-photos").symlink_to("photos")
        shutil.copytree(bundle, root / "annotated")
        (root / "annotated" / "README.md").write_text("why I made it")
        shutil.copytree(bundle, root / "finder")
        (root / "finder" / ".DS_Store").write_bytes(b"\0Bud1")
        (root / "finder" / "shard_0.mlpackage" / "._Manifest.json").write_bytes(b"\0\5\x16\7")
        (root / "to-bundle").symlink_to("finder")
        (root / "finder.partial-1").mkdir()
        (root / "finder.partial-1" / "diary").write_text("dear diary")
        (root / "README.tmp1").write_text("mine too")
        (root / "report.txt").write_text("a report of my own")
        (root / "report.json").write_text('{"also": "mine"}')
        (root / "machine.json").write_text('{"version": 1, "read_bandwidth": []}')

    OUTPUTS = ("README", "one-line", "binary", "looks.jsonl", "half.jsonl", "link", "chain", "circle",
               "dangling", "to-input", "in.jsonl", "hard-input", "photos", "to-photos", "annotated", "finder",
               "to-bundle", "report", "new", "no/such/folder", "", "-")

    def commands(self) -> dict:
        """By name: what it is started with, and whether it may replace a regular file that is named to it."""
        root = self.root
        trace = str(self.root / "trace")
        return {
            "batch": (lambda o: ("batch", "-m", MODEL, root / "in.jsonl", "-o", o), False),
            "logits": (lambda o: ("logits", "-m", MODEL, "-i", "1,2,3,4,5", "-o", o), True),
            "simulate": (lambda o: ("simulate", "--profile", "m4", "--trace", trace, "--svg", o), True),
            "export": (lambda o: ("export", MODEL, "--chunks", "32", "--history", "0", "-q", "-o", o), False),
            "doctor": (lambda o: ("doctor", "--bundle", root / "finder", "-m", MODEL, "--decode", "cpu",
                                  "-o", o), False),
        }


def own_files(root: pathlib.Path, before: dict, command: str, output: str) -> set:
    """What the command may change: the file that was named to it, or a bundle of ours and its files."""
    target = root / output
    with contextlib.suppress(RuntimeError, OSError):
        target = target.resolve()
    name = os.path.relpath(target, root)
    if command in ("logits", "simulate"):
        return {name}
    if command == "export" and name == "finder":
        return {n for n in before if n.split("/")[0] == "finder" and not n.split("/")[-1].startswith(".")}
    return set()


def test_foreign_files(folder: pathlib.Path, bundle: pathlib.Path) -> None:
    conditions = {
        "plain": {},
        "small disk": {"limit": 300},
        "stderr closed": {"closed": (2,)},
        "all closed": {"closed": (0, 1, 2)},
        "stderr full": {"stderr": open("/dev/full", "wb")},
        "stdout full": {"stdout": open("/dev/full", "wb")},
    }
    for step in range(40 if LONG else 4):
        number = signal.SIGINT if step % 2 else signal.SIGKILL
        conditions[f"{number.name} {step}"] = {"kill": (number, RANDOM.uniform(0, 0.15))}
    world = World(folder / "world", bundle)
    (world.root / "trace").write_text('{"at_ms": 0, "prompt": 900, "output": 100}\n')
    cases = [(c, o, how) for c in world.commands() for o in World.OUTPUTS for how in conditions]
    # Every output once with nothing in the way, and a sample of the rest.
    plain = [case for case in cases if case[2] == "plain"]
    rest = [case for case in cases if case[2] != "plain"]
    chosen = plain + (rest if LONG else RANDOM.sample(rest, 60))
    pristine = folder / "pristine"
    subprocess.run(["cp", "-a", world.root, pristine], check=True)
    for command, output, how in chosen:
        shutil.rmtree(world.root)
        subprocess.run(["cp", "-a", pristine, world.root], check=True)
        before = snapshot(world.root)
        arguments, replaces = world.commands()[command]
        # A relative name too: in the folder itself.
        done = run(*arguments(output), cwd=world.root, **conditions[how])
        after = snapshot(world.root)
        changed = set(differences(before, after))
        allowed = own_files(world.root, before, command, output)
        check(not changed - allowed, f"{command} -o {output!r}, {how}: changed {sorted(changed - allowed)}")
        input_names = {"in.jsonl", "hard-input", "to-input"}
        if command == "batch" and output in input_names | {"README", "one-line", "binary", "looks.jsonl",
                                                           "half.jsonl", "link", "chain", "circle"}:
            check(how != "plain" or (done.returncode == 2 and output in done.stderr),
                  f"batch -o {output}: {done.returncode}: {done.stderr}")
        if how == "plain" and replaces and output in ("README", "link", "chain", "new", "dangling"):
            check(done.returncode == 0, f"{command} -o {output}: {done.returncode}: {done.stderr}")
        if how == "plain" and command == "export" and output in ("finder", "to-bundle", "new"):
            check(done.returncode == 0, f"export -o {output}: {done.returncode}: {done.stderr}")
            check(run("inspect", world.root / output).returncode == 0, f"export -o {output}: no whole bundle")
        if how == "plain" and command == "export" and output in ("photos", "annotated", "README", "", "-"):
            check(done.returncode == 2, f"export -o {output}: {done.returncode}: {done.stderr}")
        if command == "export":  # whenever it ended: the bundle is whole
            check(run("inspect", world.root / "finder").returncode == 0, f"{command} -o {output}, {how}: broken")
        if "closed" not in how and "full" not in how and "disk" not in how:
            check(done.returncode in (0, 2, 3, 7, 130, -signal.SIGKILL, -signal.SIGINT),
                  f"{command} -o {output}, {how}: {done.returncode}: {done.stderr}")
        check(done.returncode != -signal.SIGABRT, f"{command} -o {output}, {how}: aborted")
    shutil.rmtree(world.root)
    shutil.rmtree(pristine)


def own_device(folder: pathlib.Path, name: str, minor: int) -> pathlib.Path:
    """A device of our own: who is root could harm the system's. Others cannot, and cannot make one."""
    path = folder / name
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        path.open("wb").close()
        return path
    except OSError:
        if os.geteuid() == 0:
            sys.exit("as root this test needs devices of its own, which this system does not allow here")
        return pathlib.Path("/dev", name)


def test_written_through(folder: pathlib.Path) -> None:
    """Devices and pipes get the output and stay what they are."""
    null, full = own_device(folder, "null", 3), own_device(folder, "full", 7)
    stdout = folder / "stdout"
    stdout.symlink_to("/dev/fd/1")
    (folder / "in.jsonl").write_text(questions(6))
    (folder / "trace").write_text('{"at_ms": 0, "prompt": 900, "output": 100}\n')
    commands = {
        "batch": ("batch", "-m", MODEL, folder / "in.jsonl", "-q", "-o"),
        "logits": ("logits", "-m", MODEL, "-i", "1,2,3,4,5", "-o"),
        "simulate": ("simulate", "--profile", "m4", "--trace", folder / "trace", "--json", "--svg"),
    }
    for name, command in commands.items():
        whole = folder / f"whole-{name}"
        check(run(*command, whole).returncode == 0, f"{name} -o FILE")
        size = whole.stat().st_size
        fifo = folder / f"fifo-{name}"
        os.mkfifo(fifo)
        got = []
        reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
        reader.start()
        done = run(*command, fifo)
        reader.join(20)
        check(done.returncode == 0 and stat.S_ISFIFO(fifo.lstat().st_mode), f"{name} -o FIFO: {done.stderr}")
        check(bool(got) and (name == "batch" or len(got[0]) == size), f"{name} -o FIFO: not all of it came")
        if name == "batch":
            check(got[0].count(b"\n") == 6, "batch -o FIFO: six answers")
        before = os.lstat(null), os.lstat(full)
        for device in (null, stdout, "/dev/fd/1", "-"):
            done = run(*command, device)
            check(done.returncode == 0, f"{name} -o {device}: {done.returncode}: {done.stderr}")
            if device != null:
                check(name == "batch" and done.stdout.count(b"\n") == 6 or name != "batch" and len(done.stdout) >= size,
                      f"{name} -o {device}: {len(done.stdout)} bytes")
        check(run(*command, full).returncode == 7, f"{name} -o /dev/full")
        for old, new in zip(before, (os.lstat(null), os.lstat(full))):
            check((old.st_mode, old.st_ino) == (new.st_mode, new.st_ino), f"{name}: a device was replaced")
        check(stdout.is_symlink(), f"{name} -o LINK to standard output: the link was replaced")
        read_end, write_end = os.pipe()
        os.close(read_end)
        done = run(*command, "-", stdout=write_end)
        os.close(write_end)
        check(done.returncode == 141, f"{name} -o - without a reader: {done.returncode}: {done.stderr}")
        # A file that it replaces keeps its mode, and a link to it stays.
        if name != "batch":
            mine = folder / f"private-{name}"
            mine.write_text("old")
            mine.chmod(0o600)
            link = folder / f"link-{name}"
            link.symlink_to(mine.name)
            check(run(*command, link).returncode == 0, f"{name} -o LINK")
            check(link.is_symlink() and mine.stat().st_size == size, f"{name} -o LINK: the link was replaced")
            check(stat.S_IMODE(mine.stat().st_mode) == 0o600, f"{name} -o LINK: another mode")


def test_reports(folder: pathlib.Path) -> None:
    """A message that cannot be written changes neither the result nor the exit code."""
    (folder / "in.jsonl").write_text(questions(6))
    cases = {
        "text": (("run", "-m", MODEL, "--raw", "-p", "Hello", "-n", "5"), 0),
        "no model": (("run", "-m", folder / "no-model", "-p", "Hello"), 3),
        "no flag": (("run", "--no-such-flag"), 2),
        "empty prompt": (("run", "-m", MODEL, "--raw", "-p", ""), 2),
    }
    read_end, closed_pipe = os.pipe()
    os.close(read_end)
    for name, (command, code) in cases.items():
        want = run(*command)
        check(want.returncode == code, f"{name}: {want.returncode}: {want.stderr}")
        for how, options in {"closed": {"closed": (2,)}, "full": {"stderr": open("/dev/full", "wb")},
                             "no reader": {"stderr": closed_pipe}, "no input": {"closed": (0, 2)}}.items():
            got = run(*command, **options)
            check((got.returncode, got.stdout) == (code, want.stdout), f"{name}, stderr {how}: {got.returncode}")
    for how, options in {"closed": {"closed": (2,)}, "full": {"stderr": open("/dev/full", "wb")}}.items():
        out = folder / f"out-{how}.jsonl"
        done = run("batch", "-m", MODEL, folder / "in.jsonl", "-o", out, **options)
        check(done.returncode == 0 and len(answers(out)) == 6, f"batch, stderr {how}: {done.returncode}")
    done = run("run", "-m", MODEL, "--raw", "-p", "Hello", "-n", "5", closed=(1,))
    check(done.returncode == 7, f"a text that cannot be written is no success: {done.returncode}")


def test_nowhere_to_keep(folder: pathlib.Path) -> None:
    """Without a cache folder nothing is kept, and nothing of the current folder is believed."""
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CACHE_HOME", "PD_ENGINE_CACHE")}
    here = folder / "here"
    here.mkdir()
    command = ("run", "-m", MODEL, "--raw", "-p", "Hello", "-n", "5", "--json")
    first = run(*command, cwd=here, env=environment)
    check(first.returncode == 0 and not list(here.iterdir()), f"no HOME: kept {list(here.iterdir())}")
    # A rate that nobody measured, for every size of working set.
    cpu = next((line.split(": ")[1] for line in open("/proc/cpuinfo") if line.startswith("model name")), "").strip()
    entries = [{"cpu": cpu, "threads": t, "bytes": 1 << b, "bytes_per_s": 1e15}
               for b in range(20, 30) for t in range(1, 65)]
    (here / "machine.json").write_text(json.dumps({"version": 1, "read_bandwidth": entries}))
    for variables in ({}, {"HOME": ""}, {"HOME": "."}, {"XDG_CACHE_HOME": "."}):
        before = snapshot(here)
        done = run(*command, cwd=here, env=environment | variables)
        check(done.returncode == 0, f"{variables}: {done.stderr}")
        rate = json.loads(done.stdout)["decode"]["machine_gb_per_s"]
        check(rate is None or rate < 1e5, f"{variables}: believed {rate} GB/s")
        check(snapshot(here) == before, f"{variables}: something was written")


def test_killed_batches(folder: pathlib.Path, rounds: int) -> None:
    count = 400
    (folder / "in.jsonl").write_text(questions(count))
    command = ("batch", "-m", MODEL, folder / "in.jsonl", "--parallel", "2", "-o")
    start = time.monotonic()
    check(run(*command, folder / "whole.jsonl").returncode == 0, "a whole batch")
    seconds = time.monotonic() - start
    whole, whole_bytes = answers(folder / "whole.jsonl"), (folder / "whole.jsonl").read_bytes()
    check([answer[0] for answer in whole] == list(range(1, count + 1)), "answers in order")
    others = {"-n": ("-n", "3"), "--temp": ("--temp", "0.5"), "--stop": ("--stop", "x"), "--raw": ("--raw",),
              "--decode": ("--decode", "reference"), "model": ("-m", OTHER_MODEL)}
    found = []  # answers that were there when a run was killed
    for number in range(rounds):
        out = folder / f"out-{number}.jsonl"
        kept = b""
        for attempt in range(4):
            how = signal.SIGINT if RANDOM.random() < 0.25 else signal.SIGKILL
            # At any time, or once there is one answer more than a random number of them.
            enough = RANDOM.randrange(len(whole_bytes) // 4 * attempt, len(whole_bytes) // 4 * (attempt + 1))
            grown = lambda: out.exists() and out.stat().st_size > enough
            run(*command, out, kill=(how, RANDOM.uniform(0, seconds / 2) if RANDOM.random() < 0.3 else grown))
            now = out.read_bytes() if out.exists() else b""
            lines = now[: now.rfind(b"\n") + 1]
            check(lines.startswith(kept), f"round {number}: an answer was lost")
            kept = lines
            found.append(kept.count(b"\n"))
            if not kept:
                continue
            for name, flags in others.items() if attempt == 3 or LONG else ():
                again = list(command)
                if flags[0] == "-m":
                    again[2:3] = [flags[1]]
                else:
                    again[-1:-1] = flags
                done = run(*again, out)
                check(done.returncode == 2 and " was " in done.stderr, f"resumed with {name}: {done.stderr}")
                check(out.read_bytes() == now, f"resumed with {name}: the output was changed")
        check(run(*command, out, "--threads", "1").returncode == 0, f"round {number}: resumed")
        check(out.read_bytes().startswith(kept), f"round {number}: an answer was made anew")
        check(answers(out) == whole, f"round {number}: other answers")
    print("killed after", found, "of", count)
    check(any(0 < n < count for n in found), "no run was killed in the middle, so that this proves little")
    # Two at a time: one of them is refused.
    out = folder / "contended.jsonl"
    first = subprocess.Popen([ENGINE, *map(str, command), str(out), "-q"])
    while first.poll() is None and not out.exists():
        time.sleep(0.001)
    second = run(*command, out, "-q")
    check(first.wait() == 0 and answers(out) == whole, "two batches on one output")
    check(second.returncode == 0 or "another batch" in second.stderr, f"the second batch: {second.stderr}")


def test_replaced_bundles(folder: pathlib.Path, seconds: float) -> None:
    """While a bundle is replaced, no run ever answers with another model's keys and values, and none fails."""
    bundle = folder / "bundle"
    export = ("--chunks", "32", "--history", "0,64", "--check", "none", "-q", "-o", bundle)
    models = {MODEL: None, OTHER_MODEL: None}

    def ask(model):
        return run("run", "-m", model, "--raw", "-n", "12", "-p", "The quick brown fox jumps over it", "-q",
                   "--prefill", "coreml", "--bundle", bundle)

    for model in models:
        check(run("export", model, *export).returncode == 0, "an export")
        models[model] = ask(model).stdout
    stop, outcomes = threading.Event(), {"text": 0, "refused": 0}

    def replace():
        while not stop.is_set():
            for model in models:
                done = run("export", model, *export)
                check(done.returncode == 0, f"an export beside runs: {done.stderr}")

    def read():
        while not stop.is_set():
            for model, text in models.items():
                done = ask(model)
                if done.returncode == 0:
                    check(done.stdout == text, "a run answered with another model's keys and values")
                    outcomes["text"] += 1
                else:
                    check(done.returncode in (2, 8) and ("made from another model" in done.stderr
                                                         or "replaced again" in done.stderr), done.stderr)
                    outcomes["refused"] += 1

    threads = [threading.Thread(target=target) for target in (replace, read, read)]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    print("while it was replaced:", outcomes)
    check(outcomes["text"] > 0, "no run came through")
    check({p.name for p in folder.iterdir()} == {"bundle"}, f"left behind: {[p.name for p in folder.iterdir()]}")


print(f"seed {SEED}", flush=True)
with tempfile.TemporaryDirectory() as root:
    os.environ["PD_ENGINE_CACHE"] = str(pathlib.Path(root, "cache"))
    made = pathlib.Path(root, "made")
    if run("export", MODEL, "--chunks", "32", "--history", "0", "--check", "none", "-q", "-o", made).returncode:
        sys.exit("the bundle cannot be made")
    tests = {
        "foreign files": lambda folder: test_foreign_files(folder, made),
        "written through": test_written_through,
        "reports": test_reports,
        "nowhere to keep": test_nowhere_to_keep,
        "killed batches": lambda folder: test_killed_batches(folder, 20 if LONG else 3),
        "replaced bundles": lambda folder: test_replaced_bundles(folder, 60 if LONG else 4),
    }
    wanted = [a for a in sys.argv[3:] if not a.startswith("--")]
    for index, (name, test) in enumerate(tests.items()):
        if wanted and name not in wanted:
            continue
        begin = time.monotonic()
        folder = pathlib.Path(root, str(index))
        folder.mkdir()
        test(folder)
        print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
sys.exit(1 if failures else 0)
