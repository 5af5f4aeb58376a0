"""Certificates for tests, made by the `openssl` command: an authority and what it signs. EC keys are fast to make."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

ALWAYS: Final = "20000101000000Z", "21000101000000Z"
LONG_AGO: Final = "20000101000000Z", "20010101000000Z"
NAMES: Final = "DNS:localhost,IP:127.0.0.1"


class Authority:
    """Signs certificates; `pem` is its own certificate."""

    def __init__(self, folder: Path, name: str) -> None:
        """Create its files in `folder`."""
        self._folder = folder
        self._name = name
        self.pem = folder / f"{name}.pem"
        self._key = _make_key(folder / f"{name}.key")
        (folder / f"{name}.index").touch()
        config = (
            f"[ca]\ndefault_ca=it\n[it]\ndatabase={folder}/{name}.index\nnew_certs_dir={folder}\nrand_serial=yes\n"
            "default_md=sha256\npolicy=any\nunique_subject=no\n[any]\ncommonName=supplied\n"
        )
        (folder / f"{name}.cnf").write_text(config)
        _openssl("req", "-x509", "-new", "-key", self._key, "-subj", f"/CN={name}", "-days", "9000", "-out", self.pem)

    def sign(
        self, name: str, alternative_names: str | None = NAMES, valid: tuple[str, str] = ALWAYS
    ) -> tuple[Path, Path]:
        """Create a key (PKCS#8) and a certificate for it, as PEM files."""
        key = _make_key(self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        certificate = self._folder / f"{name}.crt"
        lines = ["basicConstraints=CA:FALSE", "extendedKeyUsage=serverAuth,clientAuth"]
        if alternative_names is not None:
            lines.append(f"subjectAltName={alternative_names}")
        extensions.write_text("\n".join(lines) + "\n")
        _openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        start, end = valid
        config = self._folder / f"{self._name}.cnf"
        _openssl(
            *("ca", "-batch", "-notext", "-config", config, "-keyfile", self._key, "-cert", self.pem, "-in", request),
            *("-extfile", extensions, "-startdate", start, "-enddate", end, "-out", certificate),
        )
        return key, certificate


def _make_key(file: Path) -> Path:
    _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", file)
    return file


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"openssl {words}: {done.stderr}"


def joined(*files: Path) -> Path:
    """Join several files into one, as in a PEM key store."""
    whole = files[0].with_suffix(".store.pem")
    whole.write_text("".join(file.read_text() for file in files))
    return whole
