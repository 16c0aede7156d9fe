"""Compilers, CMake, Ninja and ctest that only pretend: they let the whole build driver run in milliseconds.

A FAIL file in the source folder makes the fake Ninja fail with that file's text; a HANG file makes it wait.
"""

from __future__ import annotations

from pathlib import Path

COMPILER = """\
#!/bin/sh
case "$1" in
    --version) echo "{version}" ;;
    -dumpmachine) echo x86_64-linux-gnu ;;
    *) cat > /dev/null; {probe} ;;
esac
"""

CMAKE = r"""#!/bin/sh
if [ "$1" = --version ]; then
    echo "cmake version 3.30.0"
elif [ "$1" = --install ]; then
    printf '%s\n' "$@" > "$2/install.txt"
    while read -r name; do
        mkdir -p "$4/${name%/*}"
        printf %s "$name" > "$4/$name"
    done < "$2/made.txt"
else
    all=$(printf '%s\n' "$@")
    while [ "$1" ]; do
        case "$1" in -S) source=$2 ;; -B) build=$2 ;; esac
        shift
    done
    echo "$all" | sed -n 's/^-D//p' > "$build/definitions.txt"
    echo configured >> "$build/configured"
    printf %s "$source" > "$build/build.ninja"
fi
"""

NINJA = r"""#!/bin/sh
if [ "$1" = --version ]; then
    echo 1.12.0
    exit
fi
build=$2
source=$(cat "$build/build.ninja")
echo "[1/2] Building CXX object a.cpp.o"
if [ -e "$source/HANG" ]; then
    echo $$ > "$source/HANG"
    exec sleep 60
fi
if [ -e "$source/FAIL" ]; then
    cat "$source/FAIL"
    exit 1
fi
echo "[2/2] Linking"
if grep -q SYRINX_BUILD_FUZZERS=ON "$build/definitions.txt"; then
    mkdir -p "$build/tests/fuzz"
    for target in "$source"/tests/fuzz/*_fuzz; do
        [ -e "$target" ] && cp "$target" "$build/tests/fuzz/"
    done
fi
case "$source" in
    */llama) printf '%s\n' lib/libllama.a include/llama.h ;;
    *) printf '%s\n' lib/libsyrinx.so bin/syrinx ;;
esac > "$build/made.txt"
"""

CTEST = r"""#!/bin/sh
[ -e "$SYRINX_TINY_DIR/a.gguf" ] || exit 77
[ "$1" = --test-dir ] || exit 78
if [ -e "$2/ctest-output" ]; then
    cat "$2/ctest-output"
    exit 8
fi
echo "1/1 Test #1: abi ...   Passed"
echo "100% tests passed out of 1"
"""

TINY_MODELS = """\
import pathlib, sys
print("made", file=sys.stderr)
(pathlib.Path(sys.argv[2]) / "a.gguf").write_text("a")
"""


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def write_compiler(folder: Path, name: str, version: str, *, works: bool = True) -> Path:
    probe = "exit 0" if works else "echo '<stdin>:1:10: fatal error: optional: No such file' >&2; exit 1"
    return write_program(folder / name, COMPILER.replace("{version}", version).replace("{probe}", probe))


def write_toolchain(folder: Path) -> Path:
    """A folder for PATH with all of it."""
    for name in ("cc", "c++"):
        write_compiler(folder, name, "c++ (Debian 12.2.0-14) 12.2.0")
    for name in ("clang", "clang++"):
        write_compiler(folder, name, "Debian clang version 14.0.6")
    for name, text in (("cmake", CMAKE), ("ninja", NINJA), ("ctest", CTEST)):
        write_program(folder / name, text)
    return folder


def write_ndk(root: Path, revision: str) -> Path:
    """What the build looks at in an Android NDK."""
    for triple in ("aarch64-linux-android28", "x86_64-linux-android28"):
        for name in ("clang", "clang++"):
            folder = root / "toolchains" / "llvm" / "prebuilt" / "linux-x86_64" / "bin"
            write_compiler(folder, f"{triple}-{name}", "Android (12470979, +pgo) clang version 18.0.3")
    (root / "source.properties").write_text(f"Pkg.Desc = Android NDK\nPkg.Revision = {revision}\n")
    toolchain = root / "build" / "cmake" / "android.toolchain.cmake"
    toolchain.parent.mkdir(parents=True)
    toolchain.write_text("set(CMAKE_SYSTEM_NAME Android)\n")
    return root


def write_native(folder: Path) -> Path:
    """A folder that stands for native/."""
    for name in ("CMakeLists.txt", "llama/CMakeLists.txt", "include/syrinx/syrinx.h", "src/a.cpp", "tests/a_test.cpp"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    maker = folder.parent / "tests" / "tiny_models.py"
    maker.parent.mkdir()
    maker.write_text(TINY_MODELS)
    (maker.parent / "__init__.py").write_text("")
    return folder
