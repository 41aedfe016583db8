"""The report in a real browser: rendered, nothing on the console, light and dark, on a phone and on a desk.

Screenshots are kept in the folder that ELASTIC_ARTIFACTS names, if it is set.
"""

import os
import re
import shutil
import subprocess
from html import escape
from pathlib import Path

import pytest
from matplotlib.image import imread

from elastic.rundir import RunDir
from elastic.views.load import Run
from elastic.views.report import html
from tests.runs import HEALED

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
LIGHT, DARK = (255, 255, 255), (20, 23, 27)  # --back of the style sheet
PHONE, DESK = 390, 1280


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"no headless browser: none of {', '.join(NAMES)} is installed (Debian: apt-get install chromium)")
    return found


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    run = Run(RunDir(Path("/runs/mnist-1")), HEALED, (), {"epochs": 2}, {"keras": "3.15.0"})
    path.write_text(html(run, 100.0), encoding="utf-8")
    return path


def call(browser: str, folder: Path, *options: str) -> tuple[str, str]:
    """Run the browser without a window, and without a network; return its output and its errors."""
    fixed = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
        "--enable-logging=stderr",
    ]
    offline = ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={folder / 'profile'}"]
    line = [browser, *fixed, *offline, *options]
    done = subprocess.run(line, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def console(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if "CONSOLE" in line]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_report_renders_in_both_schemes_and_says_nothing_on_the_console(
    browser: str, page: Path, tmp_path: Path, scheme: str, width: int
) -> None:
    shot = tmp_path / f"report-{scheme}-{width}.png"
    dark = scheme == "dark"
    options = [
        f"--window-size={width},2400",
        f"--screenshot={shot}",
        f"--blink-settings=preferredColorScheme={0 if dark else 1}",
    ]
    _, errors = call(browser, tmp_path, *options, page.as_uri())
    assert console(errors) == []
    pixels = imread(shot)
    corner = tuple(round(float(c) * 255) for c in pixels[2, 2][:3])
    assert corner == (DARK if dark else LIGHT)
    colours = {tuple(round(float(c) * 255) for c in p[:3]) for p in pixels[::7, ::7].reshape(-1, pixels.shape[2])}
    assert len(colours) > 12  # it is not an empty page
    if folder := os.environ.get("ELASTIC_ARTIFACTS"):
        shutil.copy(shot, folder)


def test_the_page_fits_on_a_phone(browser: str, page: Path, tmp_path: Path) -> None:
    """A frame as wide as a phone: no part of the page is wider, but for what scrolls by itself."""
    script = (
        "const d = f.contentDocument.documentElement;"
        "document.title = [d.clientWidth, d.scrollWidth, f.contentDocument.querySelectorAll('svg').length].join(' ')"
    )
    frame = tmp_path / "frame.html"
    inside = escape(page.read_text(encoding="utf-8"), quote=True)
    frame.write_text(
        f'<!doctype html><meta charset="utf-8"><iframe id="f" width="{PHONE}" height="800" style="border:0" '
        f'srcdoc="{inside}" onload="{escape(script)}"></iframe>',
        encoding="utf-8",
    )
    dom, errors = call(browser, tmp_path, "--dump-dom", frame.as_uri())
    assert console(errors) == []
    found = re.search(r"<title>(\d+) (\d+) (\d+)</title>", dom)
    assert found is not None, dom[:2000]
    width, needed, drawings = map(int, found.groups())
    assert width == PHONE
    assert needed <= PHONE
    assert drawings == 3


def test_a_console_error_would_be_noticed(browser: str, page: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.html"
    broken.write_text(page.read_text(encoding="utf-8") + "<script>nonsense()</script>", encoding="utf-8")
    _, errors = call(browser, tmp_path, "--dump-dom", broken.as_uri())
    assert any("nonsense" in line for line in console(errors))
