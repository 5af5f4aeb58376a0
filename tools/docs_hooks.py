"""Hooks of MkDocs: the pages that lie at the root of the repository become pages of the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parents[1]
PAGES: Final = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
"""A file at the root, and its address under `docs/`."""
LINK: Final = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the root. Their links are relative to the root, so `docs/` is removed from them."""
    for source, target in PAGES.items():
        text = (ROOT / source).read_text().replace("](docs/", "](")
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Point links to the files of the root at their pages on the site."""
    folder = posixpath.dirname(page.file.src_uri)

    def rewritten(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, link[1]))
        # A page of the root is written as seen from the root, a page under docs/ as seen from its folder.
        name = PAGES.get(target) or (PAGES.get(link[1]) if page.file.src_uri in PAGES.values() else None)
        if name is None:
            return link[0]
        return f"]({posixpath.relpath(name, folder or '.')}{link[2] or ''})"

    return LINK.sub(rewritten, markdown)
