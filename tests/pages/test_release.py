"""What a release says of itself agrees: versions, licences, workflows, the extras that texts name.

`python -m tests.release` builds and tests the files themselves.
"""

import importlib.util
import re
import runpy
import tomllib
from pathlib import Path

import pytest
import yaml

import functrans as ft

pytestmark = pytest.mark.smoke

ROOT = Path(__file__).parents[2]
PACKAGE = Path(ft.__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASES = re.findall(
    r"^## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)$", (ROOT / "CHANGELOG.md").read_text(), re.M
)


def test_the_version_is_the_newest_of_the_changelog():
    assert "version" in PROJECT["dynamic"]
    assert ft.__version__ == RELEASES[0][0]
    assert "__version__" in dir(ft)
    numbers = [tuple(map(int, version.split("."))) for version, _ in RELEASES]
    assert numbers == sorted(numbers, reverse=True)
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]\n" in text
    for name in ("Unreleased", *[version for version, _ in RELEASES]):
        assert f"\n[{name}]: {PROJECT['urls']['Repository']}/" in text


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (cited["version"], str(cited["date-released"])) == RELEASES[0]
    assert cited["repository-code"] == PROJECT["urls"]["Repository"]


def test_links_of_the_readme_work_on_a_package_index():
    assert "readme" in PROJECT["dynamic"]
    shown = runpy.run_path(str(ROOT / "setup.py"))["long_description"]()
    kept, home = (ROOT / "README.md").read_text(), PROJECT["urls"]["Repository"]
    targets = re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", shown)
    assert len(targets) > 15
    assert all("".join(target).startswith(f"{home}/") for target in targets)
    assert re.sub(rf"{home}/(?:blob|raw)/main/", "", shown) == kept  # nothing else is changed


def test_licences_of_what_others_wrote_are_named():
    named = {Path(name) for name in PROJECT["license-files"]}
    theirs = {Path("functrans", p.relative_to(PACKAGE)) for p in PACKAGE.rglob("*LICENSE*")}
    assert named == {Path("LICENSE"), *theirs}
    assert PROJECT["license"] == "Apache-2.0 AND MIT"
    for script in PACKAGE.rglob("*.min.js"):
        assert script.with_name(f"{script.name.removesuffix('.min.js')}.LICENSE").exists()


def commands(path: Path) -> list[str]:
    """What the jobs of a workflow run."""
    jobs = yaml.safe_load(path.read_text())["jobs"]
    return [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]


def packages(*extras: str) -> set[str]:
    """The names of what extras install."""
    found = set()
    for word in [word for extra in extras for word in EXTRAS[extra]]:
        inner = re.fullmatch(r"functrans\[(.*)\]", word)
        found |= packages(*inner[1].split(",")) if inner else {re.split(r"[<>=\[]", word)[0]}
    return found


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_what_is_there(path):
    ran = commands(path)
    assert ran
    for command in ran:
        for extras in re.findall(r"\.\[([\w,]+)\]", command):
            assert set(extras.split(",")) <= set(EXTRAS)
        tool, *words = command.split()
        if tool == "python":
            module = words[words.index("-m") + 1]
            if module.startswith("tests."):
                assert importlib.util.find_spec(module)
            else:
                assert module == "pip" or module in packages(*EXTRAS)
        else:
            assert tool == "test" or tool in packages("test")


def test_workflows_try_the_versions_that_are_promised():
    (path,) = [p for p in WORKFLOWS if p.name == "ci.yml"]
    jobs = yaml.safe_load(path.read_text())["jobs"]
    assert set(jobs) == {"lint", "types", "tests", "sweep", "docs", "build"}
    tried = jobs["tests"]["strategy"]["matrix"]["include"]
    promised = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if ":: 3." in c]
    assert [row["python"] for row in tried] == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"
    assert {row["jax"] for row in tried} == {"0.10", "0.11", "0.12"}
    assert "jax>=0.10,<0.13" in PROJECT["dependencies"]


def test_the_extras_that_texts_name_exist():
    texts = [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("examples/*.*"),
        *ROOT.glob("tests/**/*.py"),
        *PACKAGE.rglob("*.py"),
    ]
    named = {}
    for path in texts:
        text = path.read_text()
        for pattern in (r"(?:functrans|'\.|\"\.)\[([a-z][a-z,]*)\]", r"extras? `(\w+)`"):
            for words in re.findall(pattern, text):
                named |= dict.fromkeys(words.split(","), path)
    assert {"libraries", "examples", "test", "draw", "release"} <= set(named)
    assert {name: path for name, path in named.items() if name not in EXTRAS} == {}
