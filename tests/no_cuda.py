"""Let PyTorch's CUDA build start where CUDA's libraries are not: `python -m tests.no_cuda FOLDER`.

PyPI's wheel of PyTorch for Linux is linked with CUDA's libraries, which are three gigabytes that a test
on a CPU has no use for. This writes libraries of their names into a folder, for LD_LIBRARY_PATH: all functions are
there, and each answers that there is no such device. Needs `readelf` and `cc`; does nothing where PyTorch is not linked
with CUDA.
"""

import importlib.util
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

_LIBRARY = re.compile(r"lib(?:cu|nv|nccl)[\w]*\.so[.\d]*")
_FUNCTION = re.compile(r"_*(?:cu|nv|nccl)|_ZN?\d*(?:nvshmem|cudnn|nccl)")
_NO_DEVICE = 100  # cudaErrorNoDevice, and CUDA_ERROR_NO_DEVICE


def main(folder: Path) -> None:
    """Write the libraries that PyTorch, as it is installed beside this Python, asks for."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit('no PyTorch here: pip install "rag-notes[train]"')
    binaries = sorted((Path(spec.submodule_search_locations[0]) / "lib").glob("*.so"))
    needed = {name for path in binaries for name in _LIBRARY.findall(_readelf("-d", path))}
    folder.mkdir(parents=True, exist_ok=True)
    source, compiled = folder / "functions.c", folder / "functions.o"
    source.write_text("\n".join(map(_function, sorted(_missing(binaries)))))
    if needed:
        subprocess.run(["cc", "-w", "-fno-builtin", "-fPIC", "-c", "-o", compiled, source], check=True)
    versions = _versions(binaries)
    for name in sorted(needed):
        script = folder / "versions.map"
        script.write_text("".join(f"{version} {{ *; }};\n" for version in sorted(versions[name])) or "{ *; };\n")
        link = ["cc", "-shared", "-o", folder / name, f"-Wl,-soname,{name}", f"-Wl,--version-script={script}", compiled]
        subprocess.run(link, check=True)
    print(f"{folder}: {len(needed)} libraries")


def _missing(binaries: list[Path]) -> set[str]:
    """CUDA's functions that PyTorch's own libraries call and do not have."""
    called, defined = set[str](), set[str]()
    for path in binaries:
        for line in _readelf("--dyn-syms", path).splitlines():
            fields = line.split()
            if len(fields) > 7:
                (called if fields[6] == "UND" else defined).add(fields[7].split("@")[0])
    return {name for name in called - defined if _FUNCTION.match(name)}


def _versions(binaries: list[Path]) -> dict[str, set[str]]:
    """The versions of each library's functions that are asked for: without them the loader refuses the library."""
    versions, library = defaultdict[str, set[str]](set), ""
    for path in binaries:
        for kind, name in re.findall(r"\b(File|Name): (\S+)", _readelf("-V", path)):
            if kind == "File":
                library = name
            else:
                versions[library].add(name)
    return versions


def _function(name: str) -> str:
    if name.endswith(("ErrorString", "ErrorName")):
        return f'const char *{name}(void) {{ return "no CUDA here"; }}'
    return f"long {name}(void) {{ return {_NO_DEVICE}; }}"


def _readelf(option: str, path: Path) -> str:
    return subprocess.run(["readelf", "-W", option, path], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]))
