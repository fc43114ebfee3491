"""`pip install`: the wheel outside of the repository, its command, its page, and uninstalling."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

from decoders import __version__
from tests import strangers
from tests.browser.actions import link, open_lab, panel, run, unfold_form
from tests.test_docs import README, blocks

ROOT = Path(__file__).resolve().parents[2]


def call(*command: object, **options) -> str:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=300, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    return next(folder.glob("*.whl"))


class Home:
    """A virtual environment with the libraries of this one, and a folder outside of the
    repository."""

    def __init__(self, folder: Path, wheel: Path):
        self.folder, self.bin = folder, folder / "venv" / "bin"
        call(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
        self.packages = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
        (self.packages / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
        strangers.install(self.packages)
        self.before = self.files()
        self.pip("install", "--no-deps", "--no-index", "--quiet", wheel)

    def files(self) -> set[Path]:
        found = {p.relative_to(self.packages) for p in self.packages.rglob("*")}
        return {
            p
            for p in found
            if "__pycache__" not in p.parts or "decoders" in p.parts or "workbench" in p.parts
        }

    def pip(self, *arguments: object) -> None:
        call(sys.executable, "-m", "pip", "--python", self.bin / "python", *arguments)

    def call(self, *command: object) -> str:
        return call(*command, cwd=self.folder, env=self.environ)

    @property
    def environ(self) -> dict[str, str]:
        inherited = {
            k: v
            for k, v in os.environ.items()
            if k not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
        }
        return {
            **inherited,
            "WORKBENCH_DATA": str(self.folder / "data"),
            "GRADIO_SERVER_PORT": "7921",
        }


@pytest.fixture(scope="module")
def home(tmp_path_factory, wheel) -> Home:
    return Home(tmp_path_factory.mktemp("home"), wheel)


def test_a_wheel_holds_two_packages_and_every_asset_inside_of_them(wheel):
    """Once `pip wheel .` failed. A folder of assets that no package reads is named here, so that a
    new one is not forgotten."""
    names = [Path(name) for name in zipfile.ZipFile(wheel).namelist()]
    assert {name.parts[0] for name in names} == {
        "decoders",
        "workbench",
        f"decoding_workbench-{__version__}.dist-info",
    }
    mapped = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]["wheel"]["sources"]
    folders = {f"assets/{p.name}" for p in (ROOT / "assets").iterdir() if p.is_dir()}
    assert folders <= {*mapped, "assets/custom_generate"}
    assert {"py.typed"} <= {name.name for name in names if name.parts[0] == "decoders"}
    assert not [
        name
        for name in names
        if name.suffix == ".pyi" or name.suffix == ".png" or name.stem == "train"
    ]
    assert sum(1 for name in names if "licenses" in name.parts) == 3


def test_its_command_is_there(home):
    help = home.call(home.bin / "decoding-workbench", "--help")
    assert "usage: decoding-workbench " in help
    assert all(word in help for word in ("compare", "batch", "runs", "--port", "--version"))


FROM_A_FOLDER = """
import torch
given = pair.tokenizer("Once upon a time", return_tensors="pt")
wanted = pair.target.generate(**given, max_new_tokens=12, do_sample=False)
found = pair.target.generate(
    **given, max_new_tokens=12, do_sample=False, custom_generate="hub", trust_remote_code=True,
    decoder="speculative", assistant_model=pair.draft, settings={"draft_length": 3},
    tokenizer=pair.tokenizer)
assert torch.equal(wanted, found)
"""


def test_the_readmes_example_and_the_folder_for_the_hub_decode_outside_of_the_repository(home):
    ((_, example),) = blocks(README, "python")
    shutil.copytree(ROOT / "assets" / "custom_generate", home.folder / "hub")
    assert "tokens/s" in home.call(home.bin / "python", "-c", example + FROM_A_FOLDER)


def test_without_the_package_its_error_names_it_and_not_a_strangers(tmp_path):
    """The package called decoders on PyPI is another one."""
    (tmp_path / "decoders.py").write_text("")
    file = ROOT / "assets" / "custom_generate" / "custom_generate" / "generate.py"
    program = (
        f"import sys; sys.path[:] = [{str(tmp_path)!r}, *sys.path[1:]]; "
        f"exec(open({str(file)!r}).read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (
        "ImportError: This generation method needs the package decoding-workbench: pip install"
        in done.stderr
    )


def test_its_page_decodes_and_uninstalling_leaves_a_stub_alone(home, visit):
    """Gradio writes a type stub beside each component, which pip does not know. A stranger's
    decoder is chosen, set and run too. The measured orderings once were in a checkout alone."""
    process = subprocess.Popen(
        [home.bin / "decoding-workbench"],
        cwd=home.folder,
        env=home.environ,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        found = next(
            match for line in process.stdout if (match := re.search(r"http://\S+:\d+", line))
        )
        chosen = {"decoders": "greedy,mine", "mine.strength": 0.75}
        page = visit(link(found[0] + "/", "Once upon a time", max_new_tokens=8, **chosen))
        unfold_form(page)
        expect(page.locator("#decoders input[name=mine]")).to_be_checked()
        page.locator(".fold summary", has_text="Mine, all mine ·").click()
        own = page.locator(".fold").filter(has_text="Mine, all mine ·").get_by_label("strength")
        expect(own).to_have_value("0.75")
        run(page)
        expect(panel(page, "mine")).to_contain_text("Mine, all mine")
        expect(page).to_have_url(re.compile("mine.strength=0.75|run="))
        unfold_form(page)  # a press of Run shuts it
        page.get_by_role("button", name="The usual 5").click()
        expect(page.locator("#decoders input:checked")).to_have_count(5)
        run(page)
        expect(page.locator("#panels .wb-panel")).to_have_count(5)
        open_lab(page, "Experiments")
        expect(page.locator(".wb-orderings .marks .sign").first).to_be_visible()
        page.close()
    finally:
        process.terminate()
        process.wait(60)
    home.pip("uninstall", "--yes", "--quiet", "decoding-workbench")
    assert {p.name for p in home.files() ^ home.before if p.suffix} <= {"widgets.pyi"}
