"""A real browser for the tests that look at pages: Debian's chromium, installed where that is possible.

Run as a module by `make test`. Where no browser can be had it says so and goes on: only the tests that need
one fail.
"""

import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
INSTALL = (
    ("apt-get", "update", "--quiet=2"),
    ("apt-get", "install", "--yes", "--quiet=2", "--no-install-recommends", "chromium", "fonts-dejavu-core"),
)
INSTALL_S = 300


def find_browser() -> str | None:
    """REMORA_TEST_BROWSER if it is set, else the first of the usual names on the PATH."""
    given = os.environ.get("REMORA_TEST_BROWSER")
    return given or next((found for name in NAMES if (found := shutil.which(name))), None)


def main() -> None:
    if find_browser():
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        say("No chromium here. Install it (Debian: apt-get install chromium) or set REMORA_TEST_BROWSER.")
        return
    say("Installing chromium for the tests that look at pages (once).")
    for command in INSTALL:
        try:
            subprocess.run(
                command,
                env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=INSTALL_S,
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            say(f"Chromium could not be installed: {error}. The tests that need it will fail.")
            return


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
